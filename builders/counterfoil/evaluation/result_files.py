"""The files of an evaluation: tables, pages, every answer, entries for the Hub, and what is stored
in the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.data.hub import HubDataset
from counterfoil.data.labelled_sources import refuse_among_images
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.closing import close_again, closed_dataset
from counterfoil.documents import document_text
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import Subject, open_subject
from counterfoil.evaluation.gate import gate_files, gate_sentence, gate_table
from counterfoil.evaluation.page import page_html
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.recipe import Recipe
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, replace_files, try_folder
from counterfoil.store.directory_lock import writing_lock
from counterfoil.store.layout import EVALUATION, PREVIEW, PRIVATE
from counterfoil.store.sealed_folder import EVALUATED

if TYPE_CHECKING:
    from counterfoil.evaluation.task import Task

FOLDER = "eval_results"


def report_folder(subject: Subject, out: Path | None, limit: int | None) -> Path:
    """Return the folder of the report, made before the long work: a missing permission shows at
    once.

    A preview has a folder of its own, so that it replaces no full report.
    """
    usual = subject.workplace / (EVALUATION if limit is None else PREVIEW)
    folder = usual if out is None else named_path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder", "Name another with --out.")
    if subject.directory is None:
        refuse_among_images(folder, subject.source)
    try_folder(folder)
    make_folder(folder)
    return folder


def write_results(
    evaluation: Evaluation, task: Task, folder: Path, *, into_card: bool
) -> Evaluation:
    """Write the files of an evaluation; with `into_card`, also store its results in the dataset.
    Return all paths."""
    with writing_lock(folder):  # two evaluations into one folder must not mix their files
        evaluation = write_files(evaluation, task, folder)
    if into_card:
        card = store_results(evaluation, task)
        evaluation = replace(evaluation, files={**evaluation.files, "card": card})
    return evaluation


def write_files(evaluation: Evaluation, task: Task, folder: Path) -> Evaluation:
    """Write every file of an evaluation, and the index page; return the evaluation with all paths.

    Files of an earlier evaluation go.
    """
    results = evaluation.results
    gate = evaluation.gate
    shown_gate = None
    files_of_gate = {}
    if gate is not None:
        shown_gate = (gate_sentence(gate), gate_table(gate))
        files_of_gate = gate_files(gate)
    files = {"failures": task.write_failures(results, folder)}
    page = page_html(results, task.page(results), evaluation.notes, shown_gate)
    texts = {
        "report": ("report.html", page),
        "document": ("results.json", document_text(results)),
        **task.all_tables(results),
        **files_of_gate,
    }
    contents = {}
    for name, (file, text) in texts.items():
        files[name] = (folder / file).resolve()
        contents[file] = text.encode()
    predictions = "predictions.parquet"
    files["predictions"] = (folder / predictions).resolve()
    contents[predictions] = task.predictions(results.preview)
    entries = task.entries(results)
    if entries:
        files["entries"] = (folder / FOLDER).resolve()
        contents |= _in_folder(entries)
    replace_files(folder, contents)
    write_index(folder.parent.parent if folder.parent.name == PRIVATE else folder)
    return replace(evaluation, files=files)


def _in_folder(entries: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{FOLDER}/{name}": content for name, content in entries.items()}


def make_ready(source: str | Path) -> None:
    """Close a dataset that a killed run left open. Raise UserError for one that can take no
    results."""
    directory = named_path(source)
    if directory.is_dir():
        closed_dataset(directory)
        return
    reference = HubDataset.parse(str(source))
    if reference is None:
        return  # opening it explains the problem
    revision = f" --revision {reference.revision}" if reference.revision else ""
    raise UserError(
        f"{source} is a published dataset; results are stored in a dataset's directory",
        f"Fetch it (hf download {reference.repo}{revision} --repo-type dataset --local-dir"
        " DIR), evaluate DIR with --into-card and publish it again; or drop --into-card.",
    )


def store_results(evaluation: Evaluation, task: Task) -> Path:
    """Write results and entries for the Hub into the dataset and close it again; return the folder
    that holds them."""
    assert evaluation.directory is not None  # only a built dataset takes results
    # Stored results have no clock, host or path.
    public = with_public_names(evaluation.results)
    files = {name: text.encode() for name, text in task.all_tables(public).values()}
    files |= _in_folder(task.entries(evaluation.results, at_commit=False))
    stored = EVALUATED.files(public.to_json(), files)
    close_again(evaluation.directory, stored, evaluation.results.content)
    return evaluation.directory / EVALUATION


def write_keys(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    base: str | None = None,
    groups: str | None = None,
) -> int:
    """Write a CSV of all images of a dataset, as `evaluate` opens it, and return the number of
    images.

    A row has an image's key, its path below a folder, and its class's id and name, as a file of
    predictions has them. If an image may have several labels, it has an empty column for the scores
    of each label instead of a class. Raise UserError if the file exists, or for a path inside the
    dataset.
    """
    file = named_path(out)
    if file.exists():
        raise UserError(f"the file {file} exists already", "Name another, or remove it.")
    refuse_among_images(file, dataset)
    from counterfoil.evaluation.tasks import task_of

    subject = open_subject(dataset, recipe, base, groups, {})
    return task_of(subject).write_keys(subject, file)
