"""Intervals of images that all agree: Wilson's, put together over classes; no number is sure because none differs."""

from __future__ import annotations

import numpy as np
import pytest
from counterfoil.evaluation.metrics.measurement import ShiftMeasurement
from counterfoil.evaluation.metrics.relative_drop import relative_drop
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep

from counterfoil.evaluation.interval_bounds import wilson_bounds
from counterfoil.evaluation.statistics import ClassUnits, averages, drops, wilson


def units(base: np.ndarray, shift: np.ndarray, name: str = "c") -> ClassUnits:
    """A class of one model whose units are all there on both sides."""
    present = np.ones(len(base), dtype=bool)
    return ClassUnits(name, present, base[:, None].astype(bool), present, shift[:, None].astype(bool))


@given(total=st.integers(1, 1000), data=st.data())
def test_wilsons_ends_equal_the_other_library(total: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, total))
    low, high = wilson_bounds(np.array([correct / total]), total)
    found = wilson(correct, total)
    assert (low.item(), high.item()) == pytest.approx((found.low, found.high), abs=1e-12)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_a_constant_predictor_has_newcombes_interval(right: bool, paired: bool) -> None:
    answers = np.full(12, right)
    found = drops([units(answers, answers)], paired=paired, seed=0, salt="s")
    low, high = confint_proportions_2indep(12 * right, 12, 12 * right, 12, method="newcomb", compare="diff")
    for told in (found.interval(0), found.impact(), found.classes["c"].impact):
        assert told is not None
        assert (told.value, told.low, told.high) == pytest.approx((0.0, low, high), abs=1e-9)
    both = averages([units(answers, answers)], seed=0, salt="s").interval(0)
    alone = wilson(12 * right, 12)
    assert (both.low, both.high) == pytest.approx((alone.low, alone.high))


def test_distances_of_classes_add_as_standard_errors_do() -> None:
    right = np.ones(12)
    one = drops([units(right, right)], paired=True, seed=0, salt="s").interval(0)
    four = drops([units(right, right, f"c{n}") for n in range(4)], paired=True, seed=0, salt="s").interval(0)
    assert one.high is not None and four.high is not None
    assert four.high == pytest.approx(one.high / 2)


def test_pairs_that_never_differ_are_not_sure_never_to() -> None:
    mixed = np.arange(40) % 2 == 0
    found = drops([units(mixed, mixed)], paired=True, seed=0, salt="s").interval(0)
    assert found.low is not None and found.high is not None
    # Of 40 pairs without a difference some 3 of 40 may have one ("rule of three").
    assert -0.1 < found.low < -0.02 and 0.02 < found.high < 0.1
    more = drops([units(np.tile(mixed, 9), np.tile(mixed, 9))], paired=True, seed=0, salt="s").interval(0)
    assert more.high is not None and more.high < found.high / 2


def test_classes_that_all_disagree_a_little_keep_the_bootstraps_interval() -> None:
    rng = np.random.default_rng(3)
    base, shift = rng.random(60) < 0.8, rng.random(60) < 0.6
    found = drops([units(base, shift)], paired=True, seed=0, salt="s")
    low, high = np.quantile(found.replicates[:, 0], [0.025, 0.975])
    assert (found.interval(0).low, found.interval(0).high) == (low, high)


def test_a_relative_drop_of_nothing_is_not_sure_either() -> None:
    right = np.ones(12)
    found = drops([units(right, right)], paired=True, seed=0, salt="s")
    agreed = (float(found.agreed[0][0]), float(found.agreed[1][0]))
    replicates = found.base_replicates[:, 0], found.replicates[:, 0]
    told = relative_drop(ShiftMeasurement(1.0, 0.0, *replicates, np.ones(1), np.ones(1), np.ones(12, bool), agreed))
    drop = found.interval(0)
    assert told is not None and told.high is not None and told.low is not None
    assert (told.low, told.high) == pytest.approx((drop.low, drop.high)) and told.low < 0 < told.high
    ones, halved = np.ones(1), (0.5 * replicates[0], replicates[1])
    half = relative_drop(ShiftMeasurement(0.5, 0.0, *halved, ones, ones, np.ones(12, bool), agreed))
    assert half is not None and half.low is not None and half.high is not None
    assert (half.low, half.high) == pytest.approx((2 * -agreed[0], 2 * agreed[1]))


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("classes", "images"), [(1, 12), (3, 12), (10, 6)])
@pytest.mark.parametrize(("base_rate", "shift_rate"), [(1.0, 0.98), (0.99, 0.95), (0.01, 0.0)])
def test_intervals_cover_the_drop_of_models_that_are_nearly_constant(
    base_rate: float, shift_rate: float, classes: int, images: int, paired: bool
) -> None:
    """Of 200 data sets drawn from known rates; where all images agree, a bootstrap alone misses every one."""
    rng = np.random.default_rng(17)
    covered = 0
    for _ in range(200):
        drawn = [
            units(rng.random(images) < base_rate, rng.random(images) < shift_rate, f"c{n}") for n in range(classes)
        ]
        told = drops(drawn, paired=paired, seed=0, salt="s", replicates=200).interval(0)
        assert told.low is not None and told.high is not None
        covered += told.low <= base_rate - shift_rate <= told.high
    # Five standard errors below 95 %, as 200 data sets tell it.
    assert covered / 200 > 0.95 - 5 * (0.95 * 0.05 / 200) ** 0.5
