"""Ask a detector that runs here about every image, once for each content, weights, preparation and
set of libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data.labelled_images import rows_of
from counterfoil.errors import UserError
from counterfoil.evaluation.tasks.objects.categories import CategoryMap, map_names
from counterfoil.evaluation.tasks.objects.detections import ModelDetections
from counterfoil.evaluation.tasks.objects.placement import misplaced_detections
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.models.detectors import Detector
from counterfoil.models.detectors.detector import refuse_unnamed_labels
from counterfoil.prediction.answer_cache import AnswerCache, Columns, answers_key
from counterfoil.prediction.asking import AskedFunction, Pass
from counterfoil.report.words import safe_text

_SIDES = ("left", "top", "right", "bottom")


def are_detections(columns: Columns, rows: range) -> bool:
    """Return whether columns can be the detections in these rows of the images."""
    kinds = {name: column.dtype.kind for name, column in columns.items()}
    if kinds != {"row": "i", "label": "i", **dict.fromkeys((*_SIDES, "score"), "f")}:
        return False
    inside = bool(np.isin(columns["row"], rows).all())
    return inside and all(np.isfinite(values).all() for values in columns.values())


def run_detector(
    name: str,
    detector: Callable[[list[Any]], Sequence[Mapping[str, Any]]],
    subject: DetectionSubject,
    names: Sequence[str] | None,
    batch_size: int,
    device: str = "cpu",
) -> ModelDetections:
    """Ask a detector about every image.

    detector: takes a list of PIL images, and returns for each image its `boxes` (corners in
    pixels), `scores` and `labels`, as torchvision's detectors do. names: the name of each label
    number; None: the detector's `label_names`. Raise UserError if there are no names, or if an
    answer has another form.
    """
    names = getattr(detector, "label_names", None) if names is None else names
    if names is None:
        raise UserError(
            f"{name}: it does not say what its labels are called",
            'Give it a list `label_names`, by number, or pass class_order={"NAME": [names]}.',
        )
    names = [str(label) for label in names]
    categories = map_names(names, subject.categories, name)
    chosen = np.unique(subject.rows)
    images = rows_of(subject.dataset.labelled(), chosen)
    cache = None
    if isinstance(detector, Detector):
        key = answers_key(
            device, data=images.content, weights=detector.sha256, input=detector.input_key
        )
        folder = subject.dataset.workplace / "detections"
        cache = AnswerCache(folder, name, key, len(images), are_detections)
    answering = AskedFunction(
        name, detector, images, lambda answer, row: _columns(answer, row, name)
    )
    asking = Pass(images, f"detecting with {name}", batch_size, device)
    columns = asking.answers_of(answering, cache)
    refuse_unnamed_labels(name, columns["label"], names, "label_names")
    shifted = _first_label_note(columns["label"], names, categories)
    known = np.isin(columns["label"], list(categories.index_of))
    columns = {column: values[known] for column, values in columns.items()}
    rows = chosen[columns["row"]]
    corners = np.stack([columns[side] for side in _SIDES], axis=1).astype(np.float64)
    boxes = corners.copy()
    boxes[:, 2:] = np.maximum(0.0, corners[:, 2:] - corners[:, :2])
    scores = columns["score"].astype(np.float64)
    _, misplaced = misplaced_detections(subject, rows, boxes, scores)
    indices = [categories.index_of[label] for label in columns["label"].tolist()]
    return ModelDetections(
        name=name,
        row=rows,
        box=boxes,
        category=np.array(indices, np.int64),
        score=scores,
        matched="; ".join(filter(None, (categories.matched, shifted, misplaced))),
        sha256=getattr(detector, "sha256", ""),
        complete=getattr(detector, "complete", False),
    )


def _first_label_note(
    labels: NDArray[Any],
    names: Sequence[str],
    categories: CategoryMap,
) -> str:
    """Return a sentence if label 0 is a category of the dataset and no box has it; else empty."""
    if not len(labels) or 0 not in categories.index_of or labels.min() == 0:
        return ""
    return (
        f"no box has label 0, '{safe_text(names[0])}': if its labels count from 1, label_names lacks a"
        " first name that stands for none"
    )


def _columns(
    answer: Any,
    row: int,
    name: str,
) -> Columns:
    """Return one image's answer as columns."""
    try:
        boxes = _floats(answer["boxes"]).reshape(-1, 4)
        scores = _floats(answer["scores"])
        labels = _array(answer["labels"])
        if not len(boxes) == len(scores) == len(labels):
            raise ValueError(f"{len(boxes)} boxes, {len(scores)} scores and {len(labels)} labels")
        if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
            raise ValueError("a box or a score that is not finite")
        if (labels % 1 != 0).any():
            raise ValueError("a label that is no whole number")
        labels = labels.astype(np.int64)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{name}: an answer is not of torchvision's form: {error}",
            "Expected a mapping of boxes [n, 4] (corners in pixels), scores [n] and labels [n] for"
            " each image.",
        ) from error
    sides = dict(zip(_SIDES, boxes.T, strict=True))
    return {
        "row": np.full(len(scores), row, np.int64),
        **sides,
        "score": scores,
        "label": labels,
    }


def _floats(values: Any) -> NDArray[Any]:
    """Return numbers as floats. float32 stays float32, because that halves the size of the kept
    files."""
    array = _array(values)
    return array if array.dtype == np.float32 else array.astype(np.float64)


def _array(values: Any) -> NDArray[Any]:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)
