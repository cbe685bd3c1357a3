"""The measures of a classifier that scores several labels of each image, as pure functions on
arrays.

There are n images and k labels. `truth` says which labels an image has, lacks, or may have for all
that is known; a high value in `scores` (n, k) means that the classifier finds the label. Each label
is measured on the images that know it. The average precision of a label is that of scikit-learn
(`average_precision_score`): the mean precision over the images that have the label, without
interpolation. AUROC is the share of pairs, an image with the label and one without it, in which the
first has the higher score (Hanley and McNeil 1982). Images of equal score count together. Neither
is a mean over images, so a resample gives each image a weight. Accuracy is balanced: it is the mean
of two shares of right answers, among the images with the label and among the images without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.progress import report_progress
from counterfoil.resampled_stats import CategoryScores, Units, ratio_or_nan
from counterfoil.stats import best_threshold, seeded_generator

REPLICATES = 1000
PRECISION = "AP"
AUROC = "AUROC"
ACCURACY = "accuracy"
AVERAGED = (PRECISION, AUROC, ACCURACY)  # measures that are averaged over labels
# The bias of a value is this many times the difference between the score of half of the images and
# of all images.
_BIAS_OF_HALVES = 1.0
_WEIGHTS_AT_ONCE = 1 << 22  # weights held in memory at once: resamples times images


# (n, r) how often each of n images is drawn in each of r resamples.
Weights: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True)
class LabelTruth:
    """The labels of n images."""

    present: Bools
    """(n, k), which labels an image has."""
    known: Bools
    """(n, k), of which labels that is known."""

    @property
    def having(self) -> Bools:
        return self.known & self.present

    @property
    def lacking(self) -> Bools:
        return self.known & ~self.present

    @property
    def least(self) -> Ints:
        """Return the number of images that have each label or that lack it, whichever is smaller,
        (k,)."""
        having = self.having.sum(axis=0)
        lacking = self.lacking.sum(axis=0)
        return np.minimum(having, lacking)

    def of(self, images: Any, labels: Any = slice(None)) -> LabelTruth:
        """Return the truth of some images and labels."""
        present = self.present[images][:, labels]
        known = self.known[images][:, labels]
        return LabelTruth(present, known)


def label_precision(
    scores: AnyFloats,
    truth: LabelTruth,
    weights: Weights,
) -> Floats:
    """Return the average precision of each label, (k, r), in r resamples.

    A resample without an image that has the label gives NaN.
    """
    precision = []
    for hits, false in _by_falling_score(scores, truth, weights):
        recalled = np.diff(hits, axis=0, prepend=0)
        shares = hits / np.maximum(hits + false, 1)
        sums = (recalled * shares).sum(axis=0)
        precision.append(ratio_or_nan(sums, hits[-1]))
    return np.stack(precision)


def label_auroc(
    scores: AnyFloats,
    truth: LabelTruth,
    weights: Weights,
) -> Floats:
    """Return the area under each label's ROC curve, (k, r). A pair of equal scores counts half.

    A resample in which all images that know the label have it, or all lack it, gives NaN.
    """
    areas = []
    for hits, false in _by_falling_score(scores, truth, weights):
        pairs = hits[-1].astype(np.float64) * false[-1]
        positives = np.diff(hits, axis=0, prepend=0)
        equal = np.diff(false, axis=0, prepend=0)
        beaten = false[-1] - false + equal / 2
        sums = (positives * beaten).sum(axis=0)
        areas.append(ratio_or_nan(sums, pairs))
    return np.stack(areas)


def _by_falling_score(
    scores: AnyFloats,
    truth: LabelTruth,
    weights: Weights,
) -> Iterator[tuple[Weights, Weights]]:
    """Yield, for each label, how many drawn images with it and without it reach each score,
    (scores, r) each.

    Scores that differ are in falling order, of the images that know the label.
    """
    for label, values in enumerate(scores.T):
        images = np.flatnonzero(truth.known[:, label])
        if not len(images):
            nothing = np.zeros_like(weights[:1])
            yield nothing, nothing
            continue
        falling = np.argsort(-values[images], kind="stable")
        order = images[falling]
        drawn = weights[order]
        has = truth.present[order, label]
        drawn_with = drawn * has[:, None]
        ranked = values[order]
        is_last = np.append(ranked[1:] != ranked[:-1], True)  # also of equal infinite scores
        answered = np.cumsum(drawn, axis=0, dtype=np.int32)[is_last]
        hits = np.cumsum(drawn_with, axis=0, dtype=np.int32)[is_last]
        yield hits, answered - hits


# ---- Thresholds


@dataclass(frozen=True)
class LabelThresholds:
    """Two thresholds for each label. Each is chosen on one half of the base's images and used on
    the other half."""

    half: Ints
    """(n, k) the half, 0 or 1, that each image belongs to."""
    values: Floats
    """(2, k) the thresholds that are used on each half."""

    def answers(self, scores: AnyFloats) -> Bools:
        """Return (n, k) bool: whether the score of each label reaches the threshold for the image's
        half."""
        thresholds = np.take_along_axis(self.values, self.half, axis=0)
        return scores >= thresholds


def choose_thresholds(
    scores: AnyFloats,
    truth: LabelTruth,
    seed: int,
) -> LabelThresholds:
    """Choose, for each label and each half of the images, the threshold of the highest balanced
    accuracy.

    The images that know a label are halved anew for each label, so that both halves have the same
    number of images with it. Each label needs at least two images that have it and two that lack
    it. A threshold is halfway between two scores. Of equally good thresholds, the lowest is chosen.
    """
    rng = seeded_generator(seed, "halves of labels")
    half = np.zeros(truth.present.shape, np.int64)
    labels = half.shape[1]
    values = np.empty((2, labels))
    for label in range(labels):
        for side in (truth.having, truth.lacking):
            images = np.flatnonzero(side[:, label])
            images = rng.permutation(images)
            half[images, label] = np.arange(len(images)) % 2
        for judged in (0, 1):
            chosen = truth.known[:, label]
            chosen = chosen & (half[:, label] != judged)
            worth = partial(_gain, truth.present[chosen, label])
            lowest, below = best_threshold(scores[chosen, label], worth)
            middle = (lowest + below) / 2
            values[judged, label] = middle if middle > below else lowest
    return LabelThresholds(half, values)


def _gain(present: Bools, order: Ints, last: Ints) -> Ints:
    """Return the difference of the two shares, multiplied by both numbers of images. Whole numbers
    keep ties exact."""
    hits = np.cumsum(present[order])[last]
    false = last + 1 - hits
    having = int(present.sum())
    lacking = len(present) - having
    return hits * lacking - false * having


# ---- Scores with intervals


def score_labels(
    scores: Sequence[AnyFloats],
    truth: LabelTruth,
    thresholds: LabelThresholds,
    seed: int,
    replicates: int = REPLICATES,
    units: Units | None = None,
    stage: str = "measuring",
) -> tuple[CategoryScores, ...]:
    """Score a classifier on the images of each group and on resamples of them. All groups share
    their resamples.

    scores: one array (n, k) per group; image i of every group is made from the same row.
    stage: what progress is reported of.
    """
    images, labels = truth.present.shape
    units = units or Units.of_images(images)
    answers = [thresholds.answers(group) for group in scores]

    def measured(group: int, weights: Weights) -> dict[str, Floats]:
        return {
            PRECISION: label_precision(scores[group], truth, weights),
            AUROC: label_auroc(scores[group], truth, weights),
            ACCURACY: label_accuracy(answers[group], truth, weights),
        }

    whole = np.ones((images, 1), np.int32)
    halves = units.halves(seed).T
    shape = (len(scores), len(AVERAGED), labels, replicates)
    draws = np.empty(shape, np.float32)
    rng = seeded_generator(seed, "images with several labels")
    step = max(1, _WEIGHTS_AT_ONCE // images)
    for start in range(0, replicates, step):
        block = slice(start, min(start + step, replicates))
        weights = units.drawn(block.stop - start, rng).T.copy()
        for group, group_draws in enumerate(draws):
            for number, values in enumerate(measured(group, weights).values()):
                group_draws[number][:, block] = values
        report_progress(stage, block.stop, replicates)
    having = units.counted(truth.having)
    lacking = units.counted(truth.lacking)
    least = np.minimum(having, lacking)
    results = []
    for group, group_draws in enumerate(draws):
        on_whole = measured(group, whole)
        # An area is a mean over pairs, and thresholds are chosen on other images: neither it nor
        # accuracy has a bias.
        on_halves = dict(on_whole)
        on_halves[PRECISION] = label_precision(scores[group], truth, halves)
        results.append(
            CategoryScores(
                values={measure: values[:, 0] for measure, values in on_whole.items()},
                draws=dict(zip(on_whole, group_draws, strict=True)),
                parts=on_halves,
                images=dict.fromkeys(AVERAGED, least),
                whole=units.count,
                bias_of_parts=_BIAS_OF_HALVES,
                by_units=units.shared,
            )
        )
    return tuple(results)


def label_accuracy(
    answers: Bools,
    truth: LabelTruth,
    weights: Weights,
) -> Floats:
    """Return the balanced accuracy of each label, (k, r).

    A resample in which all images that know the label have it, or all lack it, gives NaN.
    """
    drawn = weights.astype(np.float64)

    def share(side: Bools) -> Floats:
        right = side & (answers == truth.present)
        hits = right.T.astype(np.float64) @ drawn
        whole = side.T.astype(np.float64) @ drawn
        return ratio_or_nan(hits, whole)

    return (share(truth.having) + share(truth.lacking)) / 2
