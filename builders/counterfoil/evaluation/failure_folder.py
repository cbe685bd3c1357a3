"""The images that models get wrong: as a table, and as a folder that FiftyOne and other tools
open."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from counterfoil.documents import csv_text
from counterfoil.evaluation.messages import refusal
from counterfoil.foreign_tables import parquet_bytes
from counterfoil.progress import report_progress
from counterfoil.registry import Registry, uncallable
from counterfoil.regular_files import named_path, open_regular, visible_text
from counterfoil.store.atomic import disk_errors, make_folder, temporary_folder, try_folder
from counterfoil.store.decoding import open_image

if TYPE_CHECKING:
    from counterfoil.evaluation.task import Task


def classification(name: str, **others: Any) -> dict[str, Any]:
    """Return a class as a label of FiftyOne."""
    return {"_cls": "Classification", "tags": [], "label": name, **others}


@dataclass(frozen=True)
class ModelAnswer:
    """A model's answer to an image."""

    label: dict[str, Any]
    """The answer as a label of FiftyOne."""
    right: bool
    columns: dict[str, Any]
    """What the table of failures says of the answer."""
    coco: Sequence[dict[str, Any]]
    """The answer as COCO has results, without image and model."""


@dataclass(frozen=True)
class Failure:
    """An image that some model gets wrong, its truth, and every model's answer, in the order of the
    models."""

    row: int
    folder: str
    """What the folder of the image is called."""
    truth: dict[str, Any]
    """The truth as a label of FiftyOne."""
    annotations: Sequence[dict[str, Any]]
    """The truth as COCO has it, without image."""
    answers: Sequence[ModelAnswer]


@dataclass(frozen=True)
class ExportedImage:
    """An image in the folder of failures."""

    path: str
    """Where it is in the folder."""
    size: tuple[int, int]
    """Width and height in pixels."""
    failure: Failure
    origin: Mapping[str, str | None]
    """Its shift, its key, the key of its base image, and its path among the evaluated images."""


@dataclass(frozen=True)
class ExportedFailures:
    """The images that models get wrong, from which an export makes the texts of files beside
    them."""

    name: str
    """What the images are called."""
    content: str
    """The sha256 of all evaluated images."""
    models: Mapping[str, str]
    """The names of the models, each with its name as a field: of letters, digits, `-` and `_`."""
    classes: Sequence[str]
    """The names of classes, categories or labels, in the order of their numbers."""
    images: Sequence[ExportedImage]

    @property
    def info(self) -> dict[str, Any]:
        """Return what the images are, of which models and classes."""
        models = {f"answer_{column}": model for model, column in self.models.items()}
        return {
            "description": f"Images of {self.name} that a model gets wrong",
            "content": self.content,
            "models": models,
            "classes": list(self.classes),
        }


def failures_frame(
    task: type[Task],
    predictions: Path,
    models: Sequence[str],
    model: str | None = None,
) -> Any:
    """Return a row per image and model that is wrong about it. See `Evaluation.failures`."""
    import pyarrow as pa

    if model is not None:
        if model not in models:
            raise refusal("unlisted-model.evaluated", "model", model, models)
        models = [model]
    try:
        with open_regular(predictions) as opened:
            parquet_bytes(opened)
        return failed_rows(task, predictions, models)
    except (OSError, pa.ArrowException) as error:
        raise refusal("unfit-results.predictions", predictions, error) from error


def failed_rows(task: type[Task], predictions: Any, models: Sequence[str]) -> Any:
    """Return a row per image and model that is wrong about it, the worst first, from a file of
    predictions.parquet or a buffer of its bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pq.read_schema(predictions).names
    tables = []
    for name in models:
        columns = {f"{column}.{name}": column for column in task.answer_columns}
        known = ("key", "path", *task.truth_columns, "shift", *columns)
        present = [column for column in known if column in names]
        table = pq.read_table(predictions, columns=present)
        names_of_task = [columns.get(column, column) for column in table.column_names]
        table = table.rename_columns(names_of_task)
        is_wrong = task.wrong(table.to_pandas())
        wrong = table.filter(pa.array(is_wrong, pa.bool_()))
        of_rows = pa.array([name] * wrong.num_rows, pa.string())
        tables.append(wrong.append_column("model", of_rows))
    shown = [column for column in task.answer_columns if column != "right"]
    ordered = ["model", "key", "path", *task.truth_columns, *shown, "shift"]
    joined = pa.concat_tables(tables).to_pandas()
    frame = joined.reindex(columns=ordered)
    return worst_rows_first(task, frame)


def worst_rows_first(task: type[Task], frame: Any) -> Any:
    """Return the rows of a DataFrame of failures in the order in which people read them; None
    stands for a missing path."""
    paths = frame["path"]
    frame["path"] = paths.astype(object).where(paths.notna(), None)
    return task.worst_first(frame).reset_index(drop=True)


_LONGEST_STEM = 100
_SUFFIXES = {"jpeg": "jpg", "mpo": "jpg"}  # Pillow's name of a format → the usual ending


def check_new_folder(folder: str | Path) -> Path:
    """Return the path of a new or empty folder. Raise UserError if it is not empty or cannot be
    made."""
    path = named_path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise refusal("existing-output.folder", path)
    try_folder(path)
    return path


def write_failure_folder(task: Task, models: Sequence[str], folder: str | Path) -> Path:
    """Write the readable images that at least one model gets wrong; return the folder, which
    appears whole."""
    target = check_new_folder(folder)
    make_folder(target.parent)
    subject = task.subject
    with disk_errors(target), temporary_folder(target) as temporary:
        folder = temporary / target.name
        failures = {}
        for failure in task.failures():
            key = subject.keys[failure.row]
            failures[key] = failure
        partners = task.partners()
        paths = subject.paths
        taken: set[str] = set()
        folders: dict[str, str] = {}
        stems: set[str] = set()
        images: list[ExportedImage] = []
        for key, encoded in subject.images(frozenset(failures)):
            report_progress("images of failures", len(images) + 1, len(failures))
            failure = failures[key]
            row = failure.row
            with open_image(encoded, photograph=True) as picture:
                size = picture.size
                suffix = str(picture.format).lower()
            name = failure.folder
            if name not in folders:
                folders[name] = file_stem(name, len(folders), taken)
            stem = file_stem(key, row, stems)
            ending = _SUFFIXES.get(suffix, suffix)
            path = f"images/{folders[name]}/{stem}.{ending}"
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encoded or b"")
            partner = partners[row]
            group = subject.groups[subject.shifts[row]]
            origin = {
                "shift": group.name,
                "key": key,
                "base_key": subject.keys[partner] if partner >= 0 else None,
                "source_path": None if paths is None else paths[row],
            }
            images.append(ExportedImage(path, size, failure, origin))
        folder.mkdir(exist_ok=True)
        fields: set[str] = set()
        columns = {}
        for index, name in enumerate(models):
            field = re.sub(r"\W+", "_", name)
            columns[name] = file_stem(field, index, fields)
        exported = ExportedFailures(
            subject.name,
            subject.content,
            columns,
            tuple(cls.name for cls in task.classes),
            images,
        )
        for export in EXPORTS.values():
            for name, text in export(exported).items():
                (folder / name).write_text(text, encoding="utf-8")
        folder.rename(target)  # replaces an empty folder
    return target


def csv_export(failures: ExportedFailures) -> dict[str, str]:
    """Write `failures.csv`, with a row for each image and model that is wrong about it."""
    lines = []
    for image in failures.images:
        for model, answer in zip(failures.models, image.failure.answers, strict=True):
            if not answer.right:
                line: dict[str, Any] = {"path": image.path, "model": model}
                line |= answer.columns
                line |= image.origin
                lines.append(line)
    columns = dict.fromkeys(("path", "model"))
    for line in lines:
        columns |= dict.fromkeys(line)
    text = csv_text(lines, tuple(columns))
    return {"failures.csv": text}


def coco_export(failures: ExportedFailures) -> dict[str, str]:
    """Write `coco.json`: images and annotations as COCO has them, and beside them the answers of
    all models."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for image in failures.images:
        failure = image.failure
        width, height = image.size
        facts = {
            "id": failure.row,
            "file_name": image.path,
            "width": width,
            "height": height,
            **image.origin,
        }
        images.append(facts)
        for annotation in failure.annotations:
            number = {"id": len(annotations), "image_id": failure.row}
            annotations.append({**number, **annotation})
        for model, answer in zip(failures.models, failure.answers, strict=True):
            for result in answer.coco:
                given = {"image_id": failure.row, "model": model, **result}
                given["right"] = answer.right
                answers.append(given)
    categories = []
    for label, name in enumerate(failures.classes):
        categories.append({"id": label, "name": name})
    document = {
        "info": failures.info,
        "categories": categories,
        "images": images,
        "annotations": annotations,
        "answers": answers,
    }
    return {"coco.json": _json(document)}


def fiftyone_export(failures: ExportedFailures) -> dict[str, str]:
    """Write FiftyOne's format without a database version: it infers fields from the samples."""
    samples = []
    for image in failures.images:
        sample: dict[str, Any] = {
            "filepath": image.path,
            "tags": [image.origin["shift"]],
            "ground_truth": image.failure.truth,
            **image.origin,
        }
        for column, answer in zip(failures.models.values(), image.failure.answers, strict=True):
            sample[f"answer_{column}"] = answer.label
            sample[f"right_{column}"] = answer.right
        samples.append(sample)
    metadata = {"media_type": "image", "info": failures.info}
    documents = {"metadata.json": metadata, "samples.json": {"samples": samples}}
    return {name: _json(document) for name, document in documents.items()}


Export: TypeAlias = Callable[[ExportedFailures], Mapping[str, str]]
EXPORTS: Registry[Export] = Registry(
    "counterfoil.exports",
    {"csv": csv_export, "coco": coco_export, "fiftyone": fiftyone_export},
    uncallable,
)


def _json(document: Any) -> str:
    return visible_text(json.dumps(document, ensure_ascii=False))


def file_stem(name: str, number: int, taken: set[str]) -> str:
    """Return a unique name for a file or field: its safe characters, and a number if needed."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")
    stem = safe[:_LONGEST_STEM] or f"{number}"
    while stem.lower() in taken:  # some file systems ignore case
        stem = f"{stem}_{number}"
    taken.add(stem.lower())
    return stem
