"""Scores of semantic segmenters: IoU and recall of each class, and pixel accuracy, from confusion
matrices.

Pixels of all images are counted together, as Cityscapes, ADE20K and PASCAL VOC do, so an image's
matrix adds to those of others and a resample weighs it. A class is measured where some pixel has
it; without one in a resample, it has no value there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats, Ints
from counterfoil.resampled_stats import Drawn, Units, mean_over_categories
from counterfoil.stats import seeded_generator

REPLICATES = 1000
IOU = "IoU"
RECALL = "recall"
PIXELS = "pixel_accuracy"
# The bias of a ratio of sums is inverse to the number of images, so halves have twice that of all.
_BIAS_OF_HALVES = 1.0
# Numbers of resamples times images whose weights are in memory at once.
_WEIGHTS_AT_ONCE = 5_000_000


def confusion(truth: NDArray[np.integer], answer: NDArray[np.integer], classes: int) -> Ints:
    """Return how many pixels of each class have each answer, (k, k + 1).

    truth, answer: class numbers of one shape. Pixels whose truth is no class are left out; an
    answer that is no class is counted last.
    """
    known = truth < classes
    answered = np.minimum(answer[known], classes).astype(np.int64)
    cells = truth[known].astype(np.int64) * (classes + 1) + answered
    shape = classes, classes + 1
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    return counts.reshape(shape)


@dataclass(frozen=True)
class PixelCounts:
    """The pixels of n images by class, (n, k): those that have the class, that are given it, and
    both."""

    having: Ints
    given: Ints
    hits: Ints

    @classmethod
    def of(cls, cells: Ints, images: int, classes: int) -> PixelCounts:
        """Return the counts of n images from the cells of their confusion matrices, (4, m): image,
        true class, answered class and number of pixels."""
        image, true, answered, pixels = cells

        def summed(chosen: NDArray[np.bool_], column: Ints) -> Ints:
            places = image[chosen] * classes + column[chosen]
            sums = np.bincount(places, pixels[chosen], minlength=images * classes)
            return sums.astype(np.int64).reshape(images, classes)

        every = np.ones(len(image), dtype=bool)
        having = summed(every, true)
        given = summed(answered < classes, answered)
        return cls(having, given, summed(true == answered, true))

    def measured(self, weights: NDArray[np.integer]) -> dict[str, Floats]:
        """Return IoU and recall of each class, (k, r), and pixel accuracy, (1, r), for weights of
        images, (n, r). A class that no weighed pixel has is NaN."""
        drawn = weights.astype(np.float64)
        having = self.having.T @ drawn
        given = self.given.T @ drawn
        hits = self.hits.T @ drawn
        known = having > 0
        every = having.sum(axis=0)
        iou = _ratio(hits, having + given - hits, known)
        recall = _ratio(hits, having, known)
        right = hits.sum(axis=0)
        accuracy = _ratio(right, every, every > 0)
        return {IOU: iou, RECALL: recall, PIXELS: accuracy[None]}

    def image_iou(self) -> Floats:
        """Return the mean IoU of each image over the classes that it has, (n,); NaN without one."""
        having = self.having > 0
        either = self.having + self.given - self.hits
        iou = _ratio(self.hits, either, having)
        total = np.nansum(iou, axis=1)
        number = having.sum(axis=1)
        return _ratio(total, number, number > 0)

    def image_accuracy(self) -> Floats:
        """Return the pixel accuracy of each image, (n,); NaN without a pixel that has a class."""
        right = self.hits.sum(axis=1)
        whole = self.having.sum(axis=1)
        return _ratio(right, whole, whole > 0)


def _ratio(part: NDArray, whole: NDArray, where: NDArray) -> Floats:
    unknown = np.full(np.shape(part), np.nan)
    return np.divide(part, whole, out=unknown, where=where)


@dataclass(frozen=True)
class MaskScores:
    """The scores of a segmenter in one group, by measure: values (k,), draws (k, r), halves (k, h).
    Pixel accuracy has k = 1.

    images: (k,) the number of units with a pixel of the class. whole: the number of all units.
    """

    values: dict[str, Floats]
    draws: dict[str, Floats]
    halves: dict[str, Floats]
    images: Ints
    whole: int
    by_units: bool

    def mean(self, measure: str, classes: Sequence[int]) -> Drawn:
        """Return the mean of IoU or recall over classes; pixel accuracy is over all pixels."""
        chosen = list(classes)
        images = self.images[chosen]
        if measure == PIXELS:
            chosen = [0]
            images = np.array([self.whole])
        whole = int(images[0]) if len(chosen) == 1 else self.whole
        return mean_over_categories(
            self.values[measure][chosen],
            self.draws[measure][chosen],
            self.halves[measure][chosen],
            images,
            whole,
            _BIAS_OF_HALVES,
            by_units=self.by_units,
        )


def score_masks(
    groups: Sequence[PixelCounts],
    seed: int,
    replicates: int = REPLICATES,
    units: Units | None = None,
    done: Callable[[int], None] = lambda replicate: None,
) -> tuple[MaskScores, ...]:
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
    halves = units.halves(seed).T
    scores = []
    for counts, of_group in zip(groups, blocks, strict=True):
        whole = counts.measured(np.ones((images, 1), np.int32))
        draws = {}
        for name in whole:
            draws[name] = np.concatenate([block[name] for block in of_group], axis=1)
        score = MaskScores(
            values={name: values[:, 0] for name, values in whole.items()},
            draws=draws,
            halves=counts.measured(halves),
            images=units.counted(counts.having > 0),
            whole=units.count,
            by_units=units.shared,
        )
        scores.append(score)
    return tuple(scores)
