"""Intervals, bootstraps, tests and corrections: references of other libraries, simulations, and
edges; one of each."""

from __future__ import annotations

import re
import warnings
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.proportion import test_proportions_2indep as reference_test

from counterfoil.sequential_stats import StoppedRate, sequential_p, stopped_rate
from counterfoil.stats import (
    NORMAL,
    FailureCount,
    balanced_accuracy_interval,
    benjamini_hochberg,
    bootstrap_weights,
    chance_line,
    clustered_interval,
    clustered_rates,
    count_failures,
    effective_size,
    false_coverage_level,
    few_units_interval,
    holm_adjusted,
    matched_rates,
    newcombe_interval,
    percentile_ends,
    percentile_interval,
    rate_interval,
    score_test,
    sign_test,
    simultaneous_reach,
    smallest_difference,
    unit_correlation,
    wilson_estimate,
    wilson_interval,
    wilson_intervals,
    wilson_reach,
)

PACKAGE = Path(__file__).parents[1] / "builders" / "counterfoil"


@given(
    st.floats(0.001, 3000).flatmap(
        lambda n: st.tuples(st.floats(0, 1).map(lambda share: share * n), st.just(n))
    )
)
def test_intervals_are_wilsons(counts: tuple[float, float]) -> None:
    """Counts are fractional here."""
    low, high = wilson_interval(*counts)
    assert (low, high) == pytest.approx(proportion_confint(*counts, method="wilson"), abs=1e-9)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


@pytest.mark.parametrize(("correct", "total"), [(0, 5), (5, 5), (37, 50), (1, 1000)])
def test_an_estimate_has_wilsons_interval(correct: int, total: int) -> None:
    estimate = wilson_estimate(correct, total)
    assert estimate.value == correct / total
    reference = proportion_confint(correct, total, method="wilson")
    assert (estimate.low, estimate.high) == pytest.approx(reference)


@given(total=st.integers(1, 1000), data=st.data())
def test_arrays_of_shares_have_the_intervals_of_each(total: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, total))
    low, high = wilson_intervals(np.array([correct / total]), total)
    estimate = wilson_estimate(correct, total)
    assert (low.item(), high.item()) == pytest.approx((estimate.low, estimate.high), abs=1e-12)


def test_a_share_of_nothing_may_be_any() -> None:
    assert wilson_interval(0, 0) == (0, 1)
    assert wilson_interval(0, 10)[0] == 0 and wilson_interval(10, 10)[1] == 1


def units_of(rng: np.random.Generator, rows: np.ndarray, rate: float, alike: float) -> np.ndarray:
    """Draw failures of units whose rates are Beta-distributed."""
    spread = (1 - alike) / alike
    return rng.binomial(rows, rng.beta(rate * spread, (1 - rate) * spread, len(rows)))


@pytest.mark.parametrize("alike", [0.05, 0.4])
def test_many_units_tell_how_alike_their_rows_are(alike: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat([3, 8, 20], 300)
    parts = [(units_of(rng, rows, rate, alike), rows) for rate in (0.2, 0.6)]
    assert unit_correlation(*parts) == pytest.approx(alike, abs=0.03), (
        "each part around its own share"
    )
    assert effective_size(rows, alike) == pytest.approx(
        rows.sum() / (1 + alike * ((rows**2).sum() / rows.sum() - 1))
    )


# of tables of t
@pytest.mark.parametrize(("units", "quantile"), [(6, 2.228139), (3, 2.776445), (21, 2.021075)])
def test_few_units_widen_the_interval_as_twice_their_degrees_of_freedom_say(
    units: int, quantile: float
) -> None:
    low, high = few_units_interval(0.3, 40.0, units)
    rows = 40.0 * (1.959964 / quantile) ** 2
    assert special.betainc(0.3 * rows, 0.7 * rows + 1, low) == pytest.approx(0.025, rel=1e-3)
    assert special.betainc(0.3 * rows + 1, 0.7 * rows, high) == pytest.approx(0.975, rel=1e-3)


def test_rows_that_are_units_have_the_interval_of_rows() -> None:
    failed = np.arange(30) < 9
    assert unit_correlation((failed, np.ones(30))) == 0 and effective_size(np.ones(30), 0) == 30
    assert clustered_interval(failed, np.ones(30)) == wilson_interval(9, 30)


@pytest.mark.parametrize("units", [1, 5, 40])
def test_where_no_row_fails_or_every_one_the_bound_is_exact_on_units(units: int) -> None:
    rows = np.arange(1, units + 1) * 10
    none = clustered_interval(rows * 0, rows)
    every = clustered_interval(rows, rows)
    if units > 1:
        assert none == pytest.approx(proportion_confint(0, units, method="beta"))
        assert every == pytest.approx(proportion_confint(units, units, method="beta"))
    assert few_units_interval(0.0, 1000.0, units) == none


def test_the_interval_is_that_of_rows_that_share_units() -> None:
    failed = np.array([3, 0, 9, 1, 4])
    images = np.array([10, 4, 10, 7, 5])
    [rate] = clustered_rates(failed[:, None], images)
    assert rate.value == 17 / 36 and (rate.low, rate.high) == clustered_interval(failed, images)


def test_images_that_fail_together_tell_less_than_so_many_alone() -> None:
    images = np.full(12, 25)
    together = np.where(np.arange(12) < 6, 25, 0)[:, None]
    [clustered] = clustered_rates(together, images)
    alone = wilson_estimate(150, 300)
    assert (
        clustered.low is not None
        and clustered.high is not None
        and alone.low is not None
        and alone.high is not None
    )
    assert clustered.high - clustered.low > 3 * (alone.high - alone.low)


def test_a_single_caption_has_the_interval_of_its_images() -> None:
    assert clustered_rates(np.array([[3, 0]]), np.array([10])) == [
        wilson_estimate(3, 10),
        wilson_estimate(0, 10),
    ]


def test_captions_that_all_agree_are_no_certainty() -> None:
    rates = clustered_rates(np.array([[50, 0], [50, 0], [9, 0]]), np.array([50, 50, 9]))
    bound = 0.025 ** (1 / 3)
    assert [(rate.low, rate.high) for rate in rates] == [
        pytest.approx((bound, 1.0)),
        pytest.approx((0.0, 1 - bound)),
    ]


def test_no_model_changes_another() -> None:
    images = np.array([4, 9, 2, 7])
    failed = np.array([[1, 4], [0, 2], [2, 0], [5, 1]])
    both = clustered_rates(failed, images)
    assert [clustered_rates(failed[:, [column]], images)[0] for column in (0, 1)] == both


def test_the_base_is_mixed_as_the_images_are() -> None:
    failed = np.array([[1, 10], [5, 0], [7, 7]])
    images = np.array([10, 10, 0])
    rates = matched_rates(failed, images, np.array([30, 10, 99]))
    assert rates is not None and rates.tolist() == pytest.approx(
        [(30 * 0.1 + 10 * 0.5) / 40, 30 / 40]
    )
    assert matched_rates(failed, images, np.array([0, 0, 5])) is None, "no image of that class"


def test_percentile_ends_are_those_of_each_interval() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 0.3, (3, 2))
    drawn = rng.normal(0, 0.3, (500, 3, 2))
    beside = np.abs(rng.normal(0, 0.4, (2, 3, 2)))
    beside[:, 0] = 0.0
    drawn[7] = np.nan
    low, high = percentile_ends(values, drawn, beside)
    for at in np.ndindex(3, 2):
        below, above = beside[:, *at].tolist()
        interval = percentile_interval(float(values[at]), drawn[:, *at], (below, above))
        assert (low[at], high[at]) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert np.isnan(percentile_ends(values, drawn[6:8], beside)).all()


def test_percentile_interval_equals_sorted_positions() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1001.0))
    estimate = percentile_interval(500.0, np.append(values, np.nan))
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((500.0, 25.0, 975.0))
    assert percentile_interval(0.5, np.array([np.nan])).low is None
    opened = percentile_interval(500.0, values, (500.0, 0.0), least=-np.inf)
    assert (opened.low, opened.high) == pytest.approx((500 - np.hypot(475, 500), 1.0)), (
        "no end is over 1"
    )


@given(first=st.integers(0, 30), second=st.integers(0, 30))
def test_the_sign_test_is_the_two_sided_binomial(first: int, second: int) -> None:
    n = first + second
    tail = sum(comb(n, k) for k in range(min(first, second) + 1)) / 2**n
    assert sign_test(first, second) == pytest.approx(min(1.0, 2 * tail), abs=1e-12)
    assert sign_test(first, second) == sign_test(second, first)


def test_holm_is_the_step_down_of_its_definition() -> None:
    p_values = [0.01, 0.04, 0.03, 0.5]
    expected = dict[int, float]()
    largest = 0.0
    for rank, index in enumerate(np.argsort(p_values)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        expected[int(index)] = largest
    assert holm_adjusted(p_values) == pytest.approx([expected[index] for index in range(4)])
    assert holm_adjusted([]) == []


@given(
    st.lists(
        st.sampled_from([0.0, 1e-9, 0.001, 0.01, 0.02, 0.04, 0.5, 1.0]) | st.floats(0, 1),
        min_size=1,
        max_size=40,
    )
)
def test_holm_is_that_of_statsmodels(p_values: list[float]) -> None:
    assert holm_adjusted(p_values) == pytest.approx(
        list(multipletests(p_values, method="holm")[1]), abs=1e-15
    )


STOPPED_RUNS = 1000


def drawn_until(rng: np.random.Generator, rate: float, k: int) -> np.ndarray:
    """Draw images up to the k-th failure and to the end of its batch."""
    images = int(rng.negative_binomial(k, rate)) + k
    failed = np.zeros(images + int(rng.integers(0, 16)), bool)
    failed[images - 1] = True
    failed[rng.choice(images - 1, k - 1, replace=False)] = True
    failed[images:] = rng.random(len(failed) - images) < rate
    return failed


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize(("rate", "k"), [(0.05, 2), (0.3, 5), (0.8, 20)])
def test_it_is_unbiased_and_its_interval_covers(k: int, rate: float) -> None:
    rng = np.random.default_rng([17, k, round(100 * rate)])
    runs = [stopped_rate(drawn_until(rng, rate, k), k) for _ in range(STOPPED_RUNS)]
    assert all(run.reached and run.k == k for run in runs)
    rates = np.array([run.rate for run in runs])
    error = rates.std() / np.sqrt(STOPPED_RUNS)
    assert rates.mean() == pytest.approx(rate, abs=4 * error)
    covered = np.mean([run.interval[0] <= rate <= run.interval[1] for run in runs])
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / STOPPED_RUNS)
    assert all(run.interval[0] < run.rate < run.interval[1] or run.rate == 1 for run in runs)


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("cap", [60, 200])
def test_with_a_cap_the_interval_still_covers(cap: int) -> None:
    rng = np.random.default_rng([19, cap])
    estimates = [stopped_rate(rng.random(cap) < 0.1, 10) for _ in range(STOPPED_RUNS)]
    reached = np.mean([estimate.reached for estimate in estimates])
    assert 0.02 < reached < 0.999
    covered = np.mean(
        [estimate.interval[0] <= 0.1 <= estimate.interval[1] for estimate in estimates]
    )
    assert covered >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / STOPPED_RUNS)


def test_the_batch_goes_on_after_the_failure_and_does_not_count() -> None:
    failed = np.array([0, 1, 0, 0, 1, 1, 1, 0], bool)
    estimate = stopped_rate(failed, 2)
    assert (estimate.k, estimate.n, estimate.rate, estimate.reached) == (2, 5, 1 / 4, True)
    assert stopped_rate(failed[:5], 2) == estimate


def test_a_cap_gives_clopper_and_pearsons() -> None:
    failed = np.arange(30) % 10 == 3
    estimate = stopped_rate(failed, 20)
    assert (estimate.k, estimate.n, estimate.rate, estimate.reached) == (3, 30, 0.1, False)
    reference: Any = proportion_confint(3, 30, alpha=0.05, method="beta")
    assert estimate.interval == pytest.approx((float(reference[0]), float(reference[1])))


def test_nothing_and_all() -> None:
    estimate = stopped_rate(np.zeros(100, bool), 20)
    assert (estimate.rate, estimate.k, estimate.interval[0]) == (0, 0, 0)
    assert estimate.interval[1] == pytest.approx(1 - 0.025 ** (1 / 100))
    every = stopped_rate(np.ones(30, bool), 20)
    assert (every.n, every.rate, every.interval[1]) == (20, 1, 1)
    none = stopped_rate([], 20)
    assert np.isnan(none.rate) and (none.n, none.interval, none.reached) == (0, (0, 1), False)


@given(st.lists(st.booleans(), max_size=60), st.integers(2, 12))
def test_an_interval_holds_its_rate(failed: list[bool], k: int) -> None:
    estimate: StoppedRate = stopped_rate(failed, k)
    low, high = estimate.interval
    assert 0 <= low <= high <= 1
    assert estimate.reached == (sum(failed) >= k)
    if estimate.n:
        assert estimate.k == sum(failed[: estimate.n])
        assert low <= estimate.rate <= high


def count_of(failures: int, rows: int) -> FailureCount:
    return FailureCount(rows, rows, failures, float(rows))


SETS = [((30, 60), (12, 90)), ((9, 20), (33, 100)), ((150, 200), (301, 700))]


@pytest.mark.parametrize(("a", "b"), SETS)
def test_without_a_margin_p_is_that_of_statsmodels(a: tuple[int, int], b: tuple[int, int]) -> None:
    reference: Any = reference_test(
        *a, *b, value=0, method="score", compare="diff", alternative="larger"
    )
    assert score_test(count_of(*a), count_of(*b), 0) == pytest.approx(
        float(reference.pvalue), rel=1e-4
    )


@pytest.mark.parametrize(("a", "b"), SETS)
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2])
def test_the_variance_is_taken_at_the_likeliest_rates_that_differ_by_the_margin(
    a: tuple[int, int], b: tuple[int, int], margin: float
) -> None:
    """Compare with a search over all rates. (statsmodels 0.15 takes rates here that are not the
    likeliest.)"""
    low = np.linspace(1e-6, 1 - margin - 1e-6, 200_001)
    parts = ((a, low + margin), (b, low))
    likelihood = sum(k * np.log(rate) + (n - k) * np.log(1 - rate) for (k, n), rate in parts)
    best = low[np.argmax(likelihood)]
    high = best + margin
    variance = high * (1 - high) / a[1] + best * (1 - best) / b[1]
    total = a[1] + b[1]
    z = (a[0] / a[1] - b[0] / b[1] - margin) / np.sqrt(variance * total / (total - 1))
    assert score_test(count_of(*a), count_of(*b), margin) == pytest.approx(
        float(stats.norm.sf(z)), rel=1e-4
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [((0, 20), (0, 100)), ((20, 20), (0, 100)), ((20, 20), (100, 100)), ((0, 9), (9, 9))],
)
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_rates_of_nought_and_one_have_a_p_and_intervals(
    a: tuple[int, int], b: tuple[int, int], margin: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = score_test(count_of(*a), count_of(*b), margin)
        low, high = newcombe_interval(count_of(*a), count_of(*b)) or (np.nan, np.nan)
    assert 0 <= p <= 1
    assert p < 1e-6 if (a, b[0]) == ((20, 20), 0) else p > 0.05
    assert -1 <= low <= a[0] / a[1] - b[0] / b[1] <= high <= 1


def test_too_few_rows_show_nothing() -> None:
    assert score_test(count_of(4, 4), count_of(0, 200), 0.05) == 1
    assert rate_interval(count_of(0, 0)) is None
    assert newcombe_interval(count_of(3, 4), count_of(0, 0)) is None


def test_rows_of_one_unit_show_nothing() -> None:
    """One patient with sixty wrong images beside two with right ones: three observations."""
    failed = np.repeat([True, False, False], 60)
    counts = count_failures(failed, np.repeat([0, 1, 2], 60), failed)
    assert score_test(*counts, 0.05) == 1
    assert smallest_difference(*counts, 0.05, 0.1, 1) is None


def test_a_margin_that_any_test_would_pass_is_the_smallest_difference() -> None:
    assert smallest_difference(count_of(0, 500), count_of(50, 500), 0.05, 0.99, 1) is not None


def drawn_units(
    rng: np.random.Generator, units: int, rows: int, rate: float, alike: float
) -> tuple[np.ndarray, ...]:
    """Draw (failed, units) of rows whose units fail alike: each unit has its Beta-distributed
    rate."""
    a = rate * (1 - alike) / alike
    b = (1 - rate) * (1 - alike) / alike
    rates = rng.beta(a, b, units)
    return (rng.random((units, rows)) < rates[:, None]).ravel(), np.repeat(np.arange(units), rows)


def drawn_counts(
    rng: np.random.Generator, units: int, rate: float
) -> tuple[FailureCount, FailureCount]:
    """Draw the counts of a set, whose units fail at this rate, and of a rest of 60 units that fail
    at 20 %."""
    a, units_a = drawn_units(rng, units, 4, rate, 0.3)
    b, units_b = drawn_units(rng, 60, 4, 0.2, 0.3)
    in_set = np.arange(len(a) + len(b)) < len(a)
    return count_failures(
        np.concatenate([a, b]), np.concatenate([units_a, units_b + units]), in_set
    )


def test_rows_of_one_unit_count_for_less() -> None:
    rng = np.random.default_rng(1)
    failed, units = drawn_units(rng, 400, 8, 0.3, 0.4)
    nothing = np.zeros(len(failed), bool)
    _, rest = count_failures(failed, units, nothing)
    # Kish: 1 + (8 - 1) · .4
    assert rest.effective_rows == pytest.approx(3200 / 3.8, rel=0.15)
    alone = count_failures(failed, np.arange(len(failed)), nothing)[1]
    assert (alone.effective_rows, alone.rows, rest.units) == (3200, 3200, 400)


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("difference", [0.0, 0.05])
def test_a_true_null_is_rejected_no_more_often_than_said(difference: float) -> None:
    """Rows of a garment share a rate, and a garment is in the set or not: the hard case for a test
    of rows."""
    rng = np.random.default_rng([2, round(100 * difference)])
    small = 0
    runs = 400
    for _ in range(runs):
        counts = drawn_counts(rng, 20, 0.2 + difference)
        small += score_test(*counts, 0.05) <= 0.1
    # At the border of H0 a tenth of the runs reject, within three standard errors; inside it fewer.
    assert small / runs <= 0.1 + 3 * np.sqrt(0.09 / runs)
    assert difference == 0 or small > 0


@pytest.mark.release(of="statistics")
def test_intervals_cover_clustered_rates() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    runs = 300
    for _ in range(runs):
        counts = drawn_counts(rng, 25, 0.5)
        low, high = newcombe_interval(*counts) or (1, 0)
        covered += low <= 0.3 <= high
    assert covered / runs >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.release(of="statistics")
def test_a_rate_of_fifteen_patients_of_twenty_rows_is_covered() -> None:
    """Rows divided by the ANOVA estimate of how alike they are cover 86 %; all cells are in
    `prove_intervals.py`."""
    rng = np.random.default_rng(5)
    covered = 0
    runs = 300
    for _ in range(runs):
        failed, units = drawn_units(rng, 15, 20, 0.1, 0.3)
        low, high = rate_interval(count_failures(failed, units, np.ones(len(failed), bool))[0]) or (
            1,
            0,
        )
        covered += low <= 0.1 <= high
    assert covered / runs >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / runs)


def test_no_failure_among_patients_is_bounded_by_patients() -> None:
    nothing = np.zeros(300, bool)
    interval = rate_interval(count_failures(nothing, np.repeat(np.arange(15), 20), ~nothing)[0])
    assert interval == (0.0, pytest.approx(1 - 0.025 ** (1 / 15)))


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("alike", [0.1, 0.8])
def test_a_null_of_few_patients_is_rejected_no_more_often_than_said(alike: float) -> None:
    rng = np.random.default_rng(6)
    in_set = np.repeat([True, False], [100, 200])
    units = np.repeat(np.arange(15), 20)
    runs = 300
    level = 0.02
    small = 0
    for _ in range(runs):
        failed = drawn_units(rng, 15, 20, 0.3, alike)[0]
        small += score_test(*count_failures(failed, units, in_set), 0) <= level
    assert small / runs <= level + 2.5 * np.sqrt(level * (1 - level) / runs)


def test_q_values_are_benjamini_and_hochbergs_and_widen_what_is_reported() -> None:
    p = [0.001, 0.02, 0.03, 0.8]
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))
    assert benjamini_hochberg([]) == []
    assert false_coverage_level(1, 20, 0.1) == pytest.approx(0.995)
    assert false_coverage_level(20, 20, 0.1) == pytest.approx(0.9)
    wide, usual = (
        newcombe_interval(count_of(9, 20), count_of(10, 100), level) for level in (0.995, 0.95)
    )
    assert wide is not None and usual is not None and wide[0] < usual[0] < usual[1] < wide[1]


def test_the_smallest_difference_is_one_that_is_shown_four_times_in_five() -> None:
    in_set = count_of(0, 80)
    rest = count_of(32, 320)
    smallest = smallest_difference(in_set, rest, 0.05, 0.1, 4)
    assert smallest is not None and 0.05 < smallest < 0.5
    rng = np.random.default_rng(4)
    shown = [
        score_test(
            count_of(int(rng.binomial(80, 0.1 + smallest)), 80),
            count_of(int(rng.binomial(320, 0.1)), 320),
            0.05,
        )
        <= 0.1 / 4
        for _ in range(300)
    ]
    assert np.mean(shown) == pytest.approx(0.8, abs=0.1)
    assert smallest_difference(count_of(0, 4), rest, 0.05, 0.1, 4) is None
    more = smallest_difference(count_of(0, 800), count_of(320, 3200), 0.05, 0.1, 4)
    assert more is not None and more < smallest


@given(st.integers(5, 60), st.integers(5, 60), st.data())
def test_more_failures_in_the_set_never_raise_p(
    rows: int, others: int, data: st.DataObject
) -> None:
    few = data.draw(st.integers(0, rows - 1))
    rest = count_of(data.draw(st.integers(0, others)), others)
    assert (
        score_test(count_of(few + 1, rows), rest, 0.05)
        <= score_test(count_of(few, rows), rest, 0.05) + 1e-6
    )


def test_a_sequential_p_is_the_plain_one_up_to_a_tenth() -> None:
    assert sequential_p([False] * 200, 200) == 1 / 201
    assert sequential_p([False] * 180 + [True] * 19 + [False], 200) == 20 / 201
    assert sequential_p(iter([True] * 20), 200) == 1.0  # draws no more than it needs
    assert sequential_p([False, True] * 20, 200) == 0.5
    assert sequential_p([], 0) == 1.0


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("permutations", [19, 50, 200])
def test_a_sequential_p_is_no_smaller_than_a_uniform_one(permutations: int) -> None:
    rng = np.random.default_rng(0)
    # The score's own place among its permutations is uniform.
    p_values = np.array(
        [
            sequential_p((rng.random(permutations) < score).tolist(), permutations)
            for score in rng.random(4000)
        ]
    )
    for level in (0.05, 0.1, 0.2, 0.5, 0.8):
        assert (p_values <= level).mean() <= level + 3 * (level * (1 - level) / 4000) ** 0.5
    assert (p_values <= 0.2).mean() > 0.1  # and not so much larger as to say nothing


@pytest.mark.parametrize(("chance", "line"), [(0.0, 0.1), (0.5, 0.55), (1.0, 1.0)])
def test_the_line_is_a_tenth_of_the_way_up(chance: float, line: float) -> None:
    assert chance_line(chance) == pytest.approx(line)


def test_wilsons_interval_of_any_reach_is_that_of_its_level_and_wider_with_few_degrees_of_freedom() -> (
    None
):
    for level in (0.9, 0.99, 0.999):
        reach = float(stats.norm.isf((1 - level) / 2))
        assert wilson_reach(0.3, 40, reach) == pytest.approx(wilson_interval(12, 40, level))
        # With four degrees of freedom as many rows are worth fewer: Wilson's interval of so many.
        worth = 40 * (reach / float(stats.t.isf((1 - level) / 2, 4))) ** 2
        assert wilson_reach(0.3, 40, reach, 4) == pytest.approx(
            wilson_interval(0.3 * worth, worth, level)
        )


def test_nobody_else_writes_them() -> None:
    """Two definitions would drift apart: two files have the quantile, and no other asks a library
    for a statistic."""
    library = (
        r"1\.95996|inv_cdf|from statsmodels|import statsmodels|scipy import"
        r" .*\bstats\b|scipy\.stats\.\w"
    )
    others = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(library, path.read_text(encoding="utf-8"))
    ]
    assert others == ["paired_stats.py", "stats.py"]


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize(
    ("rows", "values", "share", "least"), [(80, 12, 0.0, 0.91), (100, 30, 0.95, 0.91)]
)
def test_simultaneous_intervals_hold_at_once(
    rows: int, values: int, share: float, least: float
) -> None:
    rng = np.random.default_rng(6)
    runs = 300
    covered = 0
    for _ in range(runs):
        if share:  # Wilson's, of shares of images
            seen = (rng.random((rows, values)) < share).astype(np.float64)
        else:  # of means that vary together
            seen = rng.normal(0, 1, (rows, values)) + rng.normal(0, 1, (rows, 1))
        draws = bootstrap_weights(rows, 300, rng) @ seen / rows
        means = seen.mean(axis=0)
        reach = simultaneous_reach(means, draws)
        if share:
            covered += all(
                low <= share <= high
                for low, high in (wilson_reach(mean, rows, reach) for mean in means)
            )
        else:
            covered += bool((np.abs(means) <= reach * draws.std(axis=0)).all())
    assert least <= covered / runs <= 0.99


def test_intervals_that_hold_at_once_reach_as_far_as_one_at_least() -> None:
    assert simultaneous_reach(np.zeros(2), np.zeros((50, 2)), 0.01) == NORMAL
    # Where nothing varies, by Bonferroni.
    assert simultaneous_reach(np.zeros(2), np.zeros((50, 2))) == pytest.approx(
        stats.norm.ppf(1 - 0.05 / 4)
    )
    still = np.concatenate(
        [np.zeros((50, 1)), np.random.default_rng(0).normal(0, 1, (50, 1))], axis=1
    )
    assert simultaneous_reach(np.zeros(2), still) == simultaneous_reach(np.zeros(1), still[:, 1:])


@pytest.mark.parametrize(
    ("errors", "recalls"), [(5, (0.9, 0.6)), (5, (0.97, 0.97)), (40, (0.7, 0.8))]
)
def test_a_balanced_accuracys_interval_holds_the_truth_of_independent_rows(
    errors: int, recalls: tuple[float, float]
) -> None:
    rng = np.random.default_rng(1)
    truth = np.arange(100) >= errors
    covered = width = 0.0
    for _ in range(600):
        answers = [
            np.where(truth, rng.random(100) < recalls[0], rng.random(100) >= recalls[1])
            for _ in range(2)
        ]
        low, high = balanced_accuracy_interval([truth, truth], answers, None)
        covered += low <= np.mean(recalls) <= high
        width += (high - low) / 600
    assert covered / 600 >= 0.93
    # Not wider than the normal interval by much.
    variance = (
        sum(
            share * (1 - share) / n
            for share, n in zip(recalls, (100 - errors, errors), strict=True)
        )
        / 8
    )
    assert width < 2 * 1.96 * variance**0.5 + 0.1


def test_a_balanced_accuracys_interval_is_wider_if_rows_share_units() -> None:
    rng = np.random.default_rng(2)
    truth = np.arange(120) >= 40
    units = np.arange(120) // 5
    covered = 0
    plain_covered = 0
    for _ in range(400):
        # Rows of a unit are recalled together.
        answers = [np.where(np.repeat(rng.random(24) < 0.75, 5), truth, ~truth) for _ in range(2)]
        low, high = balanced_accuracy_interval([truth, truth], answers, [units, units])
        covered += low <= 0.75 <= high
        low, high = balanced_accuracy_interval([truth, truth], answers, None)
        plain_covered += low <= 0.75 <= high
    assert covered / 400 >= 0.92
    assert plain_covered / 400 < 0.8


def test_a_balanced_accuracys_interval_stays_open_if_all_errors_are_seen() -> None:
    truth = np.arange(50) >= 5
    low, high = balanced_accuracy_interval([truth, truth], [truth, truth], None)
    assert high == 1
    assert 0.7 < low < 0.95
    units = np.arange(50) // 5
    assert balanced_accuracy_interval([truth, truth], [truth, truth], [units, units])[0] < low
    nothing = np.ones(50, np.bool_)
    low, high = balanced_accuracy_interval([truth, truth], [nothing, nothing], None)
    assert low < 0.5 < high
