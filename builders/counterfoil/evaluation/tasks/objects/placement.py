"""Recognise boxes that do not fit their images, as boxes of another form or of another image size
do."""

from __future__ import annotations

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject

# A box is outside if it leaves its image by more than this share of the image's side.
_BEYOND = 0.1
_MOST_OUTSIDE = 0.1
# Fewer boxes do not show that all of them are too small, or are cut.
_FEWEST = 20


def misplaced_detections(
    subject: DetectionSubject,
    row: Ints,
    box: Floats,
    score: Floats,
) -> tuple[bool, str]:
    """Return whether most boxes are outside, and a sentence on them and the likely cause; empty if
    the boxes fit.

    Only the better half of the detections counts, because detections of low scores may be anywhere.
    The other arguments are the fields of `ModelDetections`.
    """
    number = np.full(len(subject.dataset.keys), -1, np.int64)
    number[subject.rows] = np.arange(subject.images)
    chosen = number[row] >= 0
    if not chosen.any():
        return False, ""
    chosen &= score >= np.median(score[chosen])
    box = box[chosen]
    if box.max() <= 1:
        return True, "no number of its boxes is above 1, so they are no pixels"
    sides = subject.sides[number[row[chosen]]]
    start = box[:, :2] / sides
    extent = box[:, 2:] / sides
    end = start + extent
    outside = _outside(start, end)
    if outside.mean() > _MOST_OUTSIDE:
        corners = (extent >= start).all(axis=1) & (extent <= 1 + _BEYOND).all(axis=1)
        cause = "pixels of images of another size, as before generator.size scaled them"
        if corners.mean() > 0.99:
            cause = "corners [left, top, right, bottom]"
        seen = (
            f"{int(outside.sum()):,} of {len(box):,} boxes with the better scores leave their image"
        )
        return bool(outside.mean() > 0.5), f"{seen}: they are probably {cause}"
    reach = float(np.quantile(end.max(axis=1), 0.99))
    if len(box) >= _FEWEST and reach < 0.7:
        return False, (
            f"boxes lie in the upper left {reach:.0%} of their images' sides: they may be pixels of"
            " smaller images, such as the model's input, or shares"
        )
    return False, ""


def misplaced_objects(subject: DetectionSubject) -> str:
    """Return a sentence on a dataset's boxes and the likely cause if they seem to be of another
    form; else empty.

    Boxes of another form leave their image, mostly at the right and lower edges.
    """
    box = subject.truth.box
    if not len(box):
        return ""
    if box.max() <= 1:
        return (
            "No box of the dataset is larger than a pixel: they may be shares, which are"
            " source.boxes: yolo."
        )
    sides = subject.sides[subject.truth.image]
    start = box[:, :2]
    end = start + box[:, 2:]
    outside = _outside(start / sides, end / sides)
    if len(box) < _FEWEST or outside.mean() <= _MOST_OUTSIDE:
        return ""
    return (
        f"{int(outside.sum()):,} of the dataset's {len(box):,} boxes leave their image by far: the"
        " build may have read them in another form than they have (source.boxes: coco, yolo or"
        " pascal), or as pixels of another image size."
    )


def _outside(start: Floats, end: Floats) -> Bools:
    """Return which boxes leave their image by far. start, end: corners as shares of the image's
    sides, (n, 2)."""
    return np.any((start < -_BEYOND) | (end > 1 + _BEYOND), axis=1)
