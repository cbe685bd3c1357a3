"""Measures of several labels: scikit-learn's numbers on known labels, weights that repeat images,
DeLong's variance, resamples of units, thresholds chosen on other images.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from counterfoil.multilabel_stats import (
    ACCURACY,
    AUROC,
    AVERAGED,
    PRECISION,
    LabelTruth,
    choose_thresholds,
    label_accuracy,
    label_auroc,
    label_precision,
    score_labels,
)
from counterfoil.resampled_stats import Units
from support.estimates import interval_of

LABELS = 4


def drawn(
    seed: int, images: int = 60, decimals: int = 1, known: float = 0.7
) -> tuple[NDArray[np.float64], LabelTruth]:
    """Draw scores, many of them tied, and labels of different frequency, of which a share is
    known."""
    rng = np.random.default_rng(seed)
    present = rng.random((images, LABELS)) < (0.5, 0.3, 0.1, 0.8)
    present[:2] = True
    present[2:4] = False
    scores = np.round(rng.normal(present, 0.8), decimals)
    is_known = rng.random(present.shape) < known
    is_known[:4] = True
    return scores, LabelTruth(present, is_known)


@pytest.mark.parametrize(("seed", "known"), [(0, 1.0), (1, 0.7), (2, 0.3)])
def test_numbers_are_those_of_scikit_learn_on_the_images_that_know_a_label(
    seed: int, known: float
) -> None:
    scores, truth = drawn(seed, known=known)
    once = np.ones((len(scores), 1), np.int32)
    answers = scores > 0.5
    assert all(len(np.unique(column)) < len(column) for column in scores.T)
    precision = label_precision(scores, truth, once)
    area = label_auroc(scores, truth, once)
    accuracy = label_accuracy(answers, truth, once)
    for label in range(LABELS):
        rows = truth.known[:, label]
        has = truth.present[rows, label]
        values = scores[rows, label]
        assert precision[label, 0] == pytest.approx(average_precision_score(has, values), abs=1e-12)
        assert area[label, 0] == pytest.approx(roc_auc_score(has, values), abs=1e-12)
        expected = balanced_accuracy_score(has, answers[rows, label])
        assert accuracy[label, 0] == pytest.approx(expected, abs=1e-12)


def test_scores_of_minus_infinity_are_equal() -> None:
    """As logarithms of a probability of 0 are."""
    scores, truth = drawn(3)
    once = np.ones((len(scores), 1), np.int32)
    least = np.where(scores < 0.4, -99.0, scores)
    infinite = np.where(scores < 0.4, -np.inf, scores)
    for measure in (label_precision, label_auroc):
        expected = measure(least, truth, once)
        np.testing.assert_array_equal(
            measure(
                infinite,
                truth,
                once,
            ),
            expected,
        )
    answers = choose_thresholds(infinite, truth, 0).answers(infinite)
    assert (
        answers
        == choose_thresholds(
            least,
            truth,
            0,
        ).answers(least)
    ).all()


def test_what_an_unknown_label_says_changes_no_number() -> None:
    scores, truth = drawn(1)
    other = LabelTruth(np.where(truth.known, truth.present, ~truth.present), truth.known)
    noisy = np.where(truth.known, scores, 99.0)
    assert (
        choose_thresholds(noisy, other, 0).values == choose_thresholds(scores, truth, 0).values
    ).all()
    thresholds = choose_thresholds(scores, truth, 0)
    first, second = (
        score_labels([values], labels, thresholds, seed=0, replicates=20)[0]
        for values, labels in ((scores, truth), (noisy, other))
    )
    for measure in AVERAGED:
        assert (first.values[measure] == second.values[measure]).all()
        np.testing.assert_array_equal(first.draws[measure], second.draws[measure])
    assert (first.images[PRECISION] == second.images[PRECISION]).all()


@pytest.mark.parametrize("seed", range(2))
def test_a_weight_is_an_image_as_often_repeated(seed: int) -> None:
    scores, truth = drawn(seed)
    weights = np.random.default_rng(seed).integers(0, 3, (len(scores), 7)).astype(np.int32)
    weights[:4] = 1
    answers = scores > 0.5
    precision = label_precision(scores, truth, weights)
    area = label_auroc(scores, truth, weights)
    accuracy = label_accuracy(answers, truth, weights)
    for draw, repeats in enumerate(weights.T):
        for label in range(LABELS):
            rows = np.repeat(np.arange(len(scores)), repeats * truth.known[:, label])
            has = truth.present[rows, label]
            expected = average_precision_score(has, scores[rows, label])
            assert precision[label, draw] == pytest.approx(expected, abs=1e-12)
            assert area[label, draw] == pytest.approx(
                roc_auc_score(has, scores[rows, label]), abs=1e-12
            )
            expected = balanced_accuracy_score(has, answers[rows, label])
            assert accuracy[label, draw] == pytest.approx(expected, abs=1e-12)


def test_a_label_that_no_drawn_image_has_or_lacks_is_no_number() -> None:
    scores, truth = drawn(0)
    for side, numbers in ((truth.lacking, (True, True, True)), (truth.having, (False, True, True))):
        weights = side[:, :1].astype(np.int32)
        numbers_drawn = [
            label_precision(scores, truth, weights)[0, 0],
            label_auroc(scores, truth, weights)[0, 0],
            label_accuracy(scores > 0.5, truth, weights)[0, 0],
        ]
        assert tuple(np.isnan(numbers_drawn).tolist()) == numbers
    unknown = LabelTruth(truth.present, np.zeros_like(truth.known))
    assert np.isnan(label_auroc(scores, unknown, np.ones((len(scores), 1), np.int32))).all()


def test_scores_that_differ_in_their_last_digits_are_ranked() -> None:
    """Probabilities close to 1, as sigmoids of large logits are, differ only in double
    precision."""
    rng = np.random.default_rng(33)
    present = rng.random((60, 2)) < 0.4
    scores = 1 / (1 + np.exp(-(np.where(present, 22, 18) + 2 * rng.normal(size=(60, 2)))))
    once = np.ones((60, 1), np.int32)
    precision = label_precision(scores, LabelTruth(present, np.ones_like(present)), once)[:, 0]
    area = label_auroc(scores, LabelTruth(present, np.ones_like(present)), once)[:, 0]
    assert precision == pytest.approx(
        [average_precision_score(has, of) for has, of in zip(present.T, scores.T, strict=True)]
    )
    assert area == pytest.approx(
        [roc_auc_score(has, of) for has, of in zip(present.T, scores.T, strict=True)]
    )
    assert len(np.unique(scores.astype(np.float32))) < len(np.unique(scores))


def delong_variance(having: NDArray[np.float64], lacking: NDArray[np.float64]) -> float:
    """Return the variance of an AUROC (DeLong 1988), from all pairs by a plain double loop."""
    won = np.array([[float(a > b) + 0.5 * float(a == b) for b in lacking] for a in having])
    return float(
        won.mean(axis=1).var(ddof=1) / len(having) + won.mean(axis=0).var(ddof=1) / len(lacking)
    )


def test_the_interval_of_an_auroc_is_as_long_as_delongs() -> None:
    seed = 0
    scores, truth = drawn(seed, images=300, decimals=1)
    thresholds = choose_thresholds(scores, truth, seed)
    measured = score_labels([scores], truth, thresholds, seed, replicates=1500)[0]
    for label in range(LABELS):
        sides = (scores[side[:, label], label] for side in (truth.having, truth.lacking))
        error = delong_variance(*sides) ** 0.5
        number = measured.mean(AUROC, [label])
        assert float(np.std(number.drawn)) == pytest.approx(error, rel=0.15)
        estimate = number.interval()
        low, _, high = interval_of(estimate)
        assert high - low == pytest.approx(2 * 1.96 * error, rel=0.25)


def test_units_are_drawn_whole() -> None:
    """Numbers of resamples are those of a plain loop over units, and equal images count as one."""
    rng = np.random.default_rng(2)
    _, truth = drawn(2, images=30)
    units = Units.of(rng.integers(0, 12, 30) * 7)
    draws = units.drawn(40, np.random.default_rng(5))
    chosen = np.random.default_rng(5).integers(0, units.count, size=(40, units.count))
    for weights, drawn_units in zip(draws, chosen, strict=True):
        expected = np.zeros(30, int)
        for unit in drawn_units:
            expected[units.of_image == unit] += 1
        assert (weights == expected).all()
    halves = units.halves(seed=0)
    for half in halves:
        for unit in range(units.count):
            assert len(set(half[units.of_image == unit].tolist())) == 1
    assert (halves[: len(halves) // 2] + halves[len(halves) // 2 :] == 1).all()
    counted = units.counted(truth.having)
    for label in range(LABELS):
        assert counted[label] == len(set(units.of_image[truth.having[:, label]].tolist()))


def test_five_copies_of_every_image_leave_every_interval_as_it_is() -> None:
    scores, truth = drawn(5, images=80)
    thresholds = choose_thresholds(scores, truth, seed=0)
    single = score_labels([scores], truth, thresholds, seed=0, replicates=60)[0]
    copied = np.repeat(np.arange(80), 5)
    many = score_labels(
        [scores[copied]],
        truth.of(copied),
        type(thresholds)(thresholds.half[copied], thresholds.values),
        seed=0,
        replicates=60,
        units=Units.of(copied),
    )[0]
    assert many.whole == 80 and (many.images[PRECISION] == single.images[PRECISION]).all()
    for measure in AVERAGED:
        ends = [scored.mean(measure, range(LABELS)).interval() for scored in (single, many)]
        assert ends[0].low == pytest.approx(ends[1].low) and ends[0].high == pytest.approx(
            ends[1].high
        )


def test_images_of_their_own_units_are_drawn_as_without_units() -> None:
    scores, truth = drawn(6)
    thresholds = choose_thresholds(scores, truth, seed=0)
    plain = score_labels([scores], truth, thresholds, seed=3, replicates=30)[0]
    alone = score_labels(
        [scores], truth, thresholds, seed=3, replicates=30, units=Units.of(np.arange(60))
    )[0]
    for measure in AVERAGED:
        assert (plain.draws[measure] == alone.draws[measure]).all()
        assert (
            plain.mean(measure, range(LABELS)).interval()
            == alone.mean(measure, range(LABELS)).interval()
        )


def test_a_threshold_is_the_best_of_the_other_half() -> None:
    scores, truth = drawn(3, images=200)
    thresholds = choose_thresholds(scores, truth, seed=1)
    for label in range(LABELS):
        halves = thresholds.half[:, label]
        known = truth.known[:, label]
        for side in (truth.having, truth.lacking):
            counts = np.bincount(halves[side[:, label]], minlength=2)
            assert abs(counts[0] - counts[1]) <= 1
        for judged in (0, 1):
            chosen = known & (halves != judged)
            accuracies = {
                value: balanced_accuracy_score(
                    truth.present[chosen, label], scores[chosen, label] >= value
                )
                for value in np.unique(scores[chosen, label])
            }
            best = min(
                value
                for value, accuracy in accuracies.items()
                if accuracy > max(accuracies.values()) - 1e-12
            )
            below = max((value for value in accuracies if value < best), default=best)
            assert thresholds.values[judged, label] == pytest.approx((best + below) / 2)
    other = scores.copy()
    other[thresholds.half == 0] += 5  # what one half scores does not move its own threshold
    moved = choose_thresholds(other, truth, seed=1)
    assert (moved.values[0] == thresholds.values[0]).all() and (
        moved.values[1] != thresholds.values[1]
    ).any()


def test_accuracies_of_guesses_are_not_above_chance() -> None:
    """Thresholds chosen on the images that they judge would be right more often than half the
    time."""
    rng = np.random.default_rng(0)
    accuracies = []
    present = np.tile([True, False], (12,))[:, None].repeat(3, axis=1)
    truth = LabelTruth(present, np.ones_like(present))
    for seed in range(200):
        scores = rng.random((24, 3))
        answers = choose_thresholds(scores, truth, seed).answers(scores)
        accuracies.append(label_accuracy(answers, truth, np.ones((24, 1), np.int32)).mean())
    assert np.mean(accuracies) == pytest.approx(
        0.5, abs=3 * np.std(accuracies) / np.sqrt(len(accuracies))
    )


def test_groups_are_drawn_together() -> None:
    scores, truth = drawn(4, images=120)
    thresholds = choose_thresholds(scores, truth, seed=0)
    same = score_labels([scores, scores], truth, thresholds, seed=0, replicates=50)
    for measure in (PRECISION, AUROC, ACCURACY):
        assert (same[0].draws[measure] == same[1].draws[measure]).all()
        assert same[0].values[measure].mean() == pytest.approx(
            same[0].mean(measure, range(LABELS)).value
        )
    every = same[0].mean(PRECISION, range(LABELS)).interval()
    low, value, high = interval_of(every)
    assert low < value < high
