"""Ask a detector that runs here about every image.

The answers of a model whose weights are known are kept in parts. The key of a part covers the data, the weights, the
preparation of images and the versions of libraries. A stopped run continues at the first part without answers.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.tasks.objects.categories import CategoryMap, map_names
from counterfoil.evaluation.tasks.objects.detections import ModelDetections
from counterfoil.evaluation.tasks.objects.placement import misplaced_detections
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.foreign_tables import parquet_bytes
from counterfoil.models.detectors import Detector
from counterfoil.models.detectors.detector import refuse_unnamed_labels
from counterfoil.prediction.predictions import cache_path, parts_folder
from counterfoil.progress import report
from counterfoil.regular_files import open_regular
from counterfoil.report.words import named
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import readable_image

# The number of images in a part. After a kill, at most one part is asked again.
PART_ROWS = 256
_FORMAT = 1  # raise it when the meaning of a column changes
_KEY = b"counterfoil_key"
_LIBRARIES = ("torch", "transformers", "timm", "pillow", "onnxruntime")

# Columns of equal length, with one row for each detection: row (of the image), left, top, right, bottom, score, label.
DetectionColumns = dict[str, NDArray[Any]]
_SIDES = ("left", "top", "right", "bottom")


@dataclass(frozen=True)
class DetectionCache:
    """The kept answers of one detector to one dataset: one file for each part, in a folder of their own."""

    folder: Path
    key: str

    @classmethod
    def of(cls, dataset: OpenDataset, detector: Detector, device: str) -> DetectionCache:
        """Return the cache of a detector's answers in the workplace of a dataset."""
        versions = {
            name: importlib.metadata.version(name)
            for name in _LIBRARIES
            if importlib.util.find_spec("PIL" if name == "pillow" else name)
        }
        parts = {
            "format": _FORMAT,
            "data": dataset.content,
            "weights": detector.sha256,
            "input": detector.input_key,
            "device": device.partition(":")[0],
            "versions": versions,
        }
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return cls(parts_folder(cache_path(dataset.workplace / "detections", detector.name, key)), key)

    def load(self, rows: tuple[int, ...]) -> DetectionColumns | None:
        """Return the answers to a part of the images; None if they are missing or damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with open_regular(self._path(rows)) as file:
                parquet_bytes(file)
                table = pq.read_table(file)
            if (table.schema.metadata or {}).get(_KEY) != self.key.encode():
                return None
            answers = {name: table[name].to_numpy() for name in ("row", "label", *_SIDES, "score")}
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        kinds = "".join(column.dtype.kind for column in answers.values())
        sound = kinds == "iifffff" and np.isin(answers["row"], rows).all()
        return answers if sound and all(np.isfinite(column).all() for column in answers.values()) else None

    def save(self, rows: tuple[int, ...], answers: DetectionColumns) -> None:
        """Keep the answers to a part of the images."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table(answers).replace_schema_metadata({_KEY: self.key.encode()}), buffer)
        write_atomically(self._path(rows), buffer.getvalue().to_pybytes())

    def _path(self, rows: tuple[int, ...]) -> Path:
        chosen = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        return self.folder / f"{rows[0]:010d}-{chosen}.parquet"


def run_detector(
    name: str,
    detector: Callable[[list[Any]], Sequence[Mapping[str, Any]]],
    subject: DetectionSubject,
    names: Sequence[str] | None,
    batch_size: int,
    cache: DetectionCache | None = None,
) -> ModelDetections:
    """Ask a detector about every image.

    detector: takes a list of PIL images, and returns for each image its `boxes` (corners in pixels), `scores` and
    `labels`, as torchvision's detectors do. names: the name of each label number; None: the detector's `label_names`.
    Raise UserError if there are no names, or if an answer has another form.
    """
    names = getattr(detector, "label_names", None) if names is None else names
    if names is None:
        raise UserError(
            f"{name}: it does not say what its labels are called",
            'Give it a list `label_names`, by number, or pass class_order={"NAME": [names]}.',
        )
    names = [str(label) for label in names]
    categories = map_names(names, subject.categories, name)
    keys = subject.dataset.keys
    chosen = np.sort(subject.rows, axis=None).tolist()
    parts = [tuple(chosen[start : start + PART_ROWS]) for start in range(0, len(chosen), PART_ROWS)]
    answers = {rows: None if cache is None else cache.load(rows) for rows in parts}
    missing = [rows for rows in parts if answers[rows] is None]
    images = iter(subject.dataset.images(frozenset(keys[row] for rows in missing for row in rows)))
    for number, rows in enumerate(parts):
        if rows not in missing:
            continue
        report(f"detecting with {name}", number * PART_ROWS, len(chosen))
        encoded = (content for _, content in islice(images, len(rows)))
        part = _ask(name, detector, subject.dataset, rows, encoded, batch_size)
        answers[rows] = part
        if cache is not None:
            cache.save(rows, part)
    columns = {
        column: np.concatenate([part[column] for part in answers.values() if part is not None])
        for column in ("row", *_SIDES, "score", "label")
    }
    refuse_unnamed_labels(name, columns["label"], names, "label_names")
    shifted = _first_label_note(columns["label"], names, categories)
    known = np.isin(columns["label"], list(categories.place))
    columns = {column: values[known] for column, values in columns.items()}
    left, top, right, bottom = (columns[side].astype(np.float64) for side in _SIDES)
    boxes = np.stack([left, top, np.maximum(0.0, right - left), np.maximum(0.0, bottom - top)], axis=1)
    scores = columns["score"].astype(np.float64)
    _, misplaced = misplaced_detections(subject, columns["row"], boxes, scores)
    return ModelDetections(
        name,
        columns["row"],
        boxes,
        np.array([categories.place[label] for label in columns["label"].tolist()], np.int64),
        scores,
        "; ".join(filter(None, (categories.matched, shifted, misplaced))),
        getattr(detector, "sha256", ""),
        complete=getattr(detector, "complete", False),
    )


def _first_label_note(labels: NDArray[Any], names: Sequence[str], categories: CategoryMap) -> str:
    """Return a sentence if label 0 is a category of the dataset and no box has it; else empty."""
    if not len(labels) or 0 not in categories.place or labels.min() == 0:
        return ""
    return (
        f"no box has label 0, '{named(names[0])}': if its labels count from 1, label_names lacks a first name that"
        " stands for none"
    )


def _ask(
    name: str,
    detector: Callable[[list[Any]], Sequence[Mapping[str, Any]]],
    dataset: OpenDataset,
    rows: tuple[int, ...],
    encoded: Iterable[bytes | None],
    batch_size: int,
) -> DetectionColumns:
    """Return a detector's answers to the images of these rows, in batches."""
    pictures = []
    for row, content in zip(rows, encoded, strict=True):
        picture = readable_image(content)
        if picture is None:
            raise RunFailure(f"{dataset.directory}: {dataset.keys[row]} has no image that decodes")
        pictures.append(picture)
    columns = []
    for start in range(0, len(pictures), batch_size):
        batch = pictures[start : start + batch_size]
        answers = list(detector(batch))
        if len(answers) != len(batch):
            raise UserError(f"{name}: {len(answers)} answers to {len(batch)} images, expected one an image")
        columns += [_columns(answer, row, name) for row, answer in zip(rows[start:], answers, strict=False)]
    return {column: np.concatenate([answer[column] for answer in columns]) for column in columns[0]}


def _columns(answer: Any, row: int, name: str) -> DetectionColumns:
    """Return one image's answer as columns."""
    try:
        boxes = _floats(answer["boxes"]).reshape(-1, 4)
        scores, labels = _floats(answer["scores"]), _whole(_array(answer["labels"]))
        if not len(boxes) == len(scores) == len(labels):
            raise ValueError(f"{len(boxes)} boxes, {len(scores)} scores and {len(labels)} labels")
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError("a box or a score that is not finite")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{name}: an answer is not of torchvision's form: {error}",
            "Expected a mapping of boxes [n, 4] (corners in pixels), scores [n] and labels [n] for each image.",
        ) from error
    sides = dict(zip(_SIDES, boxes.T, strict=True))
    return {"row": np.full(len(scores), row, np.int64), **sides, "score": scores, "label": labels}


def _floats(values: Any) -> NDArray[Any]:
    """Return numbers as floats. float32 stays float32, because that halves the size of the kept files."""
    array = _array(values)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _whole(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return labels as integers. ValueError for a fraction, which no conversion may round."""
    if labels.dtype.kind == "f" and not (labels == np.floor(labels)).all():
        raise ValueError("a label that is no whole number")
    return labels.astype(np.int64)


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
