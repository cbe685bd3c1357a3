"""Gains and their intervals, compared with references and with truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

from counterfoil.mending.document import HELPS, GainDifference, SetMeasured
from counterfoil.mending.judging import compare_heads, difference_of_gains, measure, verdict
from counterfoil.stats import Estimate, sign_test


def rows(n: int, seed: int, each: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Before, after and units of n rows; rows of one unit answer alike."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(n // each), each)
    before, after = (rng.random(n // each)[units] < share for share in (0.4, 0.6))
    return before, after, units


def width(estimate: Estimate | SetMeasured) -> float:
    assert estimate.low is not None and estimate.high is not None
    return estimate.high - estimate.low


def test_a_gain_is_the_difference_of_the_two_accuracies() -> None:
    before, after, units = rows(200, 1)
    found = measure("test", before, after, units, seed=0)
    assert (found.rows, found.units) == (200, 200)
    assert found.gain is not None and found.before is not None and found.after is not None
    assert found.gain == pytest.approx(found.after - found.before) == pytest.approx(after.mean() - before.mean())
    assert (found.gained - found.lost) / 200 == pytest.approx(found.gain)


def test_p_is_mcnemars() -> None:
    before, after, units = rows(150, 2)
    table = [[int((before & after).sum()), int((before & ~after).sum())],
             [int((~before & after).sum()), int((~before & ~after).sum())]]  # fmt: skip
    found = measure("p", before, after, units, seed=0)
    reference: Any = mcnemar(table, exact=True)
    assert found.p == pytest.approx(reference.pvalue)
    assert measure("p", before, before, units, seed=0).p == 1


def test_the_interval_is_scipys_bootstrap_of_units() -> None:
    before, after, units = rows(240, 3)
    found = measure("interval", before, after, units, seed=0)
    assert found.low is not None and found.high is not None
    difference = after.astype(float) - before
    reference = stats.bootstrap(
        (difference,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.low == pytest.approx(reference.low, abs=0.02)
    assert found.high == pytest.approx(reference.high, abs=0.02)


def test_rows_of_one_unit_are_drawn_together() -> None:
    before, after, units = rows(240, 3, each=6)
    together = width(measure("units", before, after, units, seed=0))
    apart = width(measure("units", before, after, np.arange(240), seed=0))
    assert together == pytest.approx(np.sqrt(6) * apart, rel=0.2)


def test_units_of_unlike_sizes_are_drawn_as_often() -> None:
    rng = np.random.default_rng(7)
    units = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    after, before = rng.random(len(units)) < 0.6, rng.random(len(units)) < 0.4
    found = measure("sizes", before, after, units, seed=0)
    sums = np.bincount(units, after.astype(float) - before)
    sizes = np.bincount(units)
    drawn = rng.integers(0, 60, (4000, 60))
    low, high = np.quantile(sums[drawn].sum(1) / sizes[drawn].sum(1), [0.025, 0.975])
    assert (found.low, found.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for seed in range(200):
        before, after, units = rows(300, seed, each=3)
        found = difference_of_gains(after, before, units, seed=seed, salt="coverage")
        assert found.low is not None and found.high is not None
        held += found.low <= 0.2 <= found.high
    assert 0.90 <= held / 200 <= 0.99


@pytest.mark.parametrize(("share", "value"), [(1.0, 1.0), (0.0, 0.0)])
def test_where_all_rows_agree_the_interval_is_that_of_a_share_of_units(share: float, value: float) -> None:
    wrong = np.zeros(40, dtype=bool)
    units = np.repeat(np.arange(20), 2)
    found = measure("all", wrong, np.full(40, share, dtype=bool), units, seed=0)
    assert found.low is not None and found.high is not None
    assert found.gain == value and found.low <= value <= found.high
    assert 0.1 < found.high - found.low < 0.4  # 20 units: 0.16 on one side
    fewer = measure("all", wrong[:8], np.full(8, share, dtype=bool), units[:8], seed=0)
    assert width(fewer) > width(found)


def test_of_one_unit_that_changed_in_part_there_is_no_interval() -> None:
    found = difference_of_gains(np.array([True, False]), np.zeros(2, bool), np.zeros(2, np.int64), seed=0, salt="")
    assert found == Estimate(0.5)


def test_no_row_has_no_gain() -> None:
    none = np.zeros(0, dtype=bool)
    found = measure("", none, none, none.astype(np.int64), seed=0)
    assert found.rows == 0 and found.gain is None and found.p is None
    with pytest.raises(ValueError, match="no row"):
        difference_of_gains(none, none, none.astype(np.int64), seed=0, salt="")


def test_the_same_rows_and_seed_draw_the_same() -> None:
    before, after, units = rows(90, 4)
    first, again, other = (measure("x", before, after, units, seed=seed) for seed in (1, 1, 2))
    assert first == again and first.low != other.low


def test_a_difference_of_gains_is_that_of_the_two_gains() -> None:
    before, a, units = rows(100, 5)
    _, b, _ = rows(100, 6)
    gains = [measure("s", before, one, units, seed=0).gain for one in (a, b)]
    assert gains[0] is not None and gains[1] is not None
    difference = difference_of_gains(a, b, units, seed=0, salt="s")
    assert difference.value == pytest.approx(gains[0] - gains[1])
    opposite = difference_of_gains(b, a, units, seed=0, salt="s")
    assert opposite.value == pytest.approx(-difference.value)


def test_several_heads_of_one_kind_count_as_their_share() -> None:
    _, a, units = rows(100, 5)
    several = np.stack([rows(100, seed)[1] for seed in range(8)]).mean(axis=0)
    assert difference_of_gains(a, several, units, seed=0, salt="s").value == pytest.approx(a.mean() - several.mean())


def compared(value: float, low: float | None, high: float | None, ahead: int, behind: int) -> GainDifference:
    return GainDifference("", "", 100, value, low, high, None, ahead, behind, sign_test(ahead, behind))


BETTER = compared(0.1, 0.05, 0.15, 10, 0)
SAME = compared(0.01, -0.04, 0.06, 6, 5)
WORSE = compared(-0.1, -0.15, -0.05, 0, 10)


@pytest.mark.parametrize(
    ("against", "says", "says_not"),
    [
        ({"λ = 0": BETTER, "class names": BETTER}, "It helps: ", "No difference"),
        ({"λ = 0": BETTER, "class names": BETTER, "others": SAME}, "It helps in part: ", "less than"),
        ({"λ = 0": BETTER, "class names": SAME}, "It is not shown to help: ", "It helps"),
        ({"λ = 0": BETTER}, "not shown to help: on failures held out it gains more than λ = 0", "It helps"),
        ({"λ = 0": SAME, "class names": BETTER}, "but not more than the head retrained alone", "It helps"),
        ({"λ = 0": SAME, "class names": SAME}, "not shown to help", "gains less"),
        ({"λ = 0": SAME, "class names": WORSE}, "It gains less than class names (−10.0, −15.0 to −5.0)", "It helps"),
        ({"λ = 0": compared(0.5, None, None, 1, 0)}, "not shown to help", "It helps:"),
        (
            {"λ = 0": compared(0.1, 0.01, 0.2, 7, 2)},
            "to λ = 0 (+10.0, 1.0 to 20.0; sign test of 9",
            "It h",
        ),
        ({}, "no control", "It helps"),
    ],
)
def test_a_verdict_claims_no_more_than_the_intervals(
    against: dict[str, GainDifference], says: str, says_not: str
) -> None:
    _, words = verdict(against, None, controls=[[name] for name in against if name != "λ = 0"])
    assert says in words and says_not not in words
    assert all(name in words for name in against)


@pytest.mark.parametrize("units", [1, 2, 3, 5])
def test_a_few_units_of_one_mind_are_too_few(units: int) -> None:
    """Each unit's three rows all become right: the bootstrap and Wilson's bound are above 0, a sign test is not."""
    three = np.repeat(np.arange(units), 3)
    one = compare_heads("", "", np.ones(3 * units, bool), np.zeros(3 * units, bool), three, seed=0)
    assert one.low is not None and one.low > 0
    assert (one.ahead, one.behind, one.side) == (units, 0, 0) and one.p == pytest.approx(2 / 2**units)
    _, words = verdict({"λ = 0": one}, None)
    assert words.startswith("It is not shown to help") and "Too few failures held out are decided differently" in words
    six = compare_heads("", "", np.ones(6, bool), np.zeros(6, bool), np.arange(6), seed=0)
    assert six.side == 1 and verdict({"names": six}, None, controls=[["names"]])[0] == HELPS


def test_a_few_of_many_are_too_few() -> None:
    """Four of a hundred become right and none wrong: p is .125, though few draws hold none of the four."""
    right = np.arange(100) < 4
    one = compare_heads("", "", right, np.zeros(100, bool), np.arange(100), seed=0)
    assert one.low is not None and one.low > 0 and one.p == pytest.approx(0.125)
    assert "It is not shown to help" in verdict({"λ = 0": one}, None)[1]


@pytest.mark.parametrize("units", [3, 6, 10, 20])
def test_heads_that_are_alike_are_seldom_told_apart(units: int) -> None:
    """Two heads that are right as often, unit by unit: told to differ in at most 5 %, to help in at most 2.5 %."""
    runs, rng = 400, np.random.default_rng(units)
    sides = np.empty(runs)
    for run in range(runs):
        a, b = rng.random((2, units)) < 0.5
        of_row = np.repeat(np.arange(units), rng.integers(1, 4, units))
        sides[run] = compare_heads("null", "", a[of_row], b[of_row], of_row, seed=run).side
    assert (sides != 0).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / runs)
    assert (sides > 0).mean() <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / runs)


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (Estimate(-0.02, -0.03, -0.01), "Elsewhere it loses"),
        (Estimate(-0.02, -0.05, 0.01), "falls by more than 0.5: −2.0 points"),
        (Estimate(-0.002, -0.01, 0.006), "No change of test accuracy is shown: −0.2 points, −1.0 to 0.6."),
        (Estimate(0.0, -0.2, 0.2), "No change of test accuracy is shown: 0.0 points, −20.0 to 20.0."),
        (Estimate(0.0), "No change of test accuracy is shown: 0.0 points."),
        (Estimate(-0.001, -0.004, 0.002), "Test accuracy stays: −0.1 points"),
        (Estimate(0.02, 0.01, 0.03), "Test accuracy rises"),
    ],
)
def test_a_verdict_says_what_becomes_of_test(test: Estimate, says: str) -> None:
    outcome, words = verdict({"names": BETTER}, test, controls=[["names"]])
    assert says in words and (outcome == HELPS) == ("Elsewhere it loses" not in says)


@pytest.mark.parametrize("value", [-0.1, -0.02, 0.0, 0.1])
def test_where_there_is_no_test_the_words_say_none(value: float) -> None:
    half_width = 0.05
    change = Estimate(value, value - half_width, value + half_width)
    _, words = verdict({"λ = 0": BETTER}, change, test_is="accuracy on the confirm half")
    assert "Test " not in words and "test accuracy" not in words and "confirm half" in words
