"""The files of an evaluation: CSV tables, every answer, entries for the Hub, and what is stored in the dataset.

In tables every accuracy is in percent and every drop in percentage points. An entry for the Hub is a model's plain
accuracy on the base or on one shift, every accepted image counting once; its notes give intervals, the class average,
the drop and validation → base.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.hub import HubDataset
from counterfoil.data.labelled_sources import refuse_among_images
from counterfoil.dataset.card.index_page import write_index
from counterfoil.documents import csv_text, document_text, preview_column
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import OpenDataset, Subject, open_subject
from counterfoil.evaluation.failures import pick_examples, write_failures
from counterfoil.evaluation.gate import gate_files, gate_sentence, gate_table
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.evaluation.tasks.classes.measures import NESTED_MEASURES
from counterfoil.evaluation.tasks.classes.report import evaluation_html
from counterfoil.evaluation.tasks.labels.subject import open_conditions
from counterfoil.evaluation.tasks.objects.image_keys import write_image_keys
from counterfoil.recipe import Recipe
from counterfoil.recipe.prompts import BASE
from counterfoil.regular_files import named_path
from counterfoil.report.reference import OVER_CLASSES, VALIDATION, VALIDATION_GAP
from counterfoil.report.results import DROP_BASE, NESTED, ModelFacts, ResultRow, Results, classes_of, rounded_row
from counterfoil.report.words import counted, over_classes
from counterfoil.report.words import csv_interval as interval_columns
from counterfoil.report.words import csv_percent as percent
from counterfoil.stats import Estimate
from counterfoil.store.atomic import make_folder, replace_files, try_folder, write_atomically
from counterfoil.store.layout import EVALUATION, PREVIEW, PRIVATE
from counterfoil.store.sealed_folder import EVALUATED

if TYPE_CHECKING:
    from huggingface_hub import EvalResultEntry


def report_folder(subject: Subject, out: Path | None, limit: int | None) -> Path:
    """Return the folder of the report, made before the long work: a missing permission shows at once.

    A preview has a folder of its own, so that it replaces no full report.
    """
    folder = named_path(out) if out is not None else subject.workplace / (EVALUATION if limit is None else PREVIEW)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder", "Name another with --out.")
    if subject.directory is None:
        refuse_among_images(folder, subject.source)
    try_folder(folder)
    make_folder(folder)
    return folder


def write_evaluation(evaluation: Evaluation, answered: AllAnswers, folder: Path, dataset_id: str | None) -> Evaluation:
    """Write every file of an evaluation into its folder; return the evaluation with their paths."""
    subject, results = answered.subject, evaluation.results
    examples = pick_examples(answered, results)
    pictures = {name: measure.pictures(answered, results) for name, measure in NESTED_MEASURES.items()}
    failures = write_failures(results, answered, folder)
    gate = None if evaluation.gate is None else (gate_sentence(evaluation.gate), gate_table(evaluation.gate))
    texts = {
        **result_tables(results),
        "document": ("results.json", document_text(results)),
        "report": ("report.html", evaluation_html(results, examples, evaluation.unreadable, pictures, gate)),
    }
    if evaluation.gate is not None:
        texts |= gate_files(evaluation.gate)
    entries: dict[str, bytes] = {}
    if dataset_id is not None and subject.base and len(subject.parts) == 1:
        # The commit that a published dataset was named by; a branch or a tag may move.
        revision = subject.published.revision if subject.published else None
        commit = revision if revision and re.fullmatch(r"[0-9a-f]{40}", revision) else None
        entries = entry_files(with_public_names(results), dataset_id, commit)
    return write_files(evaluation, folder, failures, texts, predictions_parquet(answered), entries)


def write_files(
    evaluation: Evaluation,
    folder: Path,
    failures: Path,
    texts: Mapping[str, tuple[str, str]],
    predictions: bytes,
    entries: Mapping[str, bytes] | None = None,
) -> Evaluation:
    """Write texts (short name → file name, text), predictions.parquet, entries for the Hub (name → content) and the
    index page. Return the evaluation with all paths. Files of an earlier evaluation go.
    """
    named = {name: file for name, (file, _) in texts.items()} | {"predictions": "predictions.parquet"}
    contents = {file: text.encode() for file, text in texts.values()} | {named["predictions"]: predictions}
    if entries:
        named["entries"] = FOLDER
        contents |= {f"{FOLDER}/{name}": content for name, content in entries.items()}
    replace_files(folder, contents)
    write_index(folder.parent.parent if folder.parent.name == PRIVATE else folder)
    files = {name: (folder / file).resolve() for name, file in named.items()}
    return replace(evaluation, files={"failures": failures, **files})


# The first columns of robustness.csv; other measures of a model and a group follow.
_OWN = ("accuracy", DROP_BASE, "drop", "pairs_drop", "top1", "top_k")


def result_tables(results: Results) -> dict[str, tuple[str, str]]:
    """Write every table of these results: short name → (file name, CSV)."""
    tables = {
        "results": ("results.csv", results_csv(results)),
        "robustness": ("robustness.csv", robustness_csv(results)),
        "shifts": ("shifts.csv", shifts_csv(results)),
        # Fractions, as results.json has them, but of classes too.
        "measures": (
            "measures.csv",
            csv_text(map(rounded_row, results.rows), [field.name for field in fields(ResultRow)]),
        ),
    }
    if results.base is not None:  # classes are shown by their drops
        tables["classes"] = ("classes.csv", classes_csv(results))
    for shown in NESTED.values():
        if (text := shown.csv(results)) is not None:
            tables[Path(shown.file).stem] = (shown.file, text)
    return {name: (file, preview_column(text, results.preview)) for name, (file, text) in tables.items()}


def results_csv(results: Results) -> str:
    """Write one line for each model, best first: timm's columns, then `accuracy.SHIFT` and `drop.SHIFT` of each shift.

    top1 and top5 are on the accepted base images, each image counting once, as timm counts; top5 counts the top
    `top_k`. `base` is averaged over all classes, and so is `accuracy.SHIFT`; `drop.SHIFT` is over the classes that
    shifts.csv counts. `tied` counts images whose two best scores are equal.
    """
    rows, number = [], results.rows
    group = results.base or ""
    top1 = {model.name: number.value("top1", model=model.name, group=group) or 0.0 for model in results.models}
    for model in sorted(results.models, key=lambda model_facts: (-top1[model_facts.name], model_facts.name)):
        top_k = number.value("top_k", model=model.name, group=group, at=str(model.top_k)) or 0.0
        validation, gap = (number.estimate(name, model=model.name) for name in (VALIDATION, VALIDATION_GAP))
        reference = results.reference if gap else None
        row: dict[str, Any] = {
            # timm's columns, in timm's order (results/results-imagenet.csv).
            "model": model.name,
            "img_size": model.img_size,
            "top1": percent(top1[model.name]),
            "top1_err": percent(1 - top1[model.name]),
            "top5": percent(top_k),
            "top5_err": percent(1 - top_k),
            "param_count": "" if model.param_count is None else f"{model.param_count / 1e6:.2f}",
            "crop_pct": model.crop_pct,
            "interpolation": model.interpolation,
            # Ours.
            "top_k": model.top_k,
            "tied": model.tied,
            **interval_columns("base", results.base_number(model.name)),
            "near_chance": int(model.near_chance),
            "average_drop": percent(number.value("average_drop", model=model.name)),
            **interval_columns("validation", validation),
            "validation_images": reference.images if reference else "",
            "validation_classes": reference.classes if reference else "",
            **interval_columns("validation_gap", gap),
        }
        for shift in results.shifts:
            row[f"accuracy.{shift.name}"] = percent(number.value("accuracy", model=model.name, group=shift.name))
            row[f"drop.{shift.name}"] = percent(number.value("drop", model=model.name, group=shift.name))
        rows.append(row)
    return csv_text(rows)


def robustness_csv(results: Results) -> str:
    """Write one line for each model and shift: accuracies, drops with their intervals, other measures.

    Accuracies are averaged over all classes. `drop_base`, drops and counts are of the `n_classes` of the drop.
    """
    nested = {facts.name for shown in NESTED.values() for facts in shown.measures}
    shown = {facts.name for facts in results.measures} - nested - set(_OWN)
    others = list(
        dict.fromkeys(
            result.measure
            for result in results.rows
            if result.measure in shown
            and result.model
            and result.group
            and not (result.class_id or result.against or result.at)
        )
    )
    # A table without drops has this column too, so that all tables have the same columns.
    others = list(dict.fromkeys(["relative_drop", *others]))
    rows, number = [], results.rows
    for shift, model in product(results.shifts, results.models):
        key = {"model": model.name, "group": shift.name}
        pairs = number.one("pairs_drop", **key)
        row: dict[str, Any] = {
            "model": model.name,
            "shift": shift.name,
            "kind": shift.kind or "",
            "n_classes": shift.classes,
            "n_classes_left_out": len(shift.left_out),
            "n_images": shift.images,
            "n_base_images": shift.base_images,
            "near_chance": int(model.near_chance),
            "base_accuracy": percent(base.value if (base := results.base_number(model.name)) else None),
            "accuracy": percent(number.value("accuracy", **key)),
            DROP_BASE: percent(number.value(DROP_BASE, **key)),
            **interval_columns("drop", number.estimate("drop", **key)),
            "pairs": pairs.n if pairs else 0,
            **interval_columns("pairs_drop", pairs.estimate if pairs else None),
            **interval_columns("top1", number.estimate("top1", **key)),
            **interval_columns("top5", number.estimate("top_k", at=str(model.top_k), **key)),
        }
        for name in others:
            row |= interval_columns(name, number.estimate(name, **key))
        rows.append(row)
    return csv_text(rows)


def shifts_csv(results: Results) -> str:
    """Write one line for each shift, the base first: yield, classes measured and left out, impact, ID/OOD slope."""
    rows, number = [], results.rows
    for shift in results.groups:
        left_out = results.near_chance_classes if shift is results.base_group else shift.left_out
        near_chance = [class_left_out.class_id for class_left_out in left_out if class_left_out.why == "near chance"]
        line, probit = (number.one(name, group=shift.name) for name in ("slope", "probit_slope"))
        rows.append(
            {
                "shift": shift.name,
                "kind": shift.kind or "",
                "prompt": shift.prompt,
                "group": shift.group,
                "candidates": shift.candidates,
                "accepted": shift.accepted,
                "yield": percent(shift.share_kept),
                "unreadable": shift.unreadable,
                "n_classes": shift.classes,
                "n_images": shift.images,
                "n_base_images": shift.base_images,
                "classes_left_out": " ".join(class_left_out.class_id for class_left_out in shift.left_out),
                "classes_near_chance": " ".join(near_chance),
                **interval_columns("impact", number.estimate("impact", group=shift.name)),
                **_slope_columns("slope", line),
                "intercept": percent(number.value("intercept", group=shift.name)),
                "r_squared": _number(number.value("r_squared", group=shift.name)),
                **_slope_columns("probit_slope", probit),
                "probit_r_squared": _number(number.value("probit_r_squared", group=shift.name)),
                "n_models": line.n if line else "",
            }
        )
    return csv_text(rows)


def classes_csv(results: Results) -> str:
    """Write one line for each shift and class: images, accuracies and drop averaged over models, `drop.MODEL` for each.

    A class with too few images has only counts. A class near chance on the base has no drop averaged over models.
    """
    rows = []
    for shift in results.shifts:
        for numbers in classes_of(results, shift.name):
            known = bool(numbers.accuracy)
            drops = numbers.drops if known else (None,) * len(results.models)
            row: dict[str, Any] = {
                "shift": shift.name,
                "kind": shift.kind or "",
                "class_id": numbers.class_id,
                "class": numbers.name,
                "measured": int(known and not numbers.class_near_chance),
                "near_chance": int(numbers.class_near_chance),
                "n_images": numbers.shift_images,
                "n_base_images": numbers.base_images,
                "base_accuracy": percent(results.mean_accuracy(numbers.base_accuracy)) if known else "",
                "accuracy": percent(results.mean_accuracy(numbers.accuracy)) if known else "",
                **interval_columns("drop", numbers.impact),
            }
            row |= {f"drop.{model.name}": percent(drop) for model, drop in zip(results.models, drops, strict=True)}
            rows.append(row)
    return csv_text(rows)


def predictions_parquet(answered: AllAnswers) -> bytes:
    """Write one row for each image: answer, confidence and correctness of each model; empty if it cannot be decoded."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    subject, answers = answered.subject, answered.answers
    ids = [cls.id for cls in subject.classes]
    names = [group.name for group in subject.groups]
    absent = ~answers.readable
    columns: dict[str, pa.Array] = {
        "key": pa.array(subject.keys, pa.string()),
        "label": pa.array(subject.labels, pa.int64()),
        "class_id": pa.array([ids[label] for label in subject.labels.tolist()], pa.string()),
        "shift": pa.array([names[shift] for shift in subject.shifts.tolist()], pa.string()),
        "class": pa.array([subject.classes[label].name for label in subject.labels.tolist()], pa.string()),
    }
    if subject.paths is not None:
        columns["path"] = pa.array(subject.paths, pa.string())
    if subject.preview is not None:
        columns["preview"] = pa.array(np.full(len(subject.keys), subject.preview))
    for index, (model, class_map) in enumerate(zip(answered.models, answered.maps, strict=True)):
        called = answer_names(subject.classes, class_map)
        outputs, inverse = np.unique(np.where(absent, -1, answers.prediction[:, index]), return_inverse=True)
        output_names = pa.array([None if output < 0 else called(output) for output in outputs.tolist()], pa.string())
        columns[f"answer.{model}"] = pa.array(answers.prediction[:, index], pa.int32(), mask=absent)
        columns[f"answered.{model}"] = output_names.take(pa.array(inverse))
        sure = answered.confidence[:, index]
        columns[f"confidence.{model}"] = pa.array(sure, pa.float32(), mask=absent | np.isnan(sure))
        columns[f"right.{model}"] = pa.array(answers.correct[:, index], pa.bool_(), mask=absent)
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue().to_pybytes()


def _slope_columns(name: str, line: ResultRow | None) -> dict[str, str]:
    ends = {name: line.value, f"{name}_low": line.low, f"{name}_high": line.high} if line else {}
    return {column: _number(ends.get(column)) for column in (name, f"{name}_low", f"{name}_high")}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


FOLDER = "eval_results"
# Notes of every entry begin with this text.
_NOTE = "top-1 accuracy in percent"
_MOST_BYTES = 1 << 26


def entry_files(results: Results, dataset_id: str, revision: str | None = None) -> dict[str, bytes]:
    """Return one YAML file for each model: file name → content.

    dataset_id: the dataset's `user/name`. revision: a commit.
    """
    import yaml
    from huggingface_hub import eval_result_entries_to_yaml

    taken: Counter[str] = Counter()
    files = {}
    for model in results.models:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model.name).strip("-.") or "model"
        while taken[stem.lower()]:  # some file systems ignore case
            taken[stem.lower()] += 1
            stem = f"{stem}-{taken[stem.lower()]}"
        taken[stem.lower()] = 1
        entries = eval_result_entries_to_yaml(_entries(results, model, dataset_id, revision))
        text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)
        files[f"{stem}.yaml"] = text.encode()
    return files


def _entries(results: Results, model: ModelFacts, dataset_id: str, revision: str | None) -> list[EvalResultEntry]:
    from huggingface_hub import EvalResultEntry

    base = results.base_group
    assert base is not None  # only a dataset with a base has entries
    number, entries = results.rows, []
    for group in results.groups:
        top1 = number.estimate("top1", model=model.name, group=group.name)
        if top1 is None:
            continue
        notes = f"{_interval(top1)}, {group.accepted} images"
        if results.outputs == "classes" and number.where(OVER_CLASSES, model=model.name):
            notes += "; answers over the dataset's classes alone"
        drop = number.estimate("drop", model=model.name, group=group.name)
        if group is base:
            if (average := results.base_number(model.name)) is not None:
                classes = counted(base.classes, "class", "classes")
                notes += f"; averaged over {classes} {100 * average.value:.1f}, {_interval(average)}"
            if model.near_chance:
                notes += "; near chance, so its drops mean nothing"
            gap = number.estimate(VALIDATION_GAP, model=model.name)
            validation = number.value(VALIDATION, model=model.name)
            if gap is not None and validation is not None:
                accuracy = f"{100 * validation:.1f} on validation images of the source"
                notes += f"; {accuracy}: gap to the base {100 * gap.value:.1f} points, {_interval(gap)}"
        elif drop is not None:
            before = number.value(DROP_BASE, model=model.name, group=group.name)
            of = "" if before is None else f" of {100 * before:.1f} %"
            lost = f"{100 * drop.value:.1f} points{of}"
            over = over_classes(group.classes, group.classes + len(group.left_out)) or f"over {group.classes} classes"
            notes += f"; drop from the base {over} {lost}, {_interval(drop)}"
        entry = EvalResultEntry(
            dataset_id=dataset_id,
            task_id=BASE if group is base else group.name,
            value=round(100 * top1.value, 3),
            dataset_revision=revision,
            notes=f"{_NOTE}; {notes}",
        )
        entries.append(entry)
    return entries


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"95 % interval {100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def make_ready(source: str | Path) -> None:
    """Close a dataset that a killed run left open. Raise UserError for one that can take no results."""
    directory = named_path(source)
    if not directory.is_dir():
        if reference := HubDataset.parse(str(source)):
            revision = f" --revision {reference.revision}" if reference.revision else ""
            raise UserError(
                f"{source} is a published dataset; results are stored in a dataset's directory",
                f"Fetch it (hf download {reference.repo}{revision} --repo-type dataset --local-dir DIR), evaluate"
                " DIR with --into-card and publish it again; or drop --into-card.",
            )
        return  # opening it explains the problem
    from counterfoil.building.closing import closed_dataset

    closed_dataset(directory)


def store_results(
    evaluation: Evaluation,
    dataset_id: str | None,
    tables_of: Callable[[Results], Mapping[str, tuple[str, str]]] = result_tables,
) -> Path:
    """Write results and entries for the Hub into the dataset and close it again; return the folder that holds them.

    tables_of: what makes the tables of results with public names: short name → (file name, CSV).
    """
    from counterfoil.building.closing import close_again

    assert evaluation.directory is not None  # only a built dataset takes results
    # Stored results have no clock, host or path.
    public = with_public_names(evaluation.results)
    files = {name: text.encode() for name, text in tables_of(public).values()}
    if dataset_id is not None:
        files |= {f"{FOLDER}/{name}": content for name, content in entry_files(public, dataset_id).items()}
    close_again(evaluation.directory, EVALUATED.files(public.to_json(), files), evaluation.results.content)
    return evaluation.directory / EVALUATION


COLUMNS = ("key", "path", "class_id", "label")


def write_keys(
    dataset: str | Path,
    out: str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    base: str | None = None,
    groups: str | None = None,
) -> int:
    """Write a CSV of all images of a dataset, as `evaluate` opens it, and return the number of images.

    A row has an image's key, its path below a folder, and its class's id and name, as a file of predictions has them.
    If an image may have several labels, it has an empty column for the scores of each label instead of a class.
    Raise UserError if the file exists, or for a path inside the dataset.
    """
    file = named_path(out)
    if file.exists():
        raise UserError(f"the file {file} exists already", "Name another, or remove it.")
    refuse_among_images(file, dataset)
    subject = open_subject(dataset, recipe, base, groups, {})
    if isinstance(subject, OpenDataset) and subject.recipe.task.name == "objects":
        return write_image_keys(subject, file)
    paths = subject.paths or (None,) * len(subject.keys)
    if isinstance(subject, OpenDataset) and subject.recipe.task.name == "labels":
        labels = [cls.name for cls in open_conditions(subject)[0].classes]
        listed_images = ({"key": key, "path": path} for key, path in zip(subject.keys, paths, strict=True))
        write_atomically(file, csv_text(listed_images, (*COLUMNS[:2], *labels)).encode())
        return len(subject.keys)
    rows = (
        dict(zip(COLUMNS, (key, path, subject.classes[label].id, subject.classes[label].name), strict=True))
        for key, path, label in zip(subject.keys, paths, subject.labels.tolist(), strict=True)
    )
    write_atomically(file, csv_text(rows, COLUMNS).encode())
    return len(subject.keys)
