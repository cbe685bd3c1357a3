"""What pycocotools says of some boxes."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from counterfoil.detection_stats import Detections, Objects


@dataclass(frozen=True)
class Reference:
    """precision, recall: (categories, areas, thresholds), NaN for its -1. stats: its twelve numbers, NaN too."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    stats: NDArray[np.float64]


def pycocotools_scores(objects: Objects, detections: Detections, images: int, categories: int) -> Reference:
    """Score boxes by pycocotools, which prints nothing here."""
    true = [
        {"id": number + 1, "image_id": image, "bbox": box, "category_id": category, "area": area, "iscrowd": int(crowd)}
        for number, (image, box, category, area, crowd) in enumerate(
            zip(*(part.tolist() for part in _columns(objects, objects.area, objects.crowd)), strict=True)
        )
    ]
    # An id of 0 would count as no match.
    said = [
        {"id": number + 1, "image_id": image, "bbox": box, "category_id": category, "score": score}
        | {"area": box[2] * box[3], "iscrowd": 0}
        for number, (image, box, category, score) in enumerate(
            zip(*(part.tolist() for part in _columns(detections, detections.score)), strict=True)
        )
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(_coco(true, images, categories), _coco(said, images, categories), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, :, -1].mean(axis=1)  # -1 for all recalls, or for none
    recall = evaluation.eval["recall"][:, :, :, -1]
    stats = np.array(evaluation.stats)
    precision, recall, stats = (np.where(part == -1, np.nan, part) for part in (precision, recall, stats))
    return Reference(precision.transpose(1, 2, 0), recall.transpose(1, 2, 0), stats)


def _columns(boxes: Objects | Detections, *more: NDArray) -> tuple[NDArray, ...]:
    return boxes.image, boxes.box, boxes.category, *more


def _coco(boxes: list[dict[str, Any]], images: int, categories: int) -> Any:
    coco: Any = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in range(images)],
        "categories": [{"id": category} for category in range(categories)],
        "annotations": boxes,
    }
    coco.createIndex()
    return coco
