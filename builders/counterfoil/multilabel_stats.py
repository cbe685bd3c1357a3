"""The measures of a classifier that scores several labels of each image, as pure functions on arrays.

There are n images and k labels. `present` (n, k) says which labels an image has; a high value in `scores` (n, k) means
that the classifier finds the label. The average precision of a label is that of scikit-learn
(`average_precision_score`): the mean precision over the images that have the label, without interpolation. Images of
equal score count together. Average precision is not a mean over images, so a resample gives each image a weight.
Accuracy is balanced: it is the mean of two shares of right answers, among the images with the label and among the
images without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.detection_stats import Drawn, halves_of_images, mean_over_categories
from counterfoil.stats import bootstrap_weights, seeded

REPLICATES = 1000
PRECISION, ACCURACY = "AP", "accuracy"
AVERAGED = (PRECISION, ACCURACY)  # measures that are averaged over labels
# The bias of a value is this many times the difference between the score of half of the images and of all images.
_BIAS_OF_HALVES = 1.0
_WEIGHTS_AT_ONCE = 1 << 22  # weights held in memory at once: resamples times images


def label_precision(
    scores: NDArray[np.floating], present: NDArray[np.bool_], weights: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the average precision of each label, (k, r), in r resamples.

    weights: (n, r) how often each image is drawn. A resample without an image that has the label gives NaN.
    """
    precision = np.empty((scores.shape[1], weights.shape[1]))
    for label, (values, has) in enumerate(zip(scores.T, present.T, strict=True)):
        order = np.argsort(-values, kind="stable")
        drawn, ranked = weights[order], has[order]
        last_of_score = np.flatnonzero(np.append(np.diff(values[order]) != 0, True))
        answered = np.cumsum(drawn, axis=0, dtype=np.int32)[last_of_score]
        hits = np.cumsum(drawn * ranked[:, None], axis=0, dtype=np.int32)[last_of_score]
        recalled = np.diff(hits, axis=0, prepend=0)
        sums = (recalled * (hits / np.maximum(answered, 1))).sum(axis=0)
        precision[label] = np.divide(sums, hits[-1], out=np.full(len(sums), np.nan), where=hits[-1] > 0)
    return precision


# ---- Thresholds


@dataclass(frozen=True)
class LabelThresholds:
    """Two thresholds for each label. Each is chosen on one half of the base's images and used on the other half.

    half: (n, k) the half, 0 or 1, that each image belongs to. values: (2, k) the thresholds that are used on each half.
    """

    half: NDArray[np.int64]
    values: NDArray[np.float64]

    def answers(self, scores: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return (n, k) bool: whether the score of each label reaches the threshold for the image's half."""
        return scores >= np.take_along_axis(self.values, self.half, axis=0)


def choose_thresholds(scores: NDArray[np.floating], present: NDArray[np.bool_], seed: int) -> LabelThresholds:
    """Choose, for each label and each half of the images, the threshold of the highest balanced accuracy.

    The images are halved anew for each label, so that both halves have the same number of images with the label. Each
    label needs at least two images that have it and two that lack it. A threshold is halfway between two scores. Of
    equally good thresholds, the lowest is chosen.
    """
    rng = seeded(seed, "halves of labels")
    half = np.empty(present.shape, np.int64)
    values = np.empty((2, present.shape[1]))
    for label in range(present.shape[1]):
        for has in (True, False):
            images = np.flatnonzero(present[:, label] == has)
            half[rng.permutation(images), label] = np.arange(len(images)) % 2
        for judged in (0, 1):
            chosen = half[:, label] != judged
            values[judged, label] = _best_threshold(scores[chosen, label], present[chosen, label])
    return LabelThresholds(half, values)


def _best_threshold(scores: NDArray[np.floating], present: NDArray[np.bool_]) -> float:
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last_of_score = np.flatnonzero(np.append(np.diff(ranked) != 0, True))
    hits = np.cumsum(present[order])[last_of_score]
    false = last_of_score + 1 - hits
    # The difference of the two shares, multiplied by both numbers of images. Whole numbers keep ties exact.
    gain = hits * int((~present).sum()) - false * int(present.sum())
    last = last_of_score[np.flatnonzero(gain == gain.max())[-1]]
    lowest, below = ranked[last], ranked[min(last + 1, len(ranked) - 1)]
    middle = (lowest + below) / 2
    return float(middle if middle > below else lowest)


# ---- Scores with intervals


@dataclass(frozen=True)
class LabelScores:
    """A classifier's scores on the images of one group: each measure of `AVERAGED` for each of k labels.

    values: (k,) on all images. draws: (k, r) in resamples. halves: (k, h) on halves of the images, from which the bias
    is estimated. images: (k,) the number of images that have the label or that lack it, whichever is smaller. whole:
    the number of all images.
    """

    values: Mapping[str, NDArray[np.float64]]
    draws: Mapping[str, NDArray[np.float32]]
    halves: Mapping[str, NDArray[np.float64]]
    images: NDArray[np.int64]
    whole: int

    def mean(self, measure: str, labels: Sequence[int]) -> Drawn:
        """Return the mean of a measure over labels; NaN without labels."""
        chosen = list(labels)
        images = self.images[chosen]
        return mean_over_categories(
            self.values[measure][chosen],
            self.draws[measure][chosen],
            self.halves[measure][chosen],
            images,
            int(images[0]) if len(chosen) == 1 else self.whole,
            _BIAS_OF_HALVES,
        )


def score_labels(
    scores: Sequence[NDArray[np.floating]],
    present: NDArray[np.bool_],
    thresholds: LabelThresholds,
    seed: int,
    replicates: int = REPLICATES,
    done: Callable[[int], None] = lambda replicate: None,
) -> tuple[LabelScores, ...]:
    """Score a classifier on the images of each group and on resamples of them. All groups share their resamples.

    scores: one array (n, k) per group; image i of every group is made from the same row. done: is called with the
    number of finished resamples.
    """
    images, labels = present.shape
    answers = [thresholds.answers(group) for group in scores]
    whole = np.ones((images, 1), np.int32)
    halves = halves_of_images(images, seed).T
    draws = [{measure: np.empty((labels, replicates), np.float32) for measure in AVERAGED} for _ in range(len(scores))]
    rng = seeded(seed, "images with several labels")
    step = max(1, _WEIGHTS_AT_ONCE // images)
    for start in range(0, replicates, step):
        block = slice(start, min(start + step, replicates))
        weights = bootstrap_weights(images, block.stop - start, rng).astype(np.int32).T.copy()
        for group_draws, group_scores, group_answers in zip(draws, scores, answers, strict=True):
            group_draws[PRECISION][:, block] = label_precision(group_scores, present, weights)
            group_draws[ACCURACY][:, block] = label_accuracy(group_answers, present, weights)
        done(block.stop)
    having = present.sum(axis=0)
    results = []
    for group_draws, group_scores, group_answers in zip(draws, scores, answers, strict=True):
        accuracy = label_accuracy(group_answers, present, whole)
        # LabelThresholds are chosen on other images, so the accuracy has no bias.
        results.append(
            LabelScores(
                {PRECISION: label_precision(group_scores, present, whole)[:, 0], ACCURACY: accuracy[:, 0]},
                group_draws,
                {PRECISION: label_precision(group_scores, present, halves), ACCURACY: accuracy},
                np.minimum(having, images - having),
                images,
            )
        )
    return tuple(results)


def label_accuracy(
    answers: NDArray[np.bool_], present: NDArray[np.bool_], weights: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the balanced accuracy of each label, (k, r), for weights (n, r).

    A resample in which all images have the label, or all lack it, gives NaN.
    """
    drawn = weights.astype(np.float64)
    shares = []
    for has in (present, ~present):
        right = (has & (answers == present)).T.astype(np.float64) @ drawn
        whole = has.T.astype(np.float64) @ drawn
        shares.append(np.divide(right, whole, out=np.full(right.shape, np.nan), where=whole > 0))
    return (shares[0] + shares[1]) / 2
