"""Name the errors of a detector as TIDE does (Bolya and others 2020): why each false box is false,
and what is missed.

A false box is one that counts, from a score on, and finds no object. The first of these that fits
is its kind:

- place: its overlap with an object of its category is .1 to .5;
- class: its overlap with an object of another category is .5 or more;
- double: it overlaps an object of its category by .5 or more, which a box of a higher score found;
- background: its overlap with every object is at most .1;
- both: the rest, .1 to .5 with an object of another category.

An object is missed if no box finds it, and no box of the kinds place and class is about it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.detection_stats import THRESHOLDS, Detections, Matches, Objects, box_iou

KINDS = ("class", "place", "both", "double", "background")
MISSED = "missed"
CLASS, PLACE, BOTH, DOUBLE, BACKGROUND = range(len(KINDS))
_FOREGROUND = float(THRESHOLDS[0])
_BACKGROUND = 0.1


@dataclass(frozen=True)
class ErrorKinds:
    """The errors of a detector in some images: d detections of `Matches`, o objects."""

    kind: Ints
    """(d,) index in `KINDS` of each false box, -1 for any other."""
    about: Ints
    """(d,) the row in `Objects` that an error of place or class is about, or -1."""
    missed: Bools
    """(o,) whether an object is missed."""

    def counts(self) -> dict[str, int]:
        """Return how many errors there are of each kind, in the order of `KINDS`, and the missed
        objects."""
        kinds = self.kind[self.kind >= 0]
        of_kinds = np.bincount(kinds, minlength=len(KINDS))
        counts = dict(zip(KINDS, of_kinds.tolist(), strict=True))
        counts[MISSED] = int(self.missed.sum())
        return counts

    def confusions(self, objects: Objects, matches: Matches) -> Ints:
        """Return how often an object of one category is taken for another, (true, detected)."""
        categories = matches.categories
        table = np.zeros((categories, categories), np.int64)
        taken = self.kind == CLASS
        true = objects.category[self.about[taken]]
        detected = matches.category[taken]
        np.add.at(table, (true, detected), 1)
        return table


def error_kinds(
    objects: Objects,
    detections: Detections,
    matches: Matches,
    score: float,
) -> ErrorKinds:
    """Name the errors among the detections of at least this score. A box that meets a crowd is no
    error."""
    counted = matches.counting(score)
    true = counted & matches.matched[0, 0]
    used = np.zeros(len(objects.image), np.bool_)
    used[matches.found[true]] = True
    kind = np.full(len(counted), -1, np.int64)
    about = kind.copy()
    false = np.flatnonzero(counted & ~true)
    kind[false] = BACKGROUND
    by_image = np.argsort(matches.image[false], kind="stable")
    false = false[by_image]
    images, starts = np.unique(matches.image[false], return_index=True)
    parts = np.split(false, starts[1:])
    for image, of_image in zip(images, parts, strict=False):
        first, last = np.searchsorted(objects.image, [image, image + 1])
        alone = ~objects.crowd[first:last]
        shown = first + np.flatnonzero(alone)
        if not len(shown):
            continue
        boxes = detections.box[matches.row[of_image]]
        true_boxes = objects.box[shown]
        pairs = (len(boxes), len(shown))
        first_boxes = np.repeat(boxes, len(shown), axis=0)
        second_boxes = np.tile(true_boxes, (len(boxes), 1))
        no_crowd = np.zeros(len(first_boxes), np.bool_)
        overlaps = box_iou(first_boxes, second_boxes, no_crowd)
        iou = overlaps.reshape(pairs)
        category = matches.category[of_image]
        same = category[:, None] == objects.category[shown]
        of_category = np.where(same, iou, 0.0)
        of_others = np.where(same, 0.0, iou)
        of_found = np.where(used[shown], of_category, 0.0)
        best = of_category.max(axis=1)
        meets_in_part = (best >= _BACKGROUND) & (best < _FOREGROUND)
        cases = {
            PLACE: meets_in_part,
            CLASS: of_others.max(axis=1) >= _FOREGROUND,
            DOUBLE: of_found.max(axis=1) >= _FOREGROUND,
            BACKGROUND: iou.max(axis=1) <= _BACKGROUND,
        }
        kinds = np.select(list(cases.values()), list(cases), BOTH)
        kind[of_image] = kinds
        for meant, overlap in ((PLACE, of_category), (CLASS, of_others)):
            of_kind = kinds == meant
            nearest = overlap[of_kind].argmax(axis=1)
            boxes_of_kind = of_image[of_kind]
            about[boxes_of_kind] = shown[nearest]
    touched = np.zeros_like(used)
    known = about[about >= 0]
    touched[known] = True
    missed = matches.counted[0] & ~used & ~touched
    return ErrorKinds(kind, about, missed)
