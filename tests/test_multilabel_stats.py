"""Measures of several labels: scikit-learn's numbers, weights that repeat images, thresholds chosen on other images."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, balanced_accuracy_score

from counterfoil.multilabel_stats import (
    ACCURACY,
    PRECISION,
    choose_thresholds,
    label_accuracy,
    label_precision,
    score_labels,
)

LABELS = 4


def drawn(seed: int, images: int = 60, decimals: int = 1) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw scores, many of them tied, and labels of different frequency."""
    rng = np.random.default_rng(seed)
    present = rng.random((images, LABELS)) < (0.5, 0.3, 0.1, 0.8)
    present[:2], present[2:4] = True, False
    return np.round(rng.normal(present, 0.8), decimals), present


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_that_of_scikit_learn_ties_included(seed: int) -> None:
    scores, present = drawn(seed)
    assert all(len(np.unique(column)) < len(column) for column in scores.T)
    once = label_precision(scores, present, np.ones((len(scores), 1), np.int32))[:, 0]
    expected = [average_precision_score(has, column) for has, column in zip(present.T, scores.T, strict=True)]
    assert once == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_weight_is_an_image_as_often_repeated(seed: int) -> None:
    scores, present = drawn(seed)
    weights = np.random.default_rng(seed).integers(0, 3, (len(scores), 7)).astype(np.int32)
    answers = scores > 0.5
    precision, accuracy = label_precision(scores, present, weights), label_accuracy(answers, present, weights)
    for draw, repeats in enumerate(weights.T):
        rows = np.repeat(np.arange(len(scores)), repeats)
        for label in range(LABELS):
            has = present[rows, label]
            expected = average_precision_score(has, scores[rows, label])
            assert precision[label, draw] == pytest.approx(expected, abs=1e-12)
            expected = balanced_accuracy_score(has, answers[rows, label])
            assert accuracy[label, draw] == pytest.approx(expected, abs=1e-12)


def test_a_label_that_no_drawn_image_has_is_no_number() -> None:
    scores, present = drawn(0)
    weights = (~present[:, :1]).astype(np.int32)
    assert np.isnan(label_precision(scores, present, weights)[0, 0])
    assert np.isnan(label_accuracy(scores > 0.5, present, weights)[0, 0])


def test_a_threshold_is_the_best_of_the_other_half() -> None:
    scores, present = drawn(3, images=200)
    thresholds = choose_thresholds(scores, present, seed=1)
    for label in range(LABELS):
        halves = thresholds.half[:, label]
        for has in (True, False):
            counts = np.bincount(halves[present[:, label] == has], minlength=2)
            assert abs(counts[0] - counts[1]) <= 1
        for judged in (0, 1):
            chosen = halves != judged
            accuracies = {
                value: balanced_accuracy_score(present[chosen, label], scores[chosen, label] >= value)
                for value in np.unique(scores[chosen, label])
            }
            best = min(value for value, accuracy in accuracies.items() if accuracy > max(accuracies.values()) - 1e-12)
            below = max((value for value in accuracies if value < best), default=best)
            assert thresholds.values[judged, label] == pytest.approx((best + below) / 2)
    other = scores.copy()
    other[thresholds.half == 0] += 5  # what one half scores does not move its own threshold
    moved = choose_thresholds(other, present, seed=1)
    assert (moved.values[0] == thresholds.values[0]).all() and (moved.values[1] != thresholds.values[1]).any()


def test_accuracies_of_guesses_are_not_above_chance() -> None:
    """Thresholds chosen on the images that they judge would be right more often than half the time."""
    rng = np.random.default_rng(0)
    accuracies = []
    for seed in range(200):
        scores, present = rng.random((24, 3)), np.tile([True, False], (12,))[:, None].repeat(3, axis=1)
        answers = choose_thresholds(scores, present, seed).answers(scores)
        accuracies.append(label_accuracy(answers, present, np.ones((24, 1), np.int32)).mean())
    assert np.mean(accuracies) == pytest.approx(0.5, abs=3 * np.std(accuracies) / np.sqrt(len(accuracies)))


def test_groups_are_drawn_together() -> None:
    scores, present = drawn(4, images=120)
    thresholds = choose_thresholds(scores, present, seed=0)
    same = score_labels([scores, scores], present, thresholds, seed=0, replicates=50)
    for measure in (PRECISION, ACCURACY):
        assert (same[0].draws[measure] == same[1].draws[measure]).all()
        assert same[0].values[measure].mean() == pytest.approx(same[0].mean(measure, range(LABELS)).value)
    every = same[0].mean(PRECISION, range(LABELS)).interval()
    assert every.low is not None and every.high is not None and every.low < every.value < every.high
