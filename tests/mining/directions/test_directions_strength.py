"""The interval of a strength: holds the truth about as often as it says, with units and without."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from counterfoil.mining.directions.strength import balanced_accuracy, strength_interval


def test_balanced_accuracy_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        right, predicted = rng.random(31) > 0.3, rng.random(31) > 0.4
        assert balanced_accuracy(right, predicted) == balanced_accuracy_score(right, predicted)


@pytest.mark.parametrize(("errors", "recalls"), [(5, (0.9, 0.6)), (5, (0.97, 0.97)), (40, (0.7, 0.8))])
def test_it_holds_the_truth_of_independent_rows(errors: int, recalls: tuple[float, float]) -> None:
    rng = np.random.default_rng(1)
    truth = np.arange(100) >= errors
    held = width = 0.0
    for _ in range(600):
        said = [np.where(truth, rng.random(100) < recalls[0], rng.random(100) >= recalls[1]) for _ in range(2)]
        low, high = strength_interval([truth, truth], said, None)
        held += low <= np.mean(recalls) <= high
        width += (high - low) / 600
    assert held / 600 >= 0.93
    # Not wider than the normal interval by much.
    variance = sum(share * (1 - share) / n for share, n in zip(recalls, (100 - errors, errors), strict=True)) / 8
    assert width < 2 * 1.96 * variance**0.5 + 0.1


def test_it_is_wider_where_rows_are_one_units() -> None:
    rng = np.random.default_rng(2)
    truth = np.arange(120) >= 40
    units = np.arange(120) // 5
    held, plain_held = 0, 0
    for _ in range(400):
        # Rows of a unit are recalled together.
        said = [np.where(np.repeat(rng.random(24) < 0.75, 5), truth, ~truth) for _ in range(2)]
        low, high = strength_interval([truth, truth], said, [units, units])
        held += low <= 0.75 <= high
        low, high = strength_interval([truth, truth], said, None)
        plain_held += low <= 0.75 <= high
    assert held / 400 >= 0.92
    assert plain_held / 400 < 0.8


def test_it_stays_open_where_all_errors_are_seen_and_holds_its_value() -> None:
    truth = np.arange(50) >= 5
    low, high = strength_interval([truth, truth], [truth, truth], None)
    assert high == 1
    assert 0.7 < low < 0.95
    units = np.arange(50) // 5
    assert strength_interval([truth, truth], [truth, truth], [units, units])[0] < low
    nothing = np.ones(50, np.bool_)
    low, high = strength_interval([truth, truth], [nothing, nothing], None)
    assert low < 0.5 < high
