"""The proof of directions: its worlds, and the intervals over worlds that all proofs share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from counterfoil.lab.planted import named_world
from counterfoil.proportions import clustered_interval
from directions_proof.intervals import ANY, FEWEST, SHARE, mean_of, rank_correlation, share_of
from directions_proof.plan import FULL, INTERVENED, SETTINGS, STRENGTHS


def test_every_world_is_one_and_no_printed_one_chose_a_setting() -> None:
    names = {*FULL, *STRENGTHS, *INTERVENED, *SETTINGS}
    worlds = {name: named_world(name) for name in names}
    assert all(worlds.values())
    printed = {*FULL, *STRENGTHS, *INTERVENED}
    assert all(world.seed >= 100 for name, world in worlds.items() if world is not None and name in printed)
    assert all(world.seed < 4 for name, world in worlds.items() if world is not None and name in SETTINGS)
    of_strengths = [worlds[name] for name in STRENGTHS]
    strengths = [world.strength for world in of_strengths if world is not None]
    assert {strengths.count(strength) for strength in strengths} == {3}


@pytest.mark.parametrize("worlds", [5, 6, 20])
def test_an_interval_of_few_worlds_covers(worlds: int) -> None:
    """A bootstrap over six covers 88 %, over five 86."""
    rng = np.random.default_rng(0)
    found = [mean_of(rng.normal(0.5, 0.1, worlds).tolist()) for _ in range(1000)]
    assert np.mean([one.low <= 0.5 <= one.high for one in found]) == pytest.approx(0.95, abs=0.025)


def test_fewer_than_five_worlds_have_no_brackets() -> None:
    few = [0.2, 0.4, 0.6, 0.5]
    assert len(few) == FEWEST - 1
    assert (mean_of(few).text(), mean_of(few).text(percent=True), mean_of(few).points()) == ("0.43", "43 %", "+42.5")
    assert share_of([(1, 2)] * 4).text() == "0.50"
    assert rank_correlation([(1, 2), (2, 1), (3, 3), (4, 4)]).text() == "0.80"
    assert mean_of([0.7] * 5).text() == "0.70", "worlds that do not differ tell no spread"


def test_an_interval_ends_where_what_is_possible_ends() -> None:
    wide = [0.0, 0.0, 0.9, 1.0, 1.0]
    assert (mean_of(wide, SHARE).low, mean_of(wide, SHARE).high) == (pytest.approx(0.0, abs=0.05), 1.0)
    assert mean_of(wide, ANY).high > 1
    assert mean_of(wide).text() == "0.58 (-0.08 to 1.00)"
    always = mean_of([1.0] * 16, SHARE)
    assert (always.low, always.high) == clustered_interval(np.ones(16), np.ones(16)), "16 of 16 are no certainty"


def test_counts_are_summed_over_worlds_and_worlds_without_any_say_nothing() -> None:
    assert share_of([(1, 2), (0, 6), (0, 0)]).value == pytest.approx(1 / 8)
    nothing = share_of([(0, 0), (0, 0)])
    assert not np.isfinite(nothing.value) and nothing.text() == "–"
    assert share_of([]).text() == "–"


def test_the_rank_correlation_is_scipys() -> None:
    rng = np.random.default_rng(1)
    left = rng.random(24)
    right = left + 0.2 * rng.random(24)
    found = rank_correlation(list(zip(left.tolist(), right.tolist(), strict=True)))
    assert found.value == pytest.approx(spearmanr(left, right)[0])
    assert found.low < found.value <= found.high


def test_the_same_worlds_give_the_same_interval() -> None:
    values = np.random.default_rng(2).random(9).tolist()
    assert mean_of(values) == mean_of(values)
