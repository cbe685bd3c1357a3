"""The measures of a classifier that scores several labels of each image, as pure functions on arrays.

n images have k labels each: `present` (n, k) says which an image has, `scores` (n, k) are high for yes. Average
precision of a label is scikit-learn's (`average_precision_score`): precision at every image that has the label, without
interpolation, images of one score taken together. It is no mean over images, so a resample of images is a weight of
each. Accuracy is balanced: the mean of the shares of right answers among images with the label and among those without.
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
AVERAGED = (PRECISION, ACCURACY)  # over labels
# How many times their difference the value is too high, where halves score higher than the whole.
_BIAS_OF_HALVES = 1.0
_WEIGHTS_AT_ONCE = 1 << 22  # images of some resamples


def label_precision(
    scores: NDArray[np.floating], present: NDArray[np.bool_], weights: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return the average precision of each label, (k, r), in r resamples.

    weights: (n, r) how often each image is drawn. NaN where no image with the label is drawn.
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
    """Two thresholds of each label, chosen on one half of the base's images and used on the other.

    half: (n, k) the half, 0 or 1, of each image. values: (2, k), those that are used on each half.
    """

    half: NDArray[np.int64]
    values: NDArray[np.float64]

    def answers(self, scores: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Return which labels are given, (n, k): those whose score reaches the threshold of the image's half."""
        return scores >= np.take_along_axis(self.values, self.half, axis=0)


def choose_thresholds(scores: NDArray[np.floating], present: NDArray[np.bool_], seed: int) -> LabelThresholds:
    """Choose each label's thresholds of the highest balanced accuracy on either half of the images.

    Each label has halves of its own, with equally many images that have it. Needs two images with each label and two
    without. A threshold is halfway between two scores; of equally good ones the lowest.
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
    # The two shares' difference, times both numbers of images: whole numbers, so that ties are ties.
    gain = hits * int((~present).sum()) - false * int(present.sum())
    last = last_of_score[np.flatnonzero(gain == gain.max())[-1]]
    lowest, below = ranked[last], ranked[min(last + 1, len(ranked) - 1)]
    middle = (lowest + below) / 2
    return float(middle if middle > below else lowest)


# ---- Scores with intervals


@dataclass(frozen=True)
class LabelScores:
    """What a classifier scores on the images of one group: each of `AVERAGED` for each of k labels.

    values: (k,) each. draws: (k, r) in resamples. halves: (k, h) on halves of the images, which show how much too high
    a value is. images: (k,) that have the label or lack it, whichever are fewer. whole: all images.
    """

    values: Mapping[str, NDArray[np.float64]]
    draws: Mapping[str, NDArray[np.float32]]
    halves: Mapping[str, NDArray[np.float64]]
    images: NDArray[np.int64]
    whole: int

    def mean(self, measure: str, labels: Sequence[int]) -> Drawn:
        """Return the mean of a measure over labels, or one label's number; NaN without a label."""
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
    """Score a classifier on the images of each group and on resamples of them, those of all groups together.

    scores: of each group (n, k), image i of each made from the same row. done: is called with how many resamples are
    finished.
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
        # LabelThresholds are chosen on other images, so an accuracy is not too high.
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
    """Return the balanced accuracy of each label, (k, r); weights (n, r). NaN where only one kind of image is drawn."""
    drawn = weights.astype(np.float64)
    shares = []
    for has in (present, ~present):
        right = (has & (answers == present)).T.astype(np.float64) @ drawn
        whole = has.T.astype(np.float64) @ drawn
        shares.append(np.divide(right, whole, out=np.full(right.shape, np.nan), where=whole > 0))
    return (shares[0] + shares[1]) / 2
