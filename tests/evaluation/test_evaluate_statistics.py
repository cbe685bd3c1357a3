"""Accuracies, drops, intervals and slopes agree with independent references and behave as stated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import confint_proportions_2indep

from counterfoil.evaluation import statistics
from counterfoil.evaluation.measures.drop import relative_drop
from counterfoil.evaluation.statistics import (
    ClassUnits,
    averages,
    drops,
    slope,
    surviving,
)
from counterfoil.stats import wilson_estimate


def random_classes(seed: int, classes: int = 3, units: int = 20, models: int = 2) -> list[ClassUnits]:
    rng = np.random.default_rng(seed)
    made = []
    for place in range(classes):
        base, shift = rng.random(units) < 0.8, rng.random(units) < 0.6
        base[0] = shift[0] = True
        made.append(
            ClassUnits(f"c{place}", base, rng.random((units, models)) < 0.8, shift, rng.random((units, models)) < 0.5)
        )
    return made


def naive_accuracy(classes: list[ClassUnits], model: int, side: str) -> float:
    """Loops only: the mean over classes of the share of present images that are right."""
    shares = []
    for one in classes:
        present, correct = getattr(one, f"{side}_present"), getattr(one, f"{side}_correct")
        right = total = 0
        for unit in range(len(present)):
            if present[unit]:
                total += 1
                right += int(correct[unit, model])
        shares.append(right / total)
    return sum(shares) / len(shares)


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(1, 5), models=st.integers(1, 3))
def test_accuracies_and_drop_equal_the_naive_loops(seed: int, classes: int, models: int) -> None:
    made = random_classes(seed, classes, models=models)
    found = drops(made, paired=True, seed=0, salt="s", replicates=4)
    for model in range(models):
        base, shift = naive_accuracy(made, model, "base"), naive_accuracy(made, model, "shift")
        assert found.base_accuracy[model] == pytest.approx(base)
        assert found.accuracy[model] == pytest.approx(shift)
        assert found.drop[model] == pytest.approx(base - shift)
    impact = found.impact()
    assert impact is not None
    assert impact.value == pytest.approx(float(np.mean(found.drop)))


def test_class_drops_average_to_the_drop_and_each_is_the_drop_of_its_class_alone() -> None:
    made = random_classes(5)
    found = drops(made, paired=True, seed=0, salt="s", replicates=200)
    assert set(found.classes) == {"c0", "c1", "c2"}
    per_class = [found.classes[one.class_id] for one in made]
    np.testing.assert_allclose(np.mean([one.base_accuracy - one.accuracy for one in per_class], axis=0), found.drop)
    for one, of_class in zip(made, per_class, strict=True):
        alone = drops([one], paired=True, seed=0, salt="s", replicates=200)
        assert of_class.impact == alone.impact()


def naive_bootstrap(classes: list[ClassUnits], paired: bool, replicates: int) -> list[float]:
    """The definition in loops, with another generator, for model 0."""
    import random

    rng = random.Random(11)
    found = []
    for _ in range(replicates):
        differences = []
        for one in classes:
            base = [u for u in range(len(one.base_present)) if one.base_present[u]]
            shift = [u for u in range(len(one.shift_present)) if one.shift_present[u]]
            if paired:
                units = sorted(set(base) | set(shift))
                drawn = rng.choices(units, k=len(units))
                base_drawn = [u for u in drawn if one.base_present[u]]
                shift_drawn = [u for u in drawn if one.shift_present[u]]
            else:
                base_drawn, shift_drawn = rng.choices(base, k=len(base)), rng.choices(shift, k=len(shift))
            if base_drawn and shift_drawn:
                right_base = sum(bool(one.base_correct[u, 0]) for u in base_drawn) / len(base_drawn)
                right_shift = sum(bool(one.shift_correct[u, 0]) for u in shift_drawn) / len(shift_drawn)
                differences.append(right_base - right_shift)
        found.append(sum(differences) / len(differences))
    return found


@pytest.mark.parametrize("paired", [True, False])
def test_the_bootstrap_agrees_with_its_definition_in_loops(paired: bool) -> None:
    made = random_classes(3)
    reference = np.array(naive_bootstrap(made, paired, 3000))
    found = drops(made, paired=paired, seed=1, salt="s", replicates=6000).replicates[:, 0]
    spread = reference.std()
    # Five standard errors of either mean and spread, from 3000 replicates.
    assert abs(found.mean() - reference.mean()) < 5 * spread * math.sqrt(1 / 3000 + 1 / 6000)
    assert found.std() == pytest.approx(spread, rel=5 / math.sqrt(2 * 3000))


def test_pairing_removes_what_base_and_shift_share() -> None:
    # Every shifted image is right exactly when its base image is: the drop is 0 in every paired replicate.
    rng = np.random.default_rng(0)
    correct = rng.random((40, 1)) < 0.5
    present = np.ones(40, dtype=bool)
    one = ClassUnits("c", present, correct, present, correct)
    paired = drops([one], paired=True, seed=0, salt="s")
    apart = drops([one], paired=False, seed=0, salt="s")
    assert np.all(paired.replicates == 0)
    expected = math.sqrt(2 * correct.mean() * (1 - correct.mean()) / 40)
    assert apart.replicates.std() == pytest.approx(expected, rel=0.1)


def test_paired_spread_is_the_standard_error_of_the_mean_difference() -> None:
    rng = np.random.default_rng(2)
    base, shift = rng.random((60, 1)) < 0.9, rng.random((60, 1)) < 0.6
    present = np.ones(60, dtype=bool)
    found = drops([ClassUnits("c", present, base, present, shift)], paired=True, seed=0, salt="s")
    difference = base.astype(float) - shift.astype(float)
    assert found.replicates.std() == pytest.approx(difference.std() / math.sqrt(60), rel=0.1)


def test_an_interval_does_not_depend_on_the_other_models_or_classes_order() -> None:
    made = random_classes(9, models=3)
    all_models = drops(made, paired=True, seed=4, salt="snow")
    alone = [
        ClassUnits(c.class_id, c.base_present, c.base_correct[:, 1:2], c.shift_present, c.shift_correct[:, 1:2])
        for c in reversed(made)
    ]
    one_model = drops(alone, paired=True, seed=4, salt="snow")
    np.testing.assert_allclose(one_model.replicates[:, 0], all_models.replicates[:, 1], rtol=0, atol=1e-12)


def test_seed_and_shift_change_the_draws() -> None:
    made = random_classes(9)
    first = drops(made, paired=True, seed=0, salt="snow").replicates
    assert np.array_equal(first, drops(made, paired=True, seed=0, salt="snow").replicates)
    assert not np.array_equal(first, drops(made, paired=True, seed=1, salt="snow").replicates)
    assert not np.array_equal(first, drops(made, paired=True, seed=0, salt="fog").replicates)


def test_a_draw_without_an_image_on_one_side_sits_out() -> None:
    base = np.array([True, False, False, False])
    shift = np.array([False, True, True, True])
    right = np.ones((4, 1), dtype=bool)
    found = drops([ClassUnits("c", base, right, shift, ~right)], paired=True, seed=0, salt="s")
    finite = found.replicates[np.isfinite(found.replicates)]
    assert 0 < finite.size < found.replicates.size
    assert np.all(finite == 1.0)
    # One image on one side and three on the other: every draw is 1, and that is far from sure.
    told = found.interval(0)
    assert told.low is not None and told.low < 0.5 and told.high == 1.0


def test_no_class_is_an_error() -> None:
    with pytest.raises(ValueError, match="no class"):
        drops([], paired=True, seed=0, salt="s")


def test_a_class_survives_with_enough_images_on_both_sides() -> None:
    def counted(base: int, shift: int) -> ClassUnits:
        units = np.arange(10)
        return ClassUnits(
            f"{base}-{shift}", units < base, np.ones((10, 1), bool), units < shift, np.ones((10, 1), bool)
        )

    classes = [counted(5, 5), counted(5, 4), counted(4, 5), counted(10, 10)]
    assert [one.class_id for one in surviving(classes, 5)] == ["5-5", "10-10"]
    assert counted(7, 3).pairs().counts == (3, 3)


@given(seed=st.integers(0, 2**32 - 1), models=st.integers(5, 20))
def test_slope_and_its_interval_equal_ordinary_least_squares(seed: int, models: int) -> None:
    import statsmodels.api as sm  # a second that no other test needs

    rng = np.random.default_rng(seed)
    x = rng.uniform(0.4, 0.95, models)
    y = 0.7 * x - 0.1 + rng.normal(0, 0.05, models)
    found = slope(x.tolist(), y.tolist())
    reference = sm.OLS(y, sm.add_constant(x)).fit()
    assert found is not None
    assert found.slope == pytest.approx(reference.params[1])
    assert found.intercept == pytest.approx(reference.params[0])
    assert (found.low, found.high) == pytest.approx(tuple(reference.conf_int(0.05)[1]))
    assert found.r_squared == pytest.approx(reference.rsquared)
    assert found.n_models == models


def test_no_slope_from_few_models_or_equal_base_accuracies() -> None:
    assert slope([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]) is None
    assert slope([0.5] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) is None
    flat = slope([0.1, 0.2, 0.3, 0.4, 0.5], [0.3] * 5)
    assert flat is not None
    assert (flat.slope, flat.r_squared) == (0.0, 0.0)


def test_a_relative_drop_is_the_share_of_the_base_that_is_lost() -> None:
    found = drops(random_classes(7, classes=4, units=60), paired=True, seed=0, salt="s")
    for model in range(2):
        base = float(found.base_accuracy[model])
        told = relative_drop(found, model)
        assert told is not None and told.low is not None and told.high is not None
        assert told.value == pytest.approx(1 - float(found.accuracy[model]) / base)
        assert told.low < told.value < told.high
        assert np.nanmean(found.base_replicates[:, model]) == pytest.approx(base, abs=0.02)


def test_nothing_can_be_lost_of_nothing() -> None:
    nothing = np.zeros(12)
    assert relative_drop(drops([units(nothing, nothing)], paired=True, seed=0, salt="s"), 0) is None


@pytest.mark.parametrize("paired", [True, False])
def test_blocks_of_draws_change_no_bit(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    there, right = rng.random((2, 57)) < 0.8, rng.random((2, 57, 3)) < 0.6
    one = statistics.ClassUnits("a", there[0], right[0], there[1], right[1])
    whole = statistics._draws(one, np.random.default_rng(5), 301, paired)
    for block in (1, 57 * 7, 57 * 301):
        monkeypatch.setattr(statistics, "_DRAWN_AT_ONCE", block)
        again = statistics._draws(one, np.random.default_rng(5), 301, paired)
        assert all(np.array_equal(a, b) for a, b in zip(whole, again, strict=True))


def units(base: np.ndarray, shift: np.ndarray, name: str = "c") -> ClassUnits:
    """A class of one model whose units are all there on both sides."""
    present = np.ones(len(base), dtype=bool)
    return ClassUnits(name, present, base[:, None].astype(bool), present, shift[:, None].astype(bool))


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
    alone = wilson_estimate(12 * right, 12)
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
    told = relative_drop(found, 0)
    drop = found.interval(0)
    assert told is not None and told.high is not None and told.low is not None
    assert (told.low, told.high) == pytest.approx((drop.low, drop.high)) and told.low < 0 < told.high
    halved = replace(found, base_accuracy=found.base_accuracy / 2, base_replicates=found.base_replicates / 2)
    half = relative_drop(halved, 0)
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
