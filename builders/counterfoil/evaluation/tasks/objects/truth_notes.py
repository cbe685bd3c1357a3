"""Notes on the true objects that change a number: copies, boxes beyond the edge, ids, sizes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterfoil.evaluation.tasks.objects.placement import misplaced_objects
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.report.words import counted


def truth_notes(subject: DetectionSubject) -> Iterator[str]:
    """Yield sentences on copies, on boxes at or beyond the edge, on ids and on sizes."""
    truth = subject.truth
    if misplaced := misplaced_objects(subject):
        yield misplaced
    each = truth.box[~truth.crowd]
    image, category = truth.image[~truth.crowd], truth.category[~truth.crowd]
    if not len(each):
        return
    total = counted(len(each), "object")
    different = len(np.unique(np.column_stack([image, category, each]), axis=0))
    if copies := len(each) - different:
        yield (
            f"{copies:,} of {total} are copies: the same box and category twice in one image. Each counts, as with"
            " pycocotools, so one detection leaves the copy missed; Ultralytics drops copies."
        )
    sides = subject.sides[image]
    start, end = each[:, :2], each[:, :2] + each[:, 2:]
    empty = (np.minimum(end, sides) <= np.maximum(start, 0)).any(axis=1)
    leaving = ((start < -1) | (end > sides + 1)).any(axis=1) & ~empty
    if empty.any():
        yield (
            f"{int(empty.sum()):,} of {total} have no area in their image. They count, as with pycocotools, though a"
            " detector can hardly find them."
        )
    if leaving.any():
        yield (
            f"{int(leaving.sum()):,} of {total} leave their image. Neither their boxes nor detections are cut at the"
            " edge, as with pycocotools: a detector that cuts its own boxes loses overlap there."
        )
    ids = [number for row in subject.rows[0].tolist() for number in subject.objects[row]["id"]]
    # Numbers that count the objects of each image are no ids.
    if ids.count(0) == 1 and len(set(ids)) == len(ids) > 1 and len(np.unique(image)) > 1:
        yield (
            "An object has the annotation id 0. In the file that it comes from, pycocotools counts it as missed (its"
            " issue 332); here it is matched like any other."
        )
    shortest = subject.dataset.recipe.generator.size
    reduced = 0 if shortest is None else int((subject.sides.min(axis=1) == shortest).sum())
    if reduced:
        yield (
            f"{counted(reduced, 'image')} of {subject.images:,} were reduced to a shorter side of {shortest} pixels."
            " Small, medium and large are sizes in the reduced images, so AP by size is not that of the originals."
        )
