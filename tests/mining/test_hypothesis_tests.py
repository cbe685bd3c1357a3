"""Tests of sets against the rest of their class: references, simulations where nothing is there, and edges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import test_proportions_2indep as score_test

from counterfoil.mining.hypothesis_tests import (
    FailureCount,
    count_failures,
    difference_interval,
    p_value,
    q_values,
    rate_interval,
    selected_level,
    smallest_difference,
)


def count(failures: int, rows: int) -> FailureCount:
    return FailureCount(rows, rows, failures, float(rows))


PAIRS = [((30, 60), (12, 90)), ((9, 20), (33, 100)), ((150, 200), (301, 700))]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_without_a_margin_p_is_that_of_statsmodels(a: tuple[int, int], b: tuple[int, int]) -> None:
    reference: Any = score_test(*a, *b, value=0, method="score", compare="diff", alternative="larger")
    assert p_value(count(*a), count(*b), 0) == pytest.approx(float(reference.pvalue), rel=1e-4)


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2])
def test_the_variance_is_taken_at_the_likeliest_rates_that_differ_by_the_margin(
    a: tuple[int, int], b: tuple[int, int], margin: float
) -> None:
    """Against a search over all rates. (statsmodels 0.15 takes rates here that are not the likeliest.)"""
    low = np.linspace(1e-6, 1 - margin - 1e-6, 200_001)
    parts = ((a, low + margin), (b, low))
    likelihood = sum(k * np.log(rate) + (n - k) * np.log(1 - rate) for (k, n), rate in parts)
    best = low[np.argmax(likelihood)]
    high = best + margin
    variance = high * (1 - high) / a[1] + best * (1 - best) / b[1]
    total = a[1] + b[1]
    z = (a[0] / a[1] - b[0] / b[1] - margin) / np.sqrt(variance * total / (total - 1))
    assert p_value(count(*a), count(*b), margin) == pytest.approx(float(stats.norm.sf(z)), rel=1e-4)


@pytest.mark.parametrize(
    ("a", "b"), [((0, 20), (0, 100)), ((20, 20), (0, 100)), ((20, 20), (100, 100)), ((0, 9), (9, 9))]
)
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_rates_of_nought_and_one_have_a_p_and_intervals(a: tuple[int, int], b: tuple[int, int], margin: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = p_value(count(*a), count(*b), margin)
        low, high = difference_interval(count(*a), count(*b)) or (np.nan, np.nan)
    assert 0 <= p <= 1
    assert p < 1e-6 if (a, b[0]) == ((20, 20), 0) else p > 0.05
    assert -1 <= low <= a[0] / a[1] - b[0] / b[1] <= high <= 1


def test_too_few_rows_show_nothing() -> None:
    assert p_value(count(4, 4), count(0, 200), 0.05) == 1
    assert rate_interval(count(0, 0)) is None
    assert difference_interval(count(3, 4), count(0, 0)) is None


def test_rows_of_one_unit_show_nothing() -> None:
    """One patient with sixty wrong images beside two with right ones: three observations."""
    failed = np.repeat([True, False, False], 60)
    counts = count_failures(failed, np.repeat([0, 1, 2], 60), failed)
    assert p_value(*counts, 0.05) == 1
    assert smallest_difference(*counts, 0.05, 0.1, 1) is None


def test_a_margin_that_any_test_would_pass_is_the_smallest_difference() -> None:
    assert smallest_difference(count(0, 500), count(50, 500), 0.05, 0.99, 1) is not None


def clustered(rng: np.random.Generator, units: int, rows: int, rate: float, alike: float) -> tuple[np.ndarray, ...]:
    """(failed, units) of rows whose units fail alike: each unit has a rate of its own, Beta-distributed."""
    a, b = rate * (1 - alike) / alike, (1 - rate) * (1 - alike) / alike
    own = rng.beta(a, b, units)
    return (rng.random((units, rows)) < own[:, None]).ravel(), np.repeat(np.arange(units), rows)


def test_rows_of_one_unit_count_for_less() -> None:
    rng = np.random.default_rng(1)
    failed, units = clustered(rng, 400, 8, 0.3, 0.4)
    nothing = np.zeros(len(failed), bool)
    _, rest = count_failures(failed, units, nothing)
    # Kish: 1 + (8 - 1) · .4
    assert rest.effective_rows == pytest.approx(3200 / 3.8, rel=0.15)
    alone = count_failures(failed, np.arange(len(failed)), nothing)[1]
    assert (alone.effective_rows, alone.rows, rest.units) == (3200, 3200, 400)


@pytest.mark.parametrize("difference", [0.0, 0.05])
def test_a_true_null_is_rejected_no_more_often_than_said(difference: float) -> None:
    """Rows of a garment share a rate, and a garment is in the set or not: the hard case for a test of rows."""
    rng = np.random.default_rng([2, round(100 * difference)])
    small = 0
    runs = 400
    for _ in range(runs):
        a, units_a = clustered(rng, 20, 4, 0.2 + difference, 0.3)
        b, units_b = clustered(rng, 60, 4, 0.2, 0.3)
        in_set = np.arange(len(a) + len(b)) < len(a)
        counts = count_failures(np.concatenate([a, b]), np.concatenate([units_a, units_b + 20]), in_set)
        small += p_value(*counts, 0.05) <= 0.1
    # At the border of H0 a tenth of the runs, give or take three standard errors; inside it fewer.
    assert small / runs <= 0.1 + 3 * np.sqrt(0.09 / runs)
    assert difference == 0 or small > 0


def test_intervals_cover_clustered_rates() -> None:
    rng = np.random.default_rng(3)
    covered, runs = 0, 300
    for _ in range(runs):
        a, units_a = clustered(rng, 25, 4, 0.5, 0.3)
        b, units_b = clustered(rng, 60, 4, 0.2, 0.3)
        in_set = np.arange(len(a) + len(b)) < len(a)
        counts = count_failures(np.concatenate([a, b]), np.concatenate([units_a, units_b + 25]), in_set)
        low, high = difference_interval(*counts) or (1, 0)
        covered += low <= 0.3 <= high
    assert covered / runs >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_rate_of_fifteen_patients_of_twenty_rows_is_covered() -> None:
    """Rows divided by the ANOVA estimate of how alike they are cover 86 %; all cells are in `prove_intervals.py`."""
    rng = np.random.default_rng(5)
    covered, runs = 0, 300
    for _ in range(runs):
        failed, units = clustered(rng, 15, 20, 0.1, 0.3)
        low, high = rate_interval(count_failures(failed, units, np.ones(len(failed), bool))[0]) or (1, 0)
        covered += low <= 0.1 <= high
    assert covered / runs >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / runs)


def test_no_failure_among_patients_is_bounded_by_patients() -> None:
    nothing = np.zeros(300, bool)
    found = rate_interval(count_failures(nothing, np.repeat(np.arange(15), 20), ~nothing)[0])
    assert found == (0.0, pytest.approx(1 - 0.025 ** (1 / 15)))


@pytest.mark.parametrize("alike", [0.1, 0.8])
def test_a_null_of_few_patients_is_rejected_no_more_often_than_said(alike: float) -> None:
    rng = np.random.default_rng(6)
    in_set, units = np.repeat([True, False], [100, 200]), np.repeat(np.arange(15), 20)
    runs, level = 300, 0.02
    small = 0
    for _ in range(runs):
        failed = clustered(rng, 15, 20, 0.3, alike)[0]
        small += p_value(*count_failures(failed, units, in_set), 0) <= level
    assert small / runs <= level + 2.5 * np.sqrt(level * (1 - level) / runs)


def test_q_values_are_benjamini_and_hochbergs_and_widen_what_is_reported() -> None:
    p = [0.001, 0.02, 0.03, 0.8]
    assert q_values(p) == pytest.approx(stats.false_discovery_control(p))
    assert q_values([]) == []
    assert selected_level(1, 20, 0.1) == pytest.approx(0.995)
    assert selected_level(20, 20, 0.1) == pytest.approx(0.9)
    wide, usual = (difference_interval(count(9, 20), count(10, 100), level) for level in (0.995, 0.95))
    assert wide is not None and usual is not None and wide[0] < usual[0] < usual[1] < wide[1]


def test_the_smallest_difference_is_one_that_is_shown_four_times_in_five() -> None:
    in_set, rest = count(0, 80), count(32, 320)
    smallest = smallest_difference(in_set, rest, 0.05, 0.1, 4)
    assert smallest is not None and 0.05 < smallest < 0.5
    rng = np.random.default_rng(4)
    shown = [
        p_value(count(int(rng.binomial(80, 0.1 + smallest)), 80), count(int(rng.binomial(320, 0.1)), 320), 0.05)
        <= 0.1 / 4
        for _ in range(300)
    ]
    assert np.mean(shown) == pytest.approx(0.8, abs=0.1)
    assert smallest_difference(count(0, 4), rest, 0.05, 0.1, 4) is None
    more = smallest_difference(count(0, 800), count(320, 3200), 0.05, 0.1, 4)
    assert more is not None and more < smallest


@given(st.integers(5, 60), st.integers(5, 60), st.data())
def test_more_failures_in_the_set_never_raise_p(rows: int, others: int, data: st.DataObject) -> None:
    few = data.draw(st.integers(0, rows - 1))
    rest = count(data.draw(st.integers(0, others)), others)
    assert p_value(count(few + 1, rows), rest, 0.05) <= p_value(count(few, rows), rest, 0.05) + 1e-6
