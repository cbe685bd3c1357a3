"""Evaluate models on a dataset: open it, take its task, ask the models, conclude, and write the
files: tables, pages, every answer, entries for the Hub, and what is stored in the dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from counterfoil.data.hub import HubDataset
from counterfoil.data.labelled_sources import refuse_among_images
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.closing import close_again, closed_dataset
from counterfoil.documents import document_text, preview_column
from counterfoil.errors import collected_in, raise_together, warn
from counterfoil.evaluation.dataset import Subject, open_subject
from counterfoil.evaluation.gate import (
    JUNIT,
    MARKDOWN,
    gate_junit,
    gate_markdown,
    gate_sentence,
    gate_table,
    judge_gate,
    judged_models,
    models_of,
    read_gate,
    unlinked,
)
from counterfoil.evaluation.gate_changes import changes_markdown
from counterfoil.evaluation.messages import refusal
from counterfoil.evaluation.options import EvaluateArguments
from counterfoil.evaluation.page import page_html
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.evaluation.task import Task
from counterfoil.evaluation.tasks import task_of
from counterfoil.evaluation.worst_images import sheets, worst_images, worst_markdown
from counterfoil.models.classifiers.of_python import by_name
from counterfoil.options import takes
from counterfoil.recipe import Recipe
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, replace_files, try_folder
from counterfoil.store.directory_lock import writing_lock
from counterfoil.store.layout import EVALUATION, PREVIEW, PRIVATE
from counterfoil.store.sealed_folder import EVALUATED


@takes(EvaluateArguments)
def evaluate(given: EvaluateArguments) -> Evaluation:
    """Score models on a dataset and write tables and a report.

    Predictions are cached by content and reused. If a run is killed, call the function again: every
    model resumes where it stopped. Accuracies are averaged over all classes. A drop leaves out
    classes whose base accuracy is near chance (`near_chance`), and says how many remain; averages
    over models leave out models that are.

    `out` receives results.json, measures.csv (every number in one table), results.csv,
    robustness.csv, shifts.csv, classes.csv, report.html and predictions.parquet, which has a row
    per image and which `failures()` of the result reads as a DataFrame. A dataset with mined shifts
    adds findings.csv and `findings`: each model's failure rate over all candidates that passed the
    screen, compared with the base. A dataset whose keep rules select what classifiers get wrong
    adds transfer.csv and `transfer`: how often each model fails on the images that a judge got
    wrong.

    A torch module receives a tensor on `device`, in eval mode; its mode and device are restored
    afterwards. Any other callable receives a numpy array. Both answer in this process, however many
    workers there are.

    Outputs are matched to classes by name if the model has names (a callable by an attribute
    `label_names`), and otherwise by position, unless training programs sort these classes in
    different orders. Unmatched outputs are an error; `models[].matched` of the result says how each
    model was matched.

    Returns:
        An Evaluation with every number, and the paths of the files.

    Raises:
        UserError: A dataset, model or class map cannot be used. The message lists all problems
            together.
        RunFailure: A model cannot be fetched or run. The other models are scored and kept first.
    """

    def folder_of(subject: Subject) -> Path:
        return report_folder(subject, given.out, given.limit)

    evaluation = measure(given, folder_of)
    task = evaluation.task
    assert task is not None  # `measure` keeps it
    folder = folder_of(task.subject)
    with writing_lock(folder):  # two evaluations into one folder must not mix their files
        files = write_files(evaluation, task, folder)
    if given.into_card:
        files["card"] = store_results(evaluation, task)
    for warning in task.warnings(evaluation.results):
        warn(warning)
    return replace(evaluation, files=files)


def measure(
    given: EvaluateArguments, before_asking: Callable[[Subject], object] | None = None
) -> Evaluation:
    """Return what `evaluate` concludes, and write no file but the models' answers.

    before_asking: is called once all options are checked, before the long work begins.
    """
    given.check()
    dataset = given.dataset
    models = by_name(given.models)
    if given.into_card:
        make_ready(dataset)
    subject = open_subject(
        dataset,
        given.recipe,
        given.base,
        given.groups,
        given.beside or {},
    )
    given.refuse_preview(subject.preview)
    if given.into_card and subject.directory is None:
        raise refusal("unfit-option.card", dataset)
    task = task_of(subject)(subject, models, given)
    lines, errors = read_gate(given.gate, task.line_problems, task.measures)
    judged: tuple[str, ...] = ()
    with collected_in(errors):
        names = task.choose_models(models_of(lines))
        judged = judged_models(lines, names)
    with collected_in(errors):
        task.read_earlier(lines, judged)
    raise_together(errors)
    task.prepare()
    subject = task.subject  # with the images that the task measures
    if before_asking is not None:
        before_asking(subject)
    task.ask(names)
    results = task.results()
    gate = None
    if lines:
        comparing = task.comparing(results)
        gate = judge_gate(comparing, lines, judged, given.allow_undecided)
    return Evaluation(
        results,
        dataset=subject.source,
        directory=subject.directory,
        unreadable=task.unreadable,
        files={},
        unreadable_paths=task.unreadable_paths,
        gate=gate,
        notes=(*subject.notes, *task.notes(results)),
        task=task,
    )


FOLDER = "eval_results"


def report_folder(subject: Subject, out: Path | None, limit: int | None) -> Path:
    """Return the folder of the report, made before the long work: a missing permission shows at
    once.

    A preview has a folder of its own, so that it replaces no full report.
    """
    usual = subject.workplace / (EVALUATION if limit is None else PREVIEW)
    folder = usual if out is None else named_path(out)
    if folder.exists() and not folder.is_dir():
        raise refusal("existing-output.file", folder)
    if subject.directory is None:
        refuse_among_images(folder, subject.source)
    try_folder(folder)
    make_folder(folder)
    return folder


def write_files(evaluation: Evaluation, task: Task, folder: Path) -> dict[str, Path]:
    """Write every file of an evaluation, and the index page; return all paths by short name.

    Files of an earlier evaluation go.
    """
    results = evaluation.results
    gate = evaluation.gate
    answers = task.predictions(results.preview)
    shown_gate = None
    files_of_gate = {}
    pictures: Mapping[str, bytes] = {}
    if gate is not None:
        shown_gate = (gate_sentence(gate), gate_table(gate))
        worst, further = worst_images(task, answers, gate)
        changes = unlinked(changes_markdown(task, results, gate))
        parts = worst_markdown(worst, further)
        if changes:
            parts.insert(0, changes)
        files_of_gate = {
            "gate": (MARKDOWN, gate_markdown(gate, parts)),
            "junit": (JUNIT, gate_junit(gate)),
        }
        pictures = sheets(task, worst)
    files = {"failures": task.write_failures(results, folder)}
    page = task.page(results)
    report = page_html(results, page, evaluation.notes, shown_gate)
    texts = {
        "report": ("report.html", report),
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
    contents[predictions] = answers
    contents |= pictures
    entries = task.entries(results)
    if entries:
        files["entries"] = (folder / FOLDER).resolve()
        contents |= _in_folder(entries)
    for name, tables in task.folders(results).items():
        files[name] = (folder / name).resolve()
        for file, table in tables.items():
            text = preview_column(table, results.preview)
            contents[f"{name}/{file}"] = text.encode()
    replace_files(folder, contents)
    write_index(folder.parent.parent if folder.parent.name == PRIVATE else folder)
    return files


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
    revision = ""
    if reference.revision:
        revision = f" --revision {reference.revision}"
    raise refusal("unfit-option.published", source, f"{reference.repo}{revision}")


def store_results(evaluation: Evaluation, task: Task) -> Path:
    """Write results and entries for the Hub into the dataset and close it again; return the folder
    that holds them."""
    assert evaluation.directory is not None  # only a built dataset takes results
    # Stored results have no clock, host or path.
    public = with_public_names(evaluation.results)
    files = {}
    for name, text in task.all_tables(public).values():
        files[name] = text.encode()
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
        raise refusal("existing-output.exists", file)
    refuse_among_images(file, dataset)
    subject = open_subject(dataset, recipe, base, groups, {})
    return task_of(subject).write_keys(subject, file)
