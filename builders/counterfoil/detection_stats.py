"""The measures of a detector, as pure functions on arrays: matches, average precision, F1 of an
image.

Matches, average precision and recall equal those of pycocotools 2.0 (`COCOeval`, bounding boxes).
Matching happens once for each image, category, IoU threshold and range of areas. Average precision
is not a mean over images. A resample of images therefore gives each image a weight, and the same
matches are accumulated again with these weights.

Boxes are [x, y, width, height] in pixels, from the top left. Images and categories are numbered
from 0. A value that no object or detection determines is NaN (pycocotools returns -1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.resampled_stats import Drawn, Units, mean_of_finite, mean_over_categories
from counterfoil.stats import REPLICATES, best_threshold, chance_line, seeded_generator

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)  # IoU thresholds, as pycocotools computes them
RECALLS: Floats = np.linspace(0.0, 1.0, 101)
MOST_DETECTIONS = 100  # detections kept per category and image, highest scores first
# Ranges of an object's area in square pixels. A range includes both of its ends. The first range
# holds every object.
AREAS: dict[str, tuple[float, float]] = {
    "all": (0, 1e10),
    "small": (0, 1024),
    "medium": (1024, 9216),
    "large": (9216, 1e10),
}

# Each measure averages over categories: precision or recall, in a range of areas, at some IoU
# thresholds.
COCO_MEASURES: dict[str, tuple[str, str, slice]] = {
    "AP": ("precision", "all", slice(None)),
    "AP50": ("precision", "all", slice(0, 1)),
    "AP75": ("precision", "all", slice(5, 6)),
    "AP_small": ("precision", "small", slice(None)),
    "AP_medium": ("precision", "medium", slice(None)),
    "AP_large": ("precision", "large", slice(None)),
    "recall": ("recall", "all", slice(None)),
}


# The largest arrays held in memory at once, in elements.
_PAIRS_AT_ONCE = 1 << 22  # pairs of a detection and an object
_WEIGHTS_AT_ONCE = 1 << 22  # resamples times images
_SCORES_AT_ONCE = 1 << 22  # resamples times categories, areas and thresholds
_DRAWN_AT_ONCE = 1 << 20  # resamples times detections


@dataclass(frozen=True)
class Objects:
    """The true boxes of some images, as arrays (n,) sorted by image and category."""

    image: Ints
    box: Floats
    """(n, 4)"""
    category: Ints
    area: Floats
    """The area of the object, which may differ from the area of its box."""
    crowd: Bools
    """Marks boxes around many objects, which count neither as found nor as missed."""
    order: Ints
    """The position of each row before sorting."""

    @classmethod
    def of(
        cls,
        image: ArrayLike,
        box: ArrayLike,
        category: ArrayLike,
        area: ArrayLike | None = None,
        crowd: ArrayLike | None = None,
    ) -> Objects:
        """Check and sort objects. The default `area` is the area of the box; by default, no object
        is a crowd. ValueError if shapes differ or a number is impossible."""
        images, boxes, categories = _checked(image, box, category)
        if area is None:
            area = _areas(boxes)
        if crowd is None:
            crowd = np.zeros(len(images), np.bool_)
        areas = np.asarray(area, np.float64).reshape(-1)
        crowds = np.asarray(crowd, np.bool_).reshape(-1)
        if not len(areas) == len(crowds) == len(images):
            raise ValueError(
                f"{len(images)} objects, {len(areas)} areas and {len(crowds)} marks of a crowd"
            )
        possible = np.isfinite(areas) & (areas >= 0)
        if not possible.all():
            raise ValueError("an object's area is a finite number from 0")
        order = np.lexsort((categories, images))
        return cls(
            images[order],
            boxes[order],
            categories[order],
            areas[order],
            crowds[order],
            order,
        )


@dataclass(frozen=True)
class Detections:
    """The boxes that a detector found in some images, as arrays (n,) sorted by image, category and
    falling score. Rows of equal score keep their order."""

    image: Ints
    box: Floats
    """(n, 4)"""
    category: Ints
    score: Floats
    order: Ints
    """The position of each row before sorting."""

    @classmethod
    def of(
        cls,
        image: ArrayLike,
        box: ArrayLike,
        category: ArrayLike,
        score: ArrayLike,
    ) -> Detections:
        """Check and sort detections. ValueError if shapes differ or a number is impossible."""
        images, boxes, categories = _checked(image, box, category)
        scores = np.asarray(score, np.float64).reshape(-1)
        if len(scores) != len(images):
            raise ValueError(f"{len(images)} detections and {len(scores)} scores")
        if not np.isfinite(scores).all():
            raise ValueError("a score is a finite number")
        order = np.lexsort((-scores, categories, images))
        return cls(
            images[order],
            boxes[order],
            categories[order],
            scores[order],
            order,
        )


def _areas(boxes: Floats) -> Floats:
    return boxes[:, 2] * boxes[:, 3]


def _checked(
    image: ArrayLike,
    box: ArrayLike,
    category: ArrayLike,
) -> tuple[Ints, Floats, Ints]:
    images = np.asarray(image, np.int64).reshape(-1)
    categories = np.asarray(category, np.int64).reshape(-1)
    boxes = np.asarray(box, np.float64).reshape(-1, 4)
    if not len(images) == len(boxes) == len(categories):
        raise ValueError(
            f"{len(images)} images of boxes, {len(boxes)} boxes and {len(categories)} categories"
        )
    if min(images.min(initial=0), categories.min(initial=0)) < 0:
        raise ValueError("images and categories are numbers from 0")
    if not np.isfinite(boxes).all() or boxes[:, 2:].min(initial=0) < 0:
        raise ValueError("a box is four finite numbers, width and height from 0")
    return images, boxes, categories


# ---- Matches


@dataclass(frozen=True)
class Matches:
    """Detections and objects of some images, matched: d detections, o objects, a ranges of areas, t
    thresholds.

    The detections are the `MOST_DETECTIONS` of the highest scores per image and category. They are
    sorted by category and falling score; ties are sorted by image.
    """

    images: int
    """The number of images."""
    categories: int
    """The number of categories."""
    score: Floats
    """(d,)"""
    image: Ints
    """(d,)"""
    category: Ints
    """(d,)"""
    row: Ints
    """(d,) the row of each detection in `Detections`."""
    matched: Bools
    """(a, t, d), whether a detection matched an object."""
    ignored: Bools
    """(a, t, d). A detection is ignored if it matched a crowd or an object outside of the range of
    areas. It is also ignored if it matched nothing and its own area is outside of the range."""
    found: Ints
    """(d,) the row in `Objects` that the detection matched at the lowest threshold and in the range
    of all areas, or -1."""
    object_image: Ints
    """(o,)"""
    object_category: Ints
    """(o,)"""
    counted: Bools
    """(a, o) bool, the objects that a detector is expected to find."""

    def counting(self, score: float) -> Bools:
        """Return which detections of at least this score count at the lowest threshold, (d,)."""
        return (self.score >= score) & ~self.ignored[0, 0]

    def objects_of_images(self) -> Ints:
        """Return how many objects each image has that count, (images,)."""
        images = self.object_image[self.counted[0]]
        return np.bincount(images, minlength=self.images)


def match_detections(
    objects: Objects,
    detections: Detections,
    images: int,
    categories: int,
) -> Matches:
    """Match the detections of each image and category with its objects, by falling score, as
    pycocotools does.

    A detection takes, among the objects that no earlier detection took, the one of the highest IoU,
    if this IoU reaches the threshold. An object that counts is preferred to one that does not
    count. Of objects of equal IoU, the last is taken. Any number of detections may match one crowd;
    the IoU with a crowd is the share of the detection's area that lies in the crowd. ValueError if
    the number of an image or a category is out of range.
    """
    for part in (objects, detections):
        image = part.image.max(initial=-1)
        category = part.category.max(initial=-1)
        if image >= images or category >= categories:
            raise ValueError(
                f"a box is of an image beyond {images} or a category beyond {categories}"
            )
    group = detections.image * categories + detections.category
    rank = np.arange(len(group))
    rank -= np.searchsorted(group, group)
    kept = np.flatnonzero(rank < MOST_DETECTIONS)
    group = group[kept]
    boxes = detections.box[kept]
    ranges = np.array(list(AREAS.values()), np.float64)
    low, high = ranges.T[:, :, None]
    outside = (objects.area < low) | (objects.area > high)
    outside |= objects.crowd
    shape = (len(AREAS), len(THRESHOLDS))
    matched = np.zeros((*shape, len(kept)), np.bool_)
    ignored = np.zeros_like(matched)
    found_objects = np.full(len(kept), -1, np.int64)
    taken = np.zeros((*shape, len(objects.image)), np.bool_)
    object_group = objects.image * categories + objects.category
    for detection, thing, iou in _overlaps(objects, boxes, group, object_group):
        free = ~taken[:, :, thing] | objects.crowd[thing]
        reached = (iou >= THRESHOLDS[:, None]) & free
        # A step has at most one detection of each group. Later pairs of a detection are worth more.
        pairs = len(thing)
        preferred = np.where(outside[:, thing], 0, pairs)
        worth = np.arange(1, pairs + 1) + preferred[:, None]
        worth = np.where(reached, worth, 0)
        starts = np.flatnonzero(np.diff(detection, prepend=-1))
        best = np.maximum.reduceat(worth, starts, axis=2)
        area, threshold, position = np.nonzero(best)
        pair = (best[best > 0] - 1) % pairs
        met = thing[pair]
        of = detection[starts][position]
        matched[area, threshold, of] = True
        ignored[area, threshold, of] = outside[area, met]
        taken[area, threshold, met] = True
        first = (area == 0) & (threshold == 0)
        found_objects[of[first]] = met[first]
    size = _areas(boxes)
    box_outside = (size < low) | (size > high)
    ignored |= ~matched & box_outside[:, None]
    score = detections.score[kept]
    category = detections.category[kept]
    order = np.lexsort((-score, category))  # stable: equal scores stay in the order of their images
    return Matches(
        images=images,
        categories=categories,
        score=score[order],
        image=detections.image[kept][order],
        category=category[order],
        row=kept[order],
        matched=matched[:, :, order],
        ignored=ignored[:, :, order],
        found=found_objects[order],
        object_image=objects.image,
        object_category=objects.category,
        counted=~outside,
    )


def _overlaps(
    objects: Objects,
    boxes: Floats,
    group: Ints,
    object_group: Ints,
) -> list[tuple[Ints, Ints, Floats]]:
    """Return pairs (detection, object, IoU) of the same group whose IoU reaches the lowest
    threshold, in steps.

    The first step has each group's first detection that overlaps an object, the second step has
    each group's second one, and so on. Within a step, pairs are sorted by detection, then rising
    IoU, then object.
    """
    start = np.searchsorted(object_group, group)
    stop = np.searchsorted(object_group, group, side="right")
    sizes = stop - start
    block = np.cumsum(sizes) // _PAIRS_AT_ONCE
    close: list[tuple[Ints, Ints, Floats]] = []
    for number in np.unique(block):
        some = np.flatnonzero((block == number) & (sizes > 0))
        counts = sizes[some]
        detection = np.repeat(some, counts)
        before = np.cumsum(counts) - counts
        thing = np.repeat(start[some] - before, counts)
        thing += np.arange(len(detection))
        iou = box_iou(boxes[detection], objects.box[thing], objects.crowd[thing])
        near = iou >= THRESHOLDS[0]
        close.append((detection[near], thing[near], iou[near]))
    if not close:
        return []
    detection, thing, iou = (np.concatenate(parts) for parts in zip(*close, strict=True))
    detections, number = np.unique(detection, return_inverse=True)
    groups = group[detections]
    steps = np.arange(len(detections))
    steps -= np.searchsorted(groups, groups)
    step = steps[number]
    order = np.lexsort((thing, iou, detection, step))
    ends = np.flatnonzero(np.diff(step[order])) + 1
    parts = [np.split(part[order], ends) for part in (detection, thing, iou)]
    return [pairs for pairs in zip(*parts, strict=True) if len(pairs[0])]


def box_iou(boxes: Floats, others: Floats, crowd: Bools) -> Floats:
    """Return the shared area of two boxes over their union, or over the first box's area if the
    other is a crowd."""
    corner = boxes[:, :2]
    other_corner = others[:, :2]
    low = np.maximum(corner, other_corner)
    high = np.minimum(boxes[:, 2:] + corner, others[:, 2:] + other_corner)
    sides = high - low
    shared = sides[:, 0] * sides[:, 1]
    shared[(sides <= 0).any(axis=1)] = 0.0
    areas = _areas(boxes)
    union = areas + _areas(others) - shared
    union[crowd] = areas[crowd]
    iou = np.zeros(len(boxes))
    return np.divide(shared, union, out=iou, where=shared > 0)


# ---- Average precision


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision and recall of k categories, a ranges of areas and t thresholds.

    The arrays have shape (k, a, t), or (k, a, t, r) for r resamples. A category without an object
    that counts is NaN.
    """

    precision: Floats
    recall: Floats

    def measure(self, name: str) -> Floats:
        """Return one of `COCO_MEASURES`, () or (r,): the mean over categories that have objects; NaN if
        none has."""
        return mean_of_finite(self.by_category(name))

    def by_category(self, name: str) -> Floats:
        """Return one of `COCO_MEASURES` for each category, (k,) or (k, r)."""
        of, area, thresholds = COCO_MEASURES[name]
        index = list(AREAS).index(area)
        values = getattr(self, of)[:, index, thresholds]
        return values.mean(axis=1)


def average_precision(
    matches: Matches,
    weights: NDArray[np.integer[Any]] | None = None,
) -> AveragePrecision:
    """Compute average precision and recall, of the images or of r resamples of them.

    weights: (r, images) how often each image is drawn, whole numbers. The result is that of images
    as often repeated, but that copies of a detection stand together where scores of one image and
    category are equal.
    """
    counts = np.ones((1, matches.images), np.int32)
    if weights is not None:
        counts = np.asarray(weights, np.int32)
    shape = (matches.categories, *matches.matched.shape[:2], len(counts))
    precision = np.full(shape, np.nan)
    recall = np.full(shape, np.nan)
    numbers = np.arange(matches.categories + 1)
    starts = np.searchsorted(matches.category, numbers)
    by_category = np.argsort(matches.object_category, kind="stable")
    object_starts = np.searchsorted(matches.object_category[by_category], numbers)
    for category, (first, end) in enumerate(pairwise(starts)):
        of_category = slice(first, end)
        objects = by_category[object_starts[category] : object_starts[category + 1]]
        counted = matches.counted[:, objects]
        if not counted[0].any():
            continue
        rows = max(1, _DRAWN_AT_ONCE // max(1, end - first))
        for start in range(0, len(counts), rows):
            some = slice(start, start + rows)
            drawn = counts[some]
            drawn_objects = drawn[:, matches.object_image[objects]]
            for area in np.flatnonzero(counted.any(axis=1)):
                of_area = _accumulate(
                    matches.matched[area, :, of_category],
                    matches.ignored[area, :, of_category],
                    matches.image[of_category],
                    drawn,
                    total=drawn_objects[:, counted[area]].sum(axis=1),
                )
                precision[category, area, :, some] = of_area[0]
                recall[category, area, :, some] = of_area[1]
    if weights is None:
        return AveragePrecision(precision[..., 0], recall[..., 0])
    return AveragePrecision(precision, recall)


def _accumulate(
    matched: Bools,
    ignored: Bools,
    image: Ints,
    weights: NDArray[np.int32],
    total: Ints,
) -> tuple[Floats, Floats]:
    """Return average precision and recall, (t, r) each, of one category's detections, sorted by
    falling score.

    matched, ignored: (t, d). image: (d,). weights: (r, images). total: (r,) the number of objects
    to find. The envelope of the precision changes only at true detections, so the function computes
    precision only there.
    """
    precision, recall = np.zeros((2, len(matched), len(weights)))
    counting = np.flatnonzero(~ignored.all(axis=0))
    if len(counting) < ignored.shape[1]:
        matched = matched[:, counting]
        ignored = ignored[:, counting]
        image = image[counting]
    drawn = np.take(weights, image, axis=1)
    seen = np.cumsum(drawn, axis=1, dtype=np.int32)
    # True detections of all thresholds, one threshold after another.
    threshold, true = np.nonzero(matched & ~ignored)
    if len(true):
        thresholds, starts = np.unique(threshold, return_index=True)
        ends = [*starts.tolist(), len(true)]
        spans = [slice(start, stop) for start, stop in pairwise(ends)]
        ranked = np.take(seen, true, axis=1)
        right = np.take(weights, image[true], axis=1)
        for number, span in zip(thresholds, spans, strict=True):
            np.cumsum(right[:, span], axis=1, out=right[:, span])
            left_out = np.flatnonzero(ignored[number])
            if len(left_out):
                drawn = weights[:, image[left_out]]
                before = np.cumsum(drawn, axis=1, dtype=np.int32)
                before = np.pad(before, ((0, 0), (1, 0)))
                places = np.searchsorted(left_out, true[span])
                ranked[:, span] -= before[:, places]
        envelope = right / (ranked + np.spacing(1))
        share = right / np.maximum(total, 1)[:, None]
        # Count the values of RECALLS that the recall reaches. Only the nearest value needs a
        # comparison.
        position = share * (len(RECALLS) - 1)
        nearest = (position + 0.5).astype(np.int32)
        reached = nearest + (RECALLS[nearest] <= share)
        steps = np.diff(reached, axis=1, prepend=0)
        steps[:, starts] = reached[:, starts]
        for span in spans:
            backwards = envelope[:, span][:, ::-1]
            np.maximum.accumulate(backwards, axis=1, out=backwards)
        sums = np.add.reduceat(envelope * steps, starts, axis=1)
        precision[thresholds] = sums.T / len(RECALLS)
        lasts = [span.stop - 1 for span in spans]
        recall[thresholds] = share[:, lasts].T
    none = total == 0
    precision[:, none] = np.nan
    recall[:, none] = np.nan
    return precision, recall


# ---- F1 of an image


def best_f1_score(matches: Matches) -> float:
    """Return the lowest score of a detection to count that makes the mean `image_f1` highest.

    If several scores give the same mean, the highest of them is returned; without detections,
    infinity. Callers choose the score on the base and use it under every shift.
    """
    counting = np.flatnonzero(~matches.ignored[0, 0])
    if not len(counting):
        return float("inf")
    truths = matches.objects_of_images()

    def total_f1(order: Ints, last: Ints) -> Floats:
        """Sum for each image the F1 after each of its detections, less the F1 before that
        detection."""
        ranked = counting[order]
        image = matches.image[ranked]
        by_image = np.argsort(image, kind="stable")
        image = image[by_image]
        first = np.searchsorted(image, image)
        detections = np.arange(1, len(image) + 1) - first
        objects = truths[image]
        hits = np.cumsum(matches.matched[0, 0][ranked][by_image])
        hits_before = np.append(0, hits)[first]
        f1 = 2 * (hits - hits_before) / (detections + objects)
        before = np.append(0.0, f1[:-1])
        before = np.where(detections == 1, objects == 0, before)
        gain = np.empty(len(image))
        gain[by_image] = f1 - before
        total = np.cumsum(gain)
        return np.round(total, 9)[last]

    threshold, _ = best_threshold(matches.score[counting], total_f1, highest=True)
    return float(threshold)


def image_f1(matches: Matches, score: float) -> Floats:
    """Return the F1 of each image, (images,), at IoU 0.5, from the detections with at least this
    score.

    F1 is 2 · found / (objects + detections) over all categories. An image without objects and
    detections has an F1 of 1.
    """
    detected = matches.counting(score)
    hits = detected & matches.matched[0, 0]
    right = np.bincount(matches.image[hits], minlength=matches.images)
    whole = np.bincount(matches.image[detected], minlength=matches.images)
    whole += matches.objects_of_images()
    f1 = np.ones(matches.images)
    return np.divide(2 * right, whole, out=f1, where=whole > 0)


# ---- Scores in resamples


@dataclass(frozen=True)
class DetectorScores:
    """A detector's scores on some images: each of `COCO_MEASURES` and F1 by its name, and the AP of each
    category.

    A value that needs an object is NaN if there is none.
    """

    measures: Mapping[str, Drawn]
    categories: tuple[Drawn, ...]

    @property
    def near_chance(self) -> bool:
        """Whether AP50 may be under 0.1. A detector that finds nothing on the base cannot get worse
        under a shift."""
        estimate = self.measures["AP50"].interval()
        least = estimate.low
        if least is None:
            least = estimate.value
        return not least >= chance_line(0.0)


def bootstrap_scores(
    matches: Matches,
    f1_score: float,
    seed: int,
    replicates: int = REPLICATES,
    units: Units | None = None,
) -> DetectorScores:
    """Score a detector on the images and on resamples of their units. f1_score: `best_f1_score` of
    the base.

    The draws depend only on the seed and the number of units. The base, all shifts and all
    detectors of one dataset therefore share their draws.
    """
    units = units or Units.of_images(matches.images)
    areas = list(AREAS)
    scores = average_precision(matches)
    halves = average_precision(matches, units.halves(seed))
    draws = {}
    for name in COCO_MEASURES:
        draws[name] = np.empty((matches.categories, replicates), np.float32)
    f1 = image_f1(matches, f1_score)
    f1_draws = np.empty((1, replicates))
    rng = seeded_generator(seed, "images of a detector")
    of_weights = _WEIGHTS_AT_ONCE // max(1, matches.images)
    of_scores = _SCORES_AT_ONCE // max(1, scores.precision.size)
    rows = max(1, min(of_weights, of_scores))
    for start in range(0, replicates, rows):
        block = slice(start, min(start + rows, replicates))
        weights = units.drawn(block.stop - start, rng)
        sums = (weights * f1).sum(axis=1)
        f1_draws[0, block] = sums / weights.sum(axis=1)
        resampled = average_precision(matches, weights)
        for name, category_draws in draws.items():
            category_draws[:, block] = resampled.by_category(name)

    def mean(name: str, rows: Any, images: Ints, whole: int) -> Drawn:
        return mean_over_categories(
            scores.by_category(name)[rows],
            draws[name][rows],
            halves.by_category(name)[rows],
            images[rows],
            whole,
            by_units=units.shared,
        )

    measures = {}
    for name, (_, area, _) in COCO_MEASURES.items():
        images, whole = _object_units(matches, areas.index(area), units)
        measures[name] = mean(name, slice(None), images, whole)
    images, _ = _object_units(matches, 0, units)
    categories = []
    for k in range(matches.categories):
        categories.append(mean("AP", [k], images, int(images[k])))
    mean_f1 = f1.mean(keepdims=True)
    measures["F1"] = mean_over_categories(
        mean_f1,
        f1_draws,
        mean_f1[:, None],
        np.array([units.count]),
        units.count,
        by_units=units.shared,
    )
    return DetectorScores(measures, tuple(categories))


def _object_units(matches: Matches, area: int, units: Units) -> tuple[Ints, int]:
    """Count the units with an object that counts: of each category, (k,), and of any category."""
    counting = matches.counted[area]
    image = matches.object_image[counting]
    unit = units.of_image[image]
    pairs = np.unique(matches.object_category[counting] * units.count + unit)
    categories = pairs // max(1, units.count)
    of_category = np.bincount(categories, minlength=matches.categories)
    return of_category, len(np.unique(unit))
