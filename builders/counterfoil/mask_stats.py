"""Scores of semantic segmenters: IoU and recall of each class, and pixel accuracy, from confusion
matrices; and how well the boundaries of classes are found.

Pixels of all images are counted together, as Cityscapes, ADE20K and PASCAL VOC do, so an image's
matrix adds to those of others and a resample weighs it. A class is measured where some pixel has
it; without one in a resample, it has no value there. Boundaries are scored by image, and a class
has the mean over its images (Csurka et al. 2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats, Ints
from counterfoil.resampled_stats import CategoryScores, Units, ratio_or_nan
from counterfoil.stats import seeded_generator

REPLICATES = 1000
IOU = "IoU"
RECALL = "recall"
PIXELS = "pixel_accuracy"
BOUNDARY = "boundary_F1"
# How far apart boundaries match, as a share of the image's diagonal (Csurka et al. 2013).
_TOLERANCE = 0.0075
# Numbers of resamples times images whose weights are in memory at once.
_WEIGHTS_AT_ONCE = 5_000_000
_HALF = 0.5


Numbers: TypeAlias = NDArray[np.integer]


def confusion(truth: Numbers, answer: Numbers, classes: int) -> Ints:
    """Return how many pixels of each class have each answer, (k, k + 1).

    truth, answer: class numbers of one shape. Pixels whose truth is no class are left out; an
    answer that is no class is counted last.
    """
    known = truth < classes
    answers = classes + 1
    cells = truth[known].astype(np.int64)
    cells *= answers
    cells += np.minimum(answer[known], classes)
    counts = np.bincount(cells, minlength=classes * answers)
    return counts.reshape(classes, answers)


def other_meanings(counts: Ints) -> list[tuple[int, int, float]]:
    """Return (class, answer, IoU) where pixels of a class have an IoU above one half with another
    class's answers, or with answers that are no class.

    counts: (k, k + 1), as `confusion` returns them. Few models confuse two classes so fully, and
    numbers in another order do.
    """
    having = counts.sum(axis=1, keepdims=True)
    given = counts.sum(axis=0, keepdims=True)
    iou = ratio_or_nan(counts, having + given - counts)
    np.fill_diagonal(iou, 0)
    pairs = np.argwhere(iou > _HALF).tolist()
    return [(true, answer, float(iou[true, answer])) for true, answer in pairs]


def boundary_f1(truth: Numbers, answer: Numbers, classes: int) -> Floats:
    """Return the F1 of each class's boundary in an image, (k,); NaN where truth has no boundary of
    the class.

    A pixel is on a boundary if one of its four neighbours has another class. Precision is the share
    of the answer's boundary pixels within 0.75 % of the diagonal, at least 1 pixel, of a true one;
    recall the share of true ones within it of an answer's (Csurka et al. 2013).
    Pixels whose truth is no class have none in the answer either, as with DAVIS's void pixels.
    """
    diagonal = math.hypot(*truth.shape)
    tolerance = max(1.0, _TOLERANCE * diagonal)
    limit = math.floor(tolerance**2)  # squared distances of pixels are whole numbers
    margin = math.isqrt(limit)
    true = _boundary_places(np.minimum(truth, classes), margin)
    answered = np.minimum(answer, classes)
    answered = np.where(truth < classes, answered, classes)
    given = _boundary_places(answered, margin)
    precision = _shares_near(given, true, limit, classes)
    recall = _shares_near(true, given, limit, classes)
    both = precision + recall
    product = precision * recall
    scores = ratio_or_nan(2 * product, both)
    # F1 is 0 if the answer lacks the class, or if no boundaries match.
    has_boundary = np.isfinite(recall)
    found_nothing = has_boundary & ~(both > 0)
    scores[found_nothing] = 0.0
    return scores


@dataclass(frozen=True)
class _Places:
    """The boundary pixels of all classes of an image. places: one number each, sorted: pixels of a
    row are one apart, those of a column `line`, and no two rows or classes touch. labels: their
    classes."""

    places: Ints
    labels: Ints
    line: int


def _boundary_places(numbers: Numbers, margin: int) -> _Places:
    """Return the boundary pixels of an image, with a margin around each class's."""
    height, width = numbers.shape
    on_boundary = np.zeros(numbers.shape, dtype=bool)
    across = numbers[:, 1:] != numbers[:, :-1]
    on_boundary[:, 1:] |= across
    on_boundary[:, :-1] |= across
    down = numbers[1:] != numbers[:-1]
    on_boundary[1:] |= down
    on_boundary[:-1] |= down
    row, column = np.nonzero(on_boundary)
    label = numbers[on_boundary].astype(np.int64)
    line = width + 2 * margin + 1
    lines_of_class = height + 2 * margin
    index = label * lines_of_class
    index += row + margin
    index *= line
    index += column
    order = np.argsort(index, kind="stable")
    return _Places(index[order], label[order], line)


def _shares_near(points: _Places, others: _Places, limit: int, classes: int) -> Floats:
    """Return for each class the share of its points that have another one within a squared
    distance, (k,); NaN without a point."""
    near = np.zeros(len(points.places), dtype=bool)
    left = np.arange(len(near))
    last = np.iinfo(np.int64).max
    sought = np.append(others.places, last)
    reach = math.isqrt(limit)
    rows = range(-reach, reach + 1)
    for down in sorted(rows, key=abs):  # most are found in the first rows
        across = math.isqrt(limit - down**2)
        opposite = points.places[left] + down * points.line
        first = np.searchsorted(others.places, opposite - across)
        is_near = sought[first] <= opposite + across
        near[left[is_near]] = True
        left = left[~is_near]
    bins = classes + 1
    pixels = np.bincount(points.labels, minlength=bins)
    hits = np.bincount(points.labels, near, minlength=bins)
    shares = ratio_or_nan(hits, pixels)
    return shares[:classes]


@dataclass(frozen=True)
class PixelCounts:
    """The pixels of n images by class, (n, k): those that have the class, that are given it, and
    both; and `boundary_f1` of each image."""

    having: Ints
    given: Ints
    hits: Ints
    boundary: Floats

    @classmethod
    def of(
        cls,
        cells: Ints,
        boundary: Floats,
        images: int,
        classes: int,
    ) -> PixelCounts:
        """Return the counts of n images from the cells of their confusion matrices, (4, m): image,
        true class, answered class and number of pixels.

        boundary: (m,) `boundary_f1` of the class in the image, at the cells where the true class is
        the answered one.
        """
        image, true, answered, pixels = cells

        shape = (images, classes)

        def summed(chosen: Any, column: Ints) -> Ints:
            places = image[chosen] * classes
            places += column[chosen]
            sums = np.bincount(places, pixels[chosen], minlength=images * classes)
            return sums.astype(np.int64).reshape(shape)

        same = true == answered
        of_images = np.full(shape, np.nan)
        of_images[image[same], true[same]] = boundary[same]
        return cls(
            having=summed(slice(None), true),
            given=summed(answered < classes, answered),
            hits=summed(same, true),
            boundary=of_images,
        )

    def measured(self, weights: Numbers) -> dict[str, Floats]:
        """Return IoU, recall and boundary F1 of each class, (k, r), and pixel accuracy, (1, r), for
        weights of images, (n, r). A class that no weighed pixel has is NaN."""
        drawn = weights.astype(np.float64)
        sums = []
        for table in self._tables:
            sums.append(table.T @ drawn)
        return _measures(*sums)

    def without_each(self, units: Units) -> dict[str, Floats]:
        """Return the same, (k, u), of the images without each of u units in turn."""
        sums = []
        for table in self._tables:
            of_units = np.zeros((units.count, table.shape[1]))
            np.add.at(of_units, units.of_image, table)
            left = table.sum(axis=0) - of_units
            sums.append(left.T)
        return _measures(*sums)

    @property
    def _tables(self) -> tuple[NDArray, ...]:
        """The five arguments of `_measures` for each image, (n, k)."""
        bounded = np.isfinite(self.boundary)
        boundary = np.where(bounded, self.boundary, 0.0)
        number = bounded.astype(np.int64)
        return self.having, self.given, self.hits, boundary, number

    def image_iou(self) -> Floats:
        """Return the mean IoU of each image over the classes that it has, (n,); NaN without one."""
        having = self.having > 0
        either = self.having + self.given - self.hits
        iou = ratio_or_nan(self.hits, either, having)
        total = np.nansum(iou, axis=1)
        number = having.sum(axis=1)
        return ratio_or_nan(total, number)

    def image_accuracy(self) -> Floats:
        """Return the pixel accuracy of each image, (n,); NaN without a pixel that has a class."""
        right = self.hits.sum(axis=1)
        whole = self.having.sum(axis=1)
        return ratio_or_nan(right, whole)


def _measures(
    having: Floats,
    given: Floats,
    hits: Floats,
    boundary: Floats,
    bounded: Floats,
) -> dict[str, Floats]:
    """Return the measures of sums over images, (k, r). boundary: the sum of the boundary F1 of
    `bounded` images."""
    known = having > 0
    either = having + given - hits
    iou = ratio_or_nan(hits, either, known)
    recall = ratio_or_nan(hits, having)
    every = having.sum(axis=0)
    right = hits.sum(axis=0)
    accuracy = ratio_or_nan(right, every)
    f1 = ratio_or_nan(boundary, bounded)
    return {
        IOU: iou,
        RECALL: recall,
        PIXELS: accuracy[None],
        BOUNDARY: f1,
    }


def score_masks(
    groups: Sequence[PixelCounts],
    seed: int,
    replicates: int = REPLICATES,
    units: Units | None = None,
    done: Callable[[int], None] = lambda replicate: None,
) -> tuple[CategoryScores, ...]:
    """Score a segmenter on the images of each group and on resamples of them. All groups share
    their resamples.

    groups: image i of every group is made from the same row. done: is called with the number of
    finished resamples.
    """
    images = len(groups[0].having)
    units = units or Units.of_images(images)
    rng = seeded_generator(seed, "images with masks")
    step = max(1, _WEIGHTS_AT_ONCE // images)
    blocks: list[list[dict[str, Floats]]] = [[] for _ in groups]
    for start in range(0, replicates, step):
        stop = min(start + step, replicates)
        weights = units.drawn(stop - start, rng).T
        for counts, of_group in zip(groups, blocks, strict=True):
            of_group.append(counts.measured(weights))
        done(stop)
    scores = []
    for counts, of_group in zip(groups, blocks, strict=True):
        once = np.ones((images, 1), np.int32)
        whole = counts.measured(once)
        draws = {}
        for name in whole:
            drawn = [block[name] for block in of_group]
            draws[name] = np.concatenate(drawn, axis=1)
        having = units.counted(counts.having > 0)
        bounded = np.isfinite(counts.boundary)
        counted = {IOU: having, RECALL: having}
        counted[PIXELS] = np.array([units.count])
        counted[BOUNDARY] = units.counted(bounded)
        score = CategoryScores(
            values={name: values[:, 0] for name, values in whole.items()},
            draws=draws,
            parts=counts.without_each(units),
            images=counted,
            whole=units.count,
            bias_of_parts=units.count - 1.0,  # the jackknife's (Quenouille 1956)
            by_units=units.shared,
            leaves_each_out=True,
            of_all=PIXELS,
        )
        scores.append(score)
    return tuple(scores)
