"""What pycocotools says of some boxes."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from counterfoil.arrays import Floats, Ints
from counterfoil.detection_stats import Detections, Objects
from detection_proof.sets import coco_rows, coco_set

# Where its twelve numbers have what COCO_MEASURES lists, by its order.
_MEASURES = (0, 1, 2, 3, 4, 5, 8)


@dataclass(frozen=True)
class Reference:
    """precision, recall: (categories, areas, thresholds). measures: in the order of COCO_MEASURES. NaN
    for its -1."""

    precision: Floats
    recall: Floats
    measures: Floats


def pycocotools_scores(
    objects: Objects, detections: Detections, images: int, categories: int
) -> Reference:
    """Score boxes by pycocotools."""
    evaluation = evaluated(objects, detections, images, categories)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.summarize()
    # -1 for all recalls, or for none
    precision = evaluation.eval["precision"][:, :, :, :, -1].mean(axis=1)
    recall = evaluation.eval["recall"][:, :, :, -1]
    measures = np.array(evaluation.stats)[list(_MEASURES)]
    precision, recall, measures = (
        np.where(part == -1, np.nan, part) for part in (precision, recall, measures)
    )
    return Reference(precision.transpose(1, 2, 0), recall.transpose(1, 2, 0), measures)


def evaluated(objects: Objects, detections: Detections, images: int, categories: int) -> Any:
    """Return an evaluation of pycocotools, matched and accumulated. It prints nothing here."""
    true = coco_rows(objects.image, objects.box, objects.category)
    for row, area, crowd in zip(true, objects.area.tolist(), objects.crowd.tolist(), strict=True):
        row |= {"area": area, "iscrowd": int(crowd)}
    detected = coco_rows(detections.image, detections.box, detections.category, detections.score)
    with contextlib.redirect_stdout(io.StringIO()):
        truth, answers = (coco_set(COCO, rows, images, categories) for rows in (true, detected))
        evaluation = COCOeval(truth, answers, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation


def resampled(evaluation: Any, images: Ints) -> None:
    """Accumulate an evaluation over drawn images, as a plain bootstrap does; the matches stay as
    they are."""
    whole = evaluation.evalImgs
    by_image = np.empty(len(whole), object)
    by_image[:] = whole
    evaluation.evalImgs = (
        by_image.reshape(-1, len(evaluation.params.imgIds))[:, images].ravel().tolist()
    )
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    evaluation.evalImgs = whole
