"""Notes on what changes a number.

Of a detector: answers that were cut at a score, detections beyond 100, boxes that do not fit their
images or fit objects in another form, as boxes of another form or of another image size do, and
categories in another order. Of the true objects: copies, boxes beyond the edge, ids and sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.detection_stats import (
    MOST_DETECTIONS,
    THRESHOLDS,
    Detections,
    Matches,
    Objects,
    box_iou,
)
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.report.words import (
    format_count,
    format_list,
    format_number,
    format_percent,
    in_words,
)

# A box is outside if it leaves its image by more than this share of the image's side.
_BEYOND = 0.1
_MOST_OUTSIDE = 0.1
# Fewer boxes do not show that all of them are too small, or are cut.
_FEWEST = 20
# The share of boxes that follow a rule of labels in another order.
_BY_RULE = 0.8
# Boxes that fit in another form in as many images fit by no chance.
_FEWEST_IMAGES = 5


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
    image = subject.number_of[row]
    chosen = image >= 0
    if not chosen.any():
        return False, ""
    chosen &= score >= np.median(score[chosen])
    box = box[chosen]
    if box.max() <= 1:
        return True, "no number of its boxes is above 1, so they are no pixels"
    sides = subject.sides[image[chosen]]
    start = box[:, :2] / sides
    extent = box[:, 2:] / sides
    end = start + extent
    outside = _outside(start, end)
    if outside.mean() > _MOST_OUTSIDE:
        corners = (extent >= start) & (extent <= 1 + _BEYOND)
        all_corners = corners.all(axis=1)
        cause = "pixels of images of another size, as before generator.size scaled them"
        if all_corners.mean() > 0.99:
            cause = "corners [left, top, right, bottom]"
        seen = (
            f"{int(outside.sum()):,} of {len(box):,} boxes with the better scores leave their image"
        )
        return bool(outside.mean() > 0.5), f"{seen}: they are probably {cause}"
    farthest = end.max(axis=1)
    reach = float(np.quantile(farthest, 0.99))
    if len(box) >= _FEWEST and reach < 0.7:
        return False, (
            f"boxes lie in the upper left {reach:.0%} of their images' sides: they may be pixels of"
            " smaller images, such as the model's input, or shares"
        )
    return False, ""


@dataclass(frozen=True)
class BestBoxes:
    """The best detection of each image of the first group that has objects, and these objects."""

    subject: DetectionSubject
    chosen: Ints
    """(n,) the places of the detections."""
    starts: Ints
    """(n,) where the pairs of each detection begin."""
    detection: Ints
    """The detection of each pair, by its place in `chosen`."""
    thing: Ints
    """The row in `Objects` of each pair."""

    @classmethod
    def of(cls, subject: DetectionSubject, row: Ints, score: Floats) -> BestBoxes:
        truth = subject.truth
        image = subject.number_of[row]
        of_base = subject.dataset.shifts[row] == 0
        first = np.flatnonzero(of_base & (image >= 0))
        order = np.lexsort((-score[first], image[first]))
        best_first = first[order]
        of_images, places = np.unique(image[best_first], return_index=True)
        low = np.searchsorted(truth.image, of_images)
        counts = np.searchsorted(truth.image, of_images, side="right") - low
        shown = counts > 0
        low = low[shown]
        counts = counts[shown]
        starts = np.cumsum(counts) - counts
        detection = np.repeat(np.arange(len(counts)), counts)
        thing = np.arange(len(detection))
        thing += np.repeat(low - starts, counts)
        return cls(subject, best_first[places[shown]], starts, detection, thing)

    def overlaps(self, box: Floats) -> Bools:
        """Return for each pair whether the detection lies on the object. box: of all detections."""
        boxes = box[self.chosen][self.detection]
        objects = self.subject.truth.box[self.thing]
        no_crowd = np.zeros(len(boxes), np.bool_)
        return box_iou(boxes, objects, no_crowd) >= THRESHOLDS[0]

    def hits(self, box: Floats) -> int:
        """Return how many detections lie on an object."""
        on_objects = np.logical_or.reduceat(self.overlaps(box), self.starts)
        return int(on_objects.sum())

    def other_form(self, numbers: Floats, box: Floats) -> str:
        """Return a sentence if the best boxes lie on objects only if their numbers are read in another
        form; else empty.

        numbers: the four numbers of each box as they were given. box: [x, y, width, height] as read.
        """
        images = len(self.chosen)
        if images < _FEWEST_IMAGES:
            return ""
        corners = numbers.copy()
        corners[:, 2:] -= numbers[:, :2]
        corners[:, 2:] = np.maximum(0.0, corners[:, 2:])
        centres = numbers.copy()
        centres[:, :2] -= numbers[:, 2:] / 2
        y_first = [1, 0, 3, 2]
        readings = {
            "[x, y, width, height]": numbers,
            "[centre x, centre y, width, height]": centres,
            "corners [left, top, right, bottom]": corners,
            "corners [top, left, bottom, right]": corners[:, y_first],
            "[y, x, height, width]": numbers[:, y_first],
        }
        hits = {}
        for words, boxes in readings.items():
            hits[words] = self.hits(boxes)
        as_read = self.hits(box)
        words = max(hits, key=lambda each: hits[each])
        if 2 * hits[words] < images or hits[words] <= 2 * as_read:
            return ""
        return (
            f"the best box lies on an object in {as_read:,} of {images:,} images, and in"
            f" {hits[words]:,} if boxes are read as {words}: they are probably that, unless"
            " the dataset's boxes are wrong"
        )

    def other_order(self, box: Floats, category: Ints) -> str:
        """Return a sentence if the best boxes lie on objects of other categories by one rule, as those
        of labels in another order do; else empty."""
        on_objects = self.overlaps(box)
        detection = self.detection[on_objects]
        named = category[self.chosen][detection]
        true = self.subject.truth.category[self.thing[on_objects]]
        # Of several objects under a box, one of its category comes first.
        order = np.lexsort((true != named, detection))
        _, firsts = np.unique(detection[order], return_index=True)
        pairs: dict[int, Counter[int]] = {}
        for index in order[firsts].tolist():
            of_named = pairs.setdefault(int(named[index]), Counter())
            of_named[int(true[index])] += 1
        rule: dict[int, int] = {}
        total = explained = wrong = 0
        for label, of_label in pairs.items():
            boxes = of_label.total()
            # A category of one or two boxes follows any rule.
            if boxes < 3:
                continue
            (rule[label], most), *_ = of_label.most_common(1)
            total += boxes
            explained += most
            wrong += boxes - of_label[label]
        one_rule = len(set(rule.values())) == len(rule) > 1
        if total < _FEWEST_DETECTIONS or not one_rule:
            return ""
        if 2 * wrong < total or explained < _BY_RULE * total:
            return ""
        names = self.subject.categories
        swaps = []
        for label, other in rule.items():
            if label != other:
                swaps.append(f"{names[label]} on {names[other]}")
        return (
            f"{wrong:,} of {total:,} best boxes on an object name another category, by one rule"
            f" ({format_list(swaps, _MOST_NAMED)}): labels are probably in another order"
        )


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
    outside = (start < -_BEYOND) | (end > 1 + _BEYOND)
    return np.any(outside, axis=1)


# Programs that keep all answers have some below this score. The usual cuts are .05 (torchvision)
# and .25 (Ultralytics).
_CUT_FROM = 0.01
_FEWEST_DETECTIONS = 10
_MOST_NAMED = 3


def cut_sentence(names: Sequence[str], groups: Sequence[tuple[Detections, Matches]]) -> str:
    """Return a sentence if answers below a score seem to be cut and objects are missed, so that AP
    is too low.

    names: of the groups, the base first. groups: a detector's detections and matches. Empty if
    every object is found, because then answers of lower scores cannot raise AP.
    """
    lowest = {}
    highest = 1.0
    for name, (detections, matches) in zip(names, groups, strict=True):
        score = detections.score
        if len(score):
            highest = max(highest, float(score.max()))
        if len(score) >= _FEWEST_DETECTIONS and _misses(matches):
            lowest[name] = float(score.min())
    least = _CUT_FROM * highest
    cut = {name: score for name, score in lowest.items() if score >= least}
    if not cut:
        return ""
    where = ""
    if len(cut) < len(lowest):
        groups_cut = list(map(in_words, cut))
        where = f" on {format_list(groups_cut, _MOST_NAMED)}"
    return (
        f"the lowest score{where} is {format_number(min(cut.values()))}: if answers below it were left"
        f" out, AP and recall{' there' if where else ''} are lower bounds. Ask for all answers,"
        " down to a score of .001"
    )


def _misses(matches: Matches) -> bool:
    """Return whether an object that counts is not found at some IoU threshold, although COCO counts
    enough boxes."""
    hit = matches.matched[0] & ~matches.ignored[0]
    hits = hit.sum(axis=1)
    counting = matches.counted[0]
    category = matches.object_category[counting]
    cell = matches.object_image[counting] * matches.categories + category
    _, objects = np.unique(cell, return_counts=True)
    reachable = np.minimum(objects, MOST_DETECTIONS).sum()
    return bool((hits < reachable).any())


def crowded_sentence(
    truth: Objects,
    images: int,
    categories: Sequence[str],
) -> str:
    """Return a sentence if images have more objects of a category than COCO counts detections; else
    empty."""
    counting = ~truth.crowd
    objects = np.zeros((images, len(categories)), np.int64)
    cells = truth.image[counting], truth.category[counting]
    np.add.at(objects, cells, 1)
    crowded = (objects > MOST_DETECTIONS).any(axis=1).sum()
    if not crowded:
        return ""
    reachable = np.minimum(objects, MOST_DETECTIONS).sum(axis=0)
    totals = objects.sum(axis=0)
    limited = np.flatnonzero(reachable < totals)
    recall = reachable[limited] / totals[limited]
    subject = format_count(int(crowded), "image has", "images have")
    bounds = []
    for index in np.argsort(recall, kind="stable").tolist():
        bound = format_percent(float(recall[index]))
        bounds.append(f"{bound} ({categories[limited[index]]})")
    return (
        f"{subject} more than {MOST_DETECTIONS} objects of a category, at most {objects.max():,}."
        f" COCO counts {MOST_DETECTIONS} detections an image and category, so recall is at most"
        f" {format_list(bounds, _MOST_NAMED)}, and AP and F1 are lower than with all detections."
    )


def truth_notes(subject: DetectionSubject) -> Iterator[str]:
    """Yield sentences on copies, on boxes at or beyond the edge, on ids and on sizes."""
    truth = subject.truth
    recipe = subject.dataset.recipe
    if recipe.kind.edits:
        yield recipe.task.stays(recipe)
    misplaced = misplaced_objects(subject)
    if misplaced:
        yield misplaced
    alone = ~truth.crowd
    boxes = truth.box[alone]
    image = truth.image[alone]
    category = truth.category[alone]
    if not len(boxes):
        return
    total = format_count(len(boxes), "object")
    different = np.unique(np.column_stack([image, category, boxes]), axis=0)
    copies = len(boxes) - len(different)
    if copies:
        yield (
            f"{copies:,} of {total} are copies: the same box and category twice in one image. Each"
            " counts, as with"
            " pycocotools, so one detection leaves the copy missed; Ultralytics drops copies."
        )
    sides = subject.sides[image]
    start = boxes[:, :2]
    end = start + boxes[:, 2:]
    has_no_extent = np.minimum(end, sides) <= np.maximum(start, 0)
    empty = has_no_extent.any(axis=1)
    beyond = (start < -1) | (end > sides + 1)
    leaving = beyond.any(axis=1) & ~empty
    if empty.any():
        yield (
            f"{int(empty.sum()):,} of {total} have no area in their image. They count, as with"
            " pycocotools, though a detector can hardly find them."
        )
    if leaving.any():
        yield (
            f"{int(leaving.sum()):,} of {total} leave their image. Neither their boxes nor"
            " detections are cut at the"
            " edge, as with pycocotools: a detector that cuts its own boxes loses overlap there."
        )
    ids: list[int] = []
    for row in subject.rows[0].tolist():
        ids += subject.objects[row]["id"]
    unique = len(set(ids)) == len(ids) > 1
    # Numbers that count the objects of each image are no ids.
    if ids.count(0) == 1 and unique and len(np.unique(image)) > 1:
        yield (
            "An object has the annotation id 0. In the file that it comes from, pycocotools counts"
            " it as missed (its issue 332); here it is matched like any other."
        )
    shortest = recipe.generator.get("size")
    reduced = 0
    if shortest is not None:
        shorter_sides = subject.sides.min(axis=1)
        reduced = int((shorter_sides == shortest).sum())
    if reduced:
        yield (
            f"{format_count(reduced, 'image')} of {subject.images:,} were reduced to a shorter side of"
            f" {shortest} pixels. Small, medium and large are sizes in the reduced images, so AP by"
            " size is not that of the originals."
        )
