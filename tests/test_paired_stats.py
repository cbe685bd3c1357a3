"""Tests in pairs: runs where nothing is there, references, intervals that cover, and e-BH against
its definition."""

from __future__ import annotations

from itertools import product
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from counterfoil.paired_stats import (
    PairCount,
    count_pairs,
    decide_test,
    log_e_value,
    log_e_values,
    most_pairs_to_decide,
    smallest_paired_difference,
    tango_interval,
    tango_uppers,
)
from counterfoil.sequential_stats import e_bh, e_q_values

LOOKS = np.array([16, 32, 64, 128, 256, 512, 1024])
RUNS = 5000


def by_angle(failing: int, discordant: int) -> float:
    """Return the same e-value as an average: for θ = sin² of an angle, Beta(½, ½) means uniform
    angles."""
    # Angles are close at both ends, because few or all of many pairs fail there.
    close = np.geomspace(1e-14, np.pi / 8, 40_001)
    angle = np.pi / 4 + np.concatenate([[0.0], close, np.pi / 4 - close[-2::-1], [np.pi / 4]])
    sine = 2 * np.sin(angle) ** 2
    cosine = 2 * np.maximum(np.cos(angle), 0) ** 2
    logs = special.xlogy(failing, sine) + special.xlogy(discordant - failing, cosine)
    widths = np.diff(angle) / (np.pi / 4)
    with np.errstate(divide="ignore"):
        return float(special.logsumexp(np.logaddexp(logs[1:], logs[:-1]) + np.log(widths / 2)))


COUNTS = [(0, 0), (1, 1), (0, 1), (3, 5), (30, 100), (0, 100), (100, 100), (0, 5000), (700, 1000)]
MANY = [(0, 10**6), (400_000, 10**6), (485_000, 10**6), (510_000, 10**6), (10**6, 10**6)]


@pytest.mark.parametrize(("failing", "discordant"), COUNTS + MANY)
def test_the_e_value_is_its_average_over_the_alternatives(failing: int, discordant: int) -> None:
    assert log_e_value(failing, discordant) == pytest.approx(
        by_angle(failing, discordant), rel=1e-6, abs=1e-5
    )


def test_what_no_pair_tells_has_an_e_value_of_one_and_an_improvement_has_less() -> None:
    assert log_e_value(0, 0) == 0
    assert log_e_value(0, 100) < -4
    values = log_e_values(np.arange(41), 40)
    assert np.all(np.diff(values) > 0)
    assert values[0] < 0 < values[40]


@pytest.mark.parametrize("discordant", [1, 2, 7, 40, 300])
def test_of_a_fair_coin_the_expectation_is_one(discordant: int) -> None:
    """Check a prior cut to above ½ and renormalised; without either, the number differs."""
    failing = np.arange(discordant + 1)
    expectation = np.sum(
        stats.binom.pmf(failing, discordant, 0.5) * np.exp(log_e_values(failing, discordant))
    )
    assert expectation == pytest.approx(1, rel=1e-9)
    better = np.sum(
        stats.binom.pmf(failing, discordant, 0.3) * np.exp(log_e_values(failing, discordant))
    )
    assert better < 1


def looked_at(
    rng: np.random.Generator, failing: float, rescued: float, runs: int = RUNS
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (failing pairs, rescued pairs), each (runs, looks), of runs with these shares of all
    pairs."""
    batches = np.diff(LOOKS, prepend=0)
    shares = [failing, rescued, 1 - failing - rescued]
    drawn = np.stack([rng.multinomial(batch, shares, runs) for batch in batches], axis=1).cumsum(
        axis=1
    )
    return drawn[..., 0], drawn[..., 1]


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("alpha", [0.1, 0.01])
@pytest.mark.parametrize(
    ("failing", "rescued"), [(0.15, 0.15), (0.01, 0.01), (0.5, 0.5), (0.05, 0.2), (0.0, 0.3)]
)
def test_a_true_null_is_hardly_ever_confirmed_at_any_look(
    failing: float, rescued: float, alpha: float
) -> None:
    """5,000 runs each: with as many failures as the base, and with fewer."""
    rng = np.random.default_rng([13, round(1000 * failing), round(1000 * rescued)])
    b, c = looked_at(rng, failing, rescued)
    share = float(np.mean(log_e_values(b, b + c).max(axis=1) >= np.log(1 / alpha)))
    assert share <= alpha + 3 * np.sqrt(alpha * (1 - alpha) / RUNS)
    assert failing == rescued or share <= alpha / 5


@pytest.mark.release(of="statistics")
def test_nor_when_looked_at_after_each_pair() -> None:
    failing = np.random.default_rng(14).integers(0, 2, (RUNS, 400)).cumsum(axis=1)
    discordant = np.arange(1, 401)
    # Of each number of discordant pairs, the fewest failing ones with which 10 is reached: e-values
    # rise with them.
    fewest = [np.searchsorted(log_e_values(np.arange(n + 1), n), np.log(10)) for n in discordant]
    share = float(np.mean((failing >= np.array(fewest)).any(axis=1)))
    assert 0.03 < share <= 0.1 + 3 * np.sqrt(0.09 / RUNS)


def test_a_planted_difference_is_confirmed() -> None:
    b, c = looked_at(np.random.default_rng(15), 0.25, 0.05, 1000)
    reached = log_e_values(b, b + c) >= np.log(20 / 0.1)
    assert np.mean(reached.any(axis=1)) > 0.99
    # Most of them long before the last of 1,024 pairs.
    assert np.mean(reached[:, LOOKS <= 128].any(axis=1)) > 0.7


def test_pairs_are_counted_and_add_up() -> None:
    failed = np.array([1, 1, 0, 0, 1], bool)
    base = np.array([1, 0, 1, 0, 0], bool)
    count = count_pairs(failed, base)
    assert count == PairCount(pairs=5, both=1, failing=2, rescued=1)
    assert (count.discordant, count.rate, count.base_rate) == (3, 0.6, 0.4)
    assert count.difference == pytest.approx(0.2)
    assert count_pairs(failed[:2], base[:2]) + count_pairs(failed[2:], base[2:]) == count
    nothing = count_pairs([], [])
    assert (
        nothing + count == count
        and np.isnan([nothing.rate, nothing.base_rate, nothing.difference]).all()
    )


def test_intervals_are_those_that_were_published() -> None:
    # Fagerland, Lydersen and Laake 2014, Table II: airways before and after a transplantation.
    assert tango_interval(PairCount(21, 1, 1, 7)) == pytest.approx((-0.517, -0.026), abs=5e-4)
    # Agresti and Min 2005: the crossover study.
    assert tango_interval(PairCount(86, 53, 16, 8)) == pytest.approx((-0.020, 0.207), abs=5e-4)


def upper_of(count: PairCount) -> float:
    return float(tango_uppers(count.failing, count.rescued, count.pairs, 0.95))


@pytest.mark.parametrize(
    "count", [PairCount(60, 8, 14, 3), PairCount(60, 20, 0, 9), PairCount(300, 2, 5, 0)]
)
def test_at_a_bound_the_score_is_the_quantile(count: PairCount) -> None:
    """Compare with a search over all shares of pairs that differ by the bound."""
    n = count.pairs
    b = count.failing
    c = count.rescued

    def score(difference: float) -> float:
        def loss(rescued: float) -> float:
            shares = np.array([rescued + difference, rescued, 1 - 2 * rescued - difference])
            return -float(special.xlogy([b, c, n - b - c], np.maximum(shares, 0)).sum())

        least = max(0.0, -difference)
        most = (1 - difference) / 2
        fit: Any = optimize.minimize_scalar(
            loss, bounds=(least, most), method="bounded", options={"xatol": 1e-12}
        )
        return (b - c - n * difference) / np.sqrt(n * (2 * fit.x + difference - difference**2))

    low, high = tango_interval(count)
    assert [score(low), score(high)] == pytest.approx([1.96, -1.96], abs=1e-3)
    assert score(upper_of(count)) == pytest.approx(-1.645, abs=1e-3)


def test_intervals_of_nothing_and_of_all() -> None:
    assert tango_interval(PairCount(0, 0, 0, 0)) == (-1, 1)
    assert upper_of(PairCount(0, 0, 0, 0)) == 1
    low, high = tango_interval(PairCount(16, 5, 0, 0))
    assert -low == pytest.approx(high) and 0.1 < high < 0.25
    assert tango_interval(PairCount(9, 0, 9, 0))[1] == 1
    assert tango_interval(PairCount(9, 0, 0, 9))[0] == -1
    assert upper_of(PairCount(10**6, 0, 100, 100)) < 1e-4


@given(st.integers(1, 400), st.data())
def test_intervals_hold_the_difference_and_mirror(pairs: int, data: st.DataObject) -> None:
    failing = data.draw(st.integers(0, pairs))
    rescued = data.draw(st.integers(0, pairs - failing))
    count = PairCount(pairs, 0, failing, rescued)
    low, high = tango_interval(count)
    assert -1 <= low <= count.difference <= high <= 1
    assert low < high
    assert tango_interval(PairCount(pairs, 0, rescued, failing)) == pytest.approx(
        (-high, -low), abs=1e-9
    )
    assert upper_of(count) <= high + 1e-12


@pytest.mark.parametrize("pairs", [16, 64, 256])
def test_upper_bounds_cover(pairs: int) -> None:
    """Sum the coverage over all counts: it is the nominal one on average, and never far below."""
    b, c = (axis.ravel() for axis in np.mgrid[: pairs + 1, : pairs + 1])
    b, c = b[b + c <= pairs], c[b + c <= pairs]
    upper = tango_uppers(b, c, pairs, 0.95)
    shares = [
        (0.02, 0.02),
        (0.1, 0.1),
        (0.06, 0.01),
        (0.15, 0.1),
        (0.3, 0.05),
        (0.25, 0.2),
        (0.05, 0.2),
    ]
    coverage = [
        stats.multinomial.pmf(np.stack([b, c, pairs - b - c], axis=1), pairs, [p, q, 1 - p - q])[
            upper >= p - q
        ].sum()
        for p, q in shares
    ]
    assert np.mean(coverage) == pytest.approx(0.955, abs=0.02)
    assert min(coverage) > 0.91


def test_a_test_is_confirmed_or_futile_or_goes_on() -> None:
    threshold = np.log(10 / 0.1)

    def stands(count: PairCount) -> str:
        return decide_test(count, log_e_value(count.failing, count.discordant), threshold, 0.05)

    assert stands(PairCount(0, 0, 0, 0)) == "open"
    assert stands(PairCount(16, 0, 0, 0)) == "open"
    assert stands(PairCount(64, 0, 0, 0)) == "futile"
    assert stands(PairCount(64, 3, 20, 2)) == "confirmed"
    assert stands(PairCount(64, 3, 7, 2)) == "open"
    assert stands(PairCount(64, 3, 2, 9)) == "futile"
    # A sure effect, too small to matter.
    small = PairCount(100_000, 0, 2000, 1000)
    assert log_e_value(2000, 3000) > threshold and stands(small) == "futile"


def by_definition(log_e: list[float], alpha: float) -> list[bool]:
    """Reject the k̂ hypotheses: the largest k for which k hypotheses have at least m / (α·k)."""
    m = len(log_e)
    e = np.exp(log_e)
    most = max((k for k in range(1, m + 1) if np.sum(e >= m / (alpha * k)) >= k), default=0)
    return [bool(most) and bool(value >= m / (alpha * most)) for value in e]


@given(
    st.lists(st.floats(-30, 30) | st.sampled_from([0.0, 3.0, 5.0]), max_size=12),
    st.floats(0.01, 0.5),
)
def test_e_bh_is_its_definition(log_e: list[float], alpha: float) -> None:
    assert e_bh(log_e, alpha) == by_definition(log_e, alpha)
    q = e_q_values(log_e)
    assert all(0 <= value <= 1 for value in q)
    # q is the smallest α at which a hypothesis is rejected.
    for index, rejected_from in zip(range(len(q)), q, strict=True):
        if rejected_from < 0.999:
            assert by_definition(log_e, min(rejected_from * 1.001, 1))[index]
            assert not by_definition(log_e, rejected_from * 0.999)[index]


def test_e_bh_in_numbers() -> None:
    assert e_q_values([]) == [] and e_bh([], 0.1) == []
    assert e_q_values(np.log([40, 25, 1, 0.1]).tolist()) == pytest.approx([0.08, 0.08, 1, 1])
    assert e_bh(np.log([39, 1, 1, 1]).tolist(), 0.1) == [False] * 4
    assert e_q_values([1e6, -np.inf]) == [0, 1]


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("correlated", [False, True])
def test_e_bh_keeps_its_rate_where_tests_stop_as_they_like(correlated: bool) -> None:
    """Of ten hypotheses six are null; each stops at its own best look, and in one case all share
    their noise."""
    rng = np.random.default_rng(16)
    false = []
    for _ in range(300):
        seed = int(rng.integers(2**32))
        log_e = []
        for index, (failing, rescued) in enumerate(product([0.1], [0.1] * 6 + [0.02] * 4)):
            noise = np.random.default_rng(seed if correlated else [seed, index])
            b, c = looked_at(noise, failing, rescued, 1)
            looks = log_e_values(b, b + c)[0]
            stopped = np.flatnonzero(looks >= np.log(10 / 0.1))
            log_e.append(float(looks[stopped[0]] if len(stopped) else looks[-1]))
        rejected = e_bh(log_e, 0.1)
        assert sum(rejected[6:]) >= 1
        false.append(sum(rejected[:6]) / sum(rejected))
    assert np.mean(false) <= 0.1


def test_how_many_pairs_decide_at_best() -> None:
    for m, alpha in product([1, 10, 500], [0.1, 0.01]):
        most = most_pairs_to_decide(m, alpha)
        assert e_bh([log_e_value(most, most)] + [0.0] * (m - 1), alpha)[0]
        assert not e_bh([log_e_value(most - 1, most - 1)] + [0.0] * (m - 1), alpha)[0]


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize(
    ("pairs", "base_rate", "tested"), [(128, 0.0, 8), (128, 0.2, 8), (400, 0.1, 20)]
)
def test_a_difference_of_that_size_is_confirmed_four_times_in_five(
    pairs: int, base_rate: float, tested: int
) -> None:
    least = smallest_paired_difference(pairs, base_rate, tested, 0.1)
    assert least is not None
    rng = np.random.default_rng(7)
    described = rng.random((3000, pairs)) < base_rate + least
    base = rng.random((3000, pairs)) < base_rate
    failing = (described & ~base).sum(1)
    rescued = (~described & base).sum(1)
    power = (log_e_values(failing, failing + rescued) >= log(tested / 0.1)).mean()
    assert power == pytest.approx(0.8, abs=0.05)


@pytest.mark.release(of="statistics")
def test_it_grows_with_the_base_rate_and_with_what_was_tested_and_falls_with_pairs() -> None:
    def least(pairs: int, base_rate: float, tested: int) -> float:
        return smallest_paired_difference(pairs, base_rate, tested, 0.1) or 1.0

    assert least(128, 0.0, 8) < least(128, 0.1, 8) < least(128, 0.3, 8)
    assert least(256, 0.1, 8) < least(128, 0.1, 8) < least(128, 0.1, 80)


def test_too_few_pairs_show_no_difference_at_all() -> None:
    assert smallest_paired_difference(0, 0.1, 1, 0.1) is None
    assert smallest_paired_difference(6, 0.0, 20, 0.1) is None
