"""Rates of images that were drawn until the k-th failure: unbiased, covered, and right where a cap came first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from counterfoil.mining.bugs.stopped_rates import StoppedRate, stopped_rate

RUNS = 2000


def drawn(rng: np.random.Generator, rate: float, k: int) -> np.ndarray:
    """Images up to the k-th failure and to the end of its batch."""
    images = int(rng.negative_binomial(k, rate)) + k
    failed = np.zeros(images + int(rng.integers(0, 16)), bool)
    failed[images - 1] = True
    failed[rng.choice(images - 1, k - 1, replace=False)] = True
    failed[images:] = rng.random(len(failed) - images) < rate
    return failed


@pytest.mark.parametrize(("rate", "k"), [(0.05, 2), (0.05, 20), (0.3, 5), (0.8, 2), (0.8, 20)])
def test_it_is_unbiased_and_its_interval_covers(k: int, rate: float) -> None:
    rng = np.random.default_rng([17, k, round(100 * rate)])
    found = [stopped_rate(drawn(rng, rate, k), k) for _ in range(RUNS)]
    assert all(one.reached and one.k == k for one in found)
    rates = np.array([one.rate for one in found])
    error = rates.std() / np.sqrt(RUNS)
    assert rates.mean() == pytest.approx(rate, abs=4 * error)
    covered = np.mean([one.interval[0] <= rate <= one.interval[1] for one in found])
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / RUNS)
    assert all(one.interval[0] < one.rate < one.interval[1] or one.rate == 1 for one in found)


@pytest.mark.parametrize("k", [5, 20])
def test_failures_over_images_is_too_high(k: int) -> None:
    """What the estimate is for: at five failures by about a quarter of the rate, at twenty by a twentieth."""
    rng = np.random.default_rng([18, k])
    found = [stopped_rate(drawn(rng, 0.05, k), k) for _ in range(RUNS)]
    naive = np.mean([one.k / one.n for one in found]) / 0.05 - 1
    assert naive == pytest.approx({5: 0.23, 20: 0.05}[k], abs=0.03)


@pytest.mark.parametrize("cap", [60, 200])
def test_with_a_cap_the_interval_still_covers(cap: int) -> None:
    rng = np.random.default_rng([19, cap])
    found = [stopped_rate(rng.random(cap) < 0.1, 10) for _ in range(RUNS)]
    reached = np.mean([one.reached for one in found])
    assert 0.02 < reached < 0.999
    covered = np.mean([one.interval[0] <= 0.1 <= one.interval[1] for one in found])
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / RUNS)


def test_the_batch_goes_on_after_the_failure_and_does_not_count() -> None:
    failed = np.array([0, 1, 0, 0, 1, 1, 1, 0], bool)
    found = stopped_rate(failed, 2)
    assert (found.k, found.n, found.rate, found.reached) == (2, 5, 1 / 4, True)
    assert stopped_rate(failed[:5], 2) == found


def test_a_cap_gives_clopper_and_pearsons() -> None:
    failed = np.arange(30) % 10 == 3
    found = stopped_rate(failed, 20)
    assert (found.k, found.n, found.rate, found.reached) == (3, 30, 0.1, False)
    reference: Any = proportion_confint(3, 30, alpha=0.05, method="beta")
    assert found.interval == pytest.approx((float(reference[0]), float(reference[1])))


def test_nothing_and_all() -> None:
    found = stopped_rate(np.zeros(100, bool), 20)
    assert (found.rate, found.k, found.interval[0]) == (0, 0, 0)
    assert found.interval[1] == pytest.approx(1 - 0.025 ** (1 / 100))
    every = stopped_rate(np.ones(30, bool), 20)
    assert (every.n, every.rate, every.interval[1]) == (20, 1, 1)
    none = stopped_rate([], 20)
    assert np.isnan(none.rate) and (none.n, none.interval, none.reached) == (0, (0, 1), False)
    with pytest.raises(ValueError, match="at least 2"):
        stopped_rate([True], 1)
    with pytest.raises(ValueError, match="one array"):
        stopped_rate(np.ones((2, 2), bool), 2)


@given(st.lists(st.booleans(), max_size=60), st.integers(2, 12), st.sampled_from([0.5, 0.9, 0.99]))
def test_an_interval_holds_its_rate(failed: list[bool], k: int, level: float) -> None:
    found: StoppedRate = stopped_rate(failed, k, level)
    low, high = found.interval
    assert 0 <= low <= high <= 1
    assert found.reached == (sum(failed) >= k)
    if found.n:
        assert found.k == sum(failed[: found.n])
        assert low <= found.rate <= high
