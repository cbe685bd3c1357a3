"""The images that models get wrong: as a table, and as a folder that FiftyOne and other tools open."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import csv_text
from counterfoil.errors import UserError
from counterfoil.foreign_tables import parquet_bytes
from counterfoil.progress import report
from counterfoil.recipe.names import did_you_mean
from counterfoil.regular_files import named_path, open_regular, visible
from counterfoil.store.atomic import disk_errors, make_folder, temporary_folder, try_folder
from counterfoil.store.decoding import open_image

if TYPE_CHECKING:
    from counterfoil.evaluation.task import Task


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
    """An image that some model gets wrong, its truth, and every model's answer, in the order of the models."""

    row: int
    folder: str
    """What the folder of the image is called."""
    truth: dict[str, Any]
    """The truth as a label of FiftyOne."""
    annotations: Sequence[dict[str, Any]]
    """The truth as COCO has it, without image."""
    answers: Sequence[ModelAnswer]


def failures_frame(task: type[Task], predictions: Path, models: Sequence[str], model: str | None = None) -> Any:
    """Return a row per image and model that is wrong about it. See `Evaluation.failures`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if model is not None and model not in models:
        raise UserError(
            f"model {model!r} was not evaluated{did_you_mean(model, models)}", f"Evaluated models: {', '.join(models)}."
        )
    try:
        with open_regular(predictions) as opened:
            parquet_bytes(opened)
        names = pq.read_schema(predictions).names
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{predictions} cannot be read: {error}", "Run the evaluation again to write it.") from error
    tables = []
    for name in [model] if model is not None else models:
        columns = {f"{column}.{name}": column for column in task.answer_columns}
        known = ("key", "path", *task.truth_columns, "shift", *columns)
        table = pq.read_table(predictions, columns=[column for column in known if column in names])
        table = table.rename_columns([columns.get(column, column) for column in table.column_names])
        wrong = table.filter(pa.array(task.wrong(table.to_pandas()), pa.bool_()))
        tables.append(wrong.append_column("model", pa.array([name] * wrong.num_rows, pa.string())))
    shown = [column for column in task.answer_columns if column != "right"]
    ordered = ["model", "key", "path", *task.truth_columns, *shown, "shift"]
    frame = pa.concat_tables(tables).to_pandas().reindex(columns=ordered)
    frame["path"] = frame["path"].astype(object).where(frame["path"].notna(), None)
    return task.worst_first(frame).reset_index(drop=True)


_LONGEST_STEM = 100
_SUFFIXES = {"jpeg": "jpg", "mpo": "jpg"}  # Pillow's name of a format → the usual ending


def check_new_folder(folder: str | Path) -> Path:
    """Return the path of a new or empty folder. Raise UserError if it is not empty or cannot be made."""
    path = named_path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} is not an empty folder", "Name a new one: existing files are kept.")
    try_folder(path)
    return path


def write_failure_folder(task: Task, models: Sequence[str], folder: str | Path) -> Path:
    """Write the readable images that at least one model gets wrong; return the folder, which appears whole."""
    target = check_new_folder(folder)
    make_folder(target.parent)
    with disk_errors(target), temporary_folder(target) as temporary:
        made = temporary / target.name
        _write(task, models, made)
        made.rename(target)  # replaces an empty folder
    return target


def _write(task: Task, models: Sequence[str], folder: Path) -> None:
    subject = task.subject
    failures = {subject.keys[failure.row]: failure for failure in task.failures()}
    partners = task.partners()
    taken: set[str] = set()
    folders: dict[str, str] = {}
    fields: set[str] = set()
    columns = [_stem(re.sub(r"\W+", "_", name), index, fields) for index, name in enumerate(models)]
    stems: set[str] = set()
    lines: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    coco: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "answers": []}
    for number, (key, encoded) in enumerate(subject.images(frozenset(failures)), start=1):
        report("images of failures", number, len(failures))
        failure = failures[key]
        row, shift = failure.row, subject.groups[subject.shifts[failure.row]].name
        with open_image(encoded, photograph=True) as picture:
            (width, height), suffix = picture.size, str(picture.format).lower()
        if failure.folder not in folders:
            folders[failure.folder] = _stem(failure.folder, len(folders), taken)
        path = f"images/{folders[failure.folder]}/{_stem(key, row, stems)}.{_SUFFIXES.get(suffix, suffix)}"
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded or b"")
        origin = {
            "shift": shift,
            "key": key,
            "base_key": subject.keys[partners[row]] if partners[row] >= 0 else None,
            "source_path": None if subject.paths is None else subject.paths[row],
        }
        sample = {"filepath": path, "tags": [shift], "ground_truth": failure.truth, **origin}
        coco["images"].append({"id": row, "file_name": path, "width": width, "height": height, **origin})
        for annotation in failure.annotations:
            coco["annotations"].append({"id": len(coco["annotations"]), "image_id": row, **annotation})
        for column, model, answer in zip(columns, models, failure.answers, strict=True):
            sample |= {f"answer_{column}": answer.label, f"right_{column}": answer.right}
            for result in answer.coco:
                coco["answers"].append({"image_id": row, "model": model, **result, "right": answer.right})
            if not answer.right:
                lines.append({"path": path, "model": model, **answer.columns, **origin})
        samples.append(sample)
    folder.mkdir(exist_ok=True)
    info = {
        "description": f"Images of {subject.name} that a model gets wrong",
        "content": subject.content,
        "models": dict(zip((f"answer_{column}" for column in columns), models, strict=True)),
        "classes": [cls.name for cls in task.classes],
    }
    categories = [{"id": label, "name": cls.name} for label, cls in enumerate(task.classes)]
    documents = {
        "coco.json": {"info": info, "categories": categories, **coco},
        # FiftyOne's format without a database version: it infers fields from the samples.
        "metadata.json": {"media_type": "image", "info": info},
        "samples.json": {"samples": samples},
    }
    for name, document in documents.items():
        (folder / name).write_text(visible(json.dumps(document, ensure_ascii=False)), encoding="utf-8")
    columns_of_lines = dict.fromkeys(("path", "model", *(name for line in lines for name in line)))
    (folder / "failures.csv").write_text(csv_text(lines, tuple(columns_of_lines)), encoding="utf-8")


def _stem(name: str, number: int, taken: set[str]) -> str:
    """Return a unique name for a file or field: its safe characters, and a number if needed."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_LONGEST_STEM] or f"{number}"
    while stem.lower() in taken:  # some file systems ignore case
        stem = f"{stem}_{number}"
    taken.add(stem.lower())
    return stem
