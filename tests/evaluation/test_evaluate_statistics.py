"""Accuracies, drops, intervals and slopes agree with independent references and behave as
stated."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, norm
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.proportion import confint_proportions_2indep
from statsmodels.tools import add_constant

from colour_world import CANDIDATES, build_colours, png_of
from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import (
    ClassUnits,
    Drops,
    accuracy_slope,
    class_averages,
    classes_with_images,
    drops_of_classes,
    effective_robustness,
    effective_robustness_intervals,
    find_near_chance,
    near_chance,
)
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.measures.drop import relative_drop
from counterfoil.plan.layout import Sample
from counterfoil.prediction.class_map import ClassMap
from counterfoil.report.reference import near_chance_sentences
from counterfoil.report.results import ClassFacts, classes_of
from counterfoil.stats import wilson_estimate, wilson_interval
from support.estimates import interval_of
from support.measured import measured as numbers
from support.reports import evaluation_html
from support.tables import csv_rows


def probit_points(models: int, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Return base and shifted accuracies of models, 0 and 1 among them, and their numbers of
    images."""
    rng = np.random.default_rng(seed)
    images = int(rng.integers(20, 400)), int(rng.integers(20, 400))
    base, shifted = (rng.integers(0, n + 1, models) / n for n in images)
    base[0] = 0.0
    shifted[-1] = 1.0
    return base, shifted, images


def probits_by_hand(
    base: np.ndarray, shifted: np.ndarray, images: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    return norm.ppf((base * images[0] + 0.5) / (images[0] + 1)), norm.ppf(
        (shifted * images[1] + 0.5) / (images[1] + 1)
    )


@pytest.mark.parametrize("probits", [False, True])
@given(models=st.integers(5, 12), seed=st.integers(0, 2**32 - 1))
def test_a_slope_and_its_interval_are_those_of_ordinary_least_squares(
    probits: bool, models: int, seed: int
) -> None:
    base, shifted, images = probit_points(models, seed)
    x, y = probits_by_hand(base, shifted, images) if probits else (base, shifted)
    expected = OLS(y, add_constant(x)).fit()
    fit = accuracy_slope(base.tolist(), shifted.tolist(), images if probits else None)
    assert fit is not None and fit.n_models == models
    assert (fit.intercept, fit.slope) == pytest.approx(expected.params)
    assert (fit.low, fit.high) == pytest.approx(expected.conf_int()[1])
    assert fit.r_squared == pytest.approx(expected.rsquared)


@pytest.mark.parametrize("images", [None, (100, 100)])
def test_four_models_and_models_of_one_base_accuracy_have_no_slope(
    images: tuple[int, int] | None,
) -> None:
    assert accuracy_slope([0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.6, 0.7], images) is None
    assert accuracy_slope([0.5] * 5, [0.1, 0.2, 0.3, 0.4, 0.5], images) is None


@given(models=st.integers(6, 12), seed=st.integers(0, 2**32 - 1))
def test_effective_robustness_is_the_distance_from_the_line_through_the_other_models(
    models: int, seed: int
) -> None:
    base, shifted, images = probit_points(models, seed)
    x, y = probits_by_hand(base, shifted, images)
    robustness = effective_robustness(base, shifted, images)
    for model in range(models):
        others = np.arange(models) != model
        line = linregress(x[others], y[others])
        counted = norm.cdf(line.intercept + line.slope * x[model]) * (images[1] + 1) - 0.5
        assert robustness[model] == pytest.approx(
            shifted[model] - min(max(counted / images[1], 0), 1), abs=1e-9
        )
    # Replicates are rows.
    assert effective_robustness(np.stack([base, base]), np.stack([shifted] * 2), images)[
        1
    ] == pytest.approx(robustness)


def test_effective_robustness_needs_five_others_that_differ() -> None:
    five = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    assert np.isnan(effective_robustness(five, five, (100, 100))).all()
    robustness = effective_robustness(
        np.array([0.5] * 6 + [0.6]), np.linspace(0.2, 0.5, 7), (100, 100)
    )
    # without the last, all base accuracies are equal
    assert np.isnan(robustness).tolist() == [False] * 6 + [True]


@pytest.mark.release(of="statistics")
def test_the_interval_of_effective_robustness_covers_what_these_models_truly_have() -> None:
    """40 data sets of eight models on ten classes of 12 pairs; a pair is equally hard for all
    models."""
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(40):
        base = rng.uniform(0.2, 1.6, 8)
        shifted = 0.9 * base - 0.6 + rng.normal(0, 0.1, 8)
        drawn = []
        for number in range(10):
            hard = rng.normal(size=(12, 1))
            present = np.ones(12, dtype=bool)
            sides = [
                math.sqrt(2) * probit + hard + rng.normal(size=(12, 8)) > 0
                for probit in (base, shifted)
            ]
            drawn.append(ClassUnits(f"c{number}", present, sides[0], present, sides[1]))
        measured = drops_of_classes(drawn, paired=True, seed=0, salt="s", replicates=200)
        truth = effective_robustness(norm.cdf(base), norm.cdf(shifted), (10**9, 10**9))
        for model, shown in effective_robustness_intervals(measured, (120, 120)).items():
            low, _, high = interval_of(shown)
            covered.append(low <= truth[model] <= high)
    assert len(covered) == 320 and np.mean(covered) > 0.89


def test_probit_numbers_of_an_evaluation_are_those_of_its_accuracies(
    evaluation: Evaluation,
) -> None:
    rows = evaluation.results.rows
    sound = evaluation.sound_models
    for shift in evaluation.shifts:
        sides = [
            evaluation.results.drop_sides(model.name, shift.name) or (0.0, 0.0) for model in sound
        ]
        base, shifted = map(list, zip(*sides, strict=True))
        line = accuracy_slope(base, shifted, (shift.base_images, shift.images))
        row = rows.one("probit_slope", group=shift.name)
        assert line is not None and row is not None
        assert (row.value, row.n) == (pytest.approx(line.slope), len(sound))
        assert rows.value("probit_r_squared", group=shift.name) == pytest.approx(line.r_squared)
    assert not rows.where("effective_robustness")  # five models are too few
    table = {row["shift"]: row for row in csv_rows(evaluation.files["shifts"])}
    assert float(table["swap"]["probit_slope"]) == pytest.approx(
        rows.value("probit_slope", group="swap"), abs=1e-4
    )


def random_classes(
    seed: int, classes: int = 3, units: int = 20, models: int = 2
) -> list[ClassUnits]:
    rng = np.random.default_rng(seed)
    drawn = []
    for index in range(classes):
        base = rng.random(units) < 0.8
        shift = rng.random(units) < 0.6
        base[0] = shift[0] = True
        drawn.append(
            ClassUnits(
                f"c{index}",
                base,
                rng.random((units, models)) < 0.8,
                shift,
                rng.random((units, models)) < 0.5,
            )
        )
    return drawn


def naive_accuracy(classes: list[ClassUnits], model: int, side: str) -> float:
    """Average over classes, in loops, the share of present images that are right."""
    shares = []
    for cls in classes:
        present = getattr(cls, f"{side}_present")
        correct = getattr(cls, f"{side}_correct")
        right = total = 0
        for unit in range(len(present)):
            if present[unit]:
                total += 1
                right += int(correct[unit, model])
        shares.append(right / total)
    return sum(shares) / len(shares)


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(1, 5), models=st.integers(1, 3))
def test_accuracies_and_drop_equal_the_naive_loops(seed: int, classes: int, models: int) -> None:
    drawn = random_classes(seed, classes, models=models)
    measured = drops_of_classes(drawn, paired=True, seed=0, salt="s", replicates=4)
    for model in range(models):
        base = naive_accuracy(drawn, model, "base")
        shift = naive_accuracy(drawn, model, "shift")
        assert measured.base_accuracy[model] == pytest.approx(base)
        assert measured.accuracy[model] == pytest.approx(shift)
        assert measured.drop[model] == pytest.approx(base - shift)
    impact = measured.impact()
    assert impact is not None
    assert impact.value == pytest.approx(float(np.mean(measured.drop)))


def test_class_drops_average_to_the_drop_and_each_is_the_drop_of_its_class_alone() -> None:
    classes = random_classes(5)
    measured = drops_of_classes(classes, paired=True, seed=0, salt="s", replicates=200)
    assert set(measured.classes) == {"c0", "c1", "c2"}
    by_class = [
        drops_of_classes([cls], paired=True, seed=0, salt="s", replicates=200) for cls in classes
    ]
    np.testing.assert_allclose(np.mean([alone.drop for alone in by_class], axis=0), measured.drop)
    assert [measured.classes[cls.class_id] for cls in classes] == [
        alone.impact() for alone in by_class
    ]


def naive_bootstrap(classes: list[ClassUnits], paired: bool, replicates: int) -> list[float]:
    """Compute replicates for model 0 by the definition, in loops and with another generator."""
    import random

    rng = random.Random(11)
    means = []
    for _ in range(replicates):
        differences = []
        for cls in classes:
            base = [u for u in range(len(cls.base_present)) if cls.base_present[u]]
            shift = [u for u in range(len(cls.shift_present)) if cls.shift_present[u]]
            if paired:
                units = sorted(set(base) | set(shift))
                drawn = rng.choices(units, k=len(units))
                base_drawn = [u for u in drawn if cls.base_present[u]]
                shift_drawn = [u for u in drawn if cls.shift_present[u]]
            else:
                base_drawn = rng.choices(base, k=len(base))
                shift_drawn = rng.choices(shift, k=len(shift))
            if base_drawn and shift_drawn:
                right_base = sum(bool(cls.base_correct[u, 0]) for u in base_drawn) / len(base_drawn)
                right_shift = sum(bool(cls.shift_correct[u, 0]) for u in shift_drawn) / len(
                    shift_drawn
                )
                differences.append(right_base - right_shift)
        means.append(sum(differences) / len(differences))
    return means


@pytest.mark.parametrize("paired", [True, False])
def test_the_bootstrap_agrees_with_its_definition_in_loops(paired: bool) -> None:
    classes = random_classes(3)
    reference = np.array(naive_bootstrap(classes, paired, 3000))
    replicates = drops_of_classes(
        classes, paired=paired, seed=1, salt="s", replicates=6000
    ).replicates[:, 0]
    spread = reference.std()
    # Five standard errors of either mean and spread, from 3000 replicates.
    assert abs(replicates.mean() - reference.mean()) < 5 * spread * math.sqrt(1 / 3000 + 1 / 6000)
    assert replicates.std() == pytest.approx(spread, rel=5 / math.sqrt(2 * 3000))


def test_pairing_removes_what_base_and_shift_share() -> None:
    # Every shifted image is right exactly when its base image is: the drop is 0 in every paired
    # replicate.
    rng = np.random.default_rng(0)
    correct = rng.random((40, 1)) < 0.5
    present = np.ones(40, dtype=bool)
    cls = ClassUnits("c", present, correct, present, correct)
    paired = drops_of_classes([cls], paired=True, seed=0, salt="s")
    apart = drops_of_classes([cls], paired=False, seed=0, salt="s")
    assert np.all(paired.replicates == 0)
    expected = math.sqrt(2 * correct.mean() * (1 - correct.mean()) / 40)
    assert apart.replicates.std() == pytest.approx(expected, rel=0.1)


def test_an_interval_does_not_depend_on_the_other_models_or_classes_order() -> None:
    classes = random_classes(9, models=3)
    all_models = drops_of_classes(classes, paired=True, seed=4, salt="snow")
    alone = [
        ClassUnits(
            c.class_id,
            c.base_present,
            c.base_correct[:, 1:2],
            c.shift_present,
            c.shift_correct[:, 1:2],
        )
        for c in reversed(classes)
    ]
    one_model = drops_of_classes(alone, paired=True, seed=4, salt="snow")
    np.testing.assert_allclose(
        one_model.replicates[:, 0], all_models.replicates[:, 1], rtol=0, atol=1e-12
    )


def test_seed_and_shift_change_the_draws() -> None:
    classes = random_classes(9)
    first = drops_of_classes(classes, paired=True, seed=0, salt="snow").replicates
    assert np.array_equal(
        first, drops_of_classes(classes, paired=True, seed=0, salt="snow").replicates
    )
    assert not np.array_equal(
        first, drops_of_classes(classes, paired=True, seed=1, salt="snow").replicates
    )
    assert not np.array_equal(
        first, drops_of_classes(classes, paired=True, seed=0, salt="fog").replicates
    )


def test_a_draw_without_an_image_on_one_side_sits_out() -> None:
    base = np.array([True, False, False, False])
    shift = np.array([False, True, True, True])
    right = np.ones((4, 1), dtype=bool)
    measured = drops_of_classes(
        [ClassUnits("c", base, right, shift, ~right)], paired=True, seed=0, salt="s"
    )
    finite = measured.replicates[np.isfinite(measured.replicates)]
    assert 0 < finite.size < measured.replicates.size
    assert np.all(finite == 1.0)
    # One image on one side and three on the other: every draw is 1, which is far from certain.
    shown = measured.interval(0)
    assert shown.low is not None and shown.low < 0.5 and shown.high == 1.0


def test_no_class_is_an_error() -> None:
    with pytest.raises(ValueError, match="no class"):
        drops_of_classes([], paired=True, seed=0, salt="s")


def test_a_class_survives_with_enough_images_on_both_sides() -> None:
    def counted(base: int, shift: int) -> ClassUnits:
        units = np.arange(10)
        return ClassUnits(
            f"{base}-{shift}",
            units < base,
            np.ones((10, 1), bool),
            units < shift,
            np.ones((10, 1), bool),
        )

    classes = [counted(5, 5), counted(5, 4), counted(4, 5), counted(10, 10)]
    assert [cls.class_id for cls in classes_with_images(classes, 5)] == ["5-5", "10-10"]
    assert counted(7, 3).pairs().counts == (3, 3)


def test_a_flat_line_has_a_slope_of_zero() -> None:
    flat = accuracy_slope([0.1, 0.2, 0.3, 0.4, 0.5], [0.3] * 5)
    assert flat is not None
    assert (flat.slope, flat.r_squared) == (0.0, 0.0)


def test_a_relative_drop_is_the_share_of_the_base_that_is_lost() -> None:
    measured = drops_of_classes(
        random_classes(7, classes=4, units=60), paired=True, seed=0, salt="s"
    )
    for model in range(2):
        base = float(measured.base_accuracy[model])
        shown = relative_drop(measured, model)
        low, value, high = interval_of(shown)
        assert value == pytest.approx(1 - float(measured.accuracy[model]) / base)
        assert low < value < high
        assert np.nanmean(measured.base_replicates[:, model]) == pytest.approx(base, abs=0.02)


def test_nothing_can_be_lost_of_nothing() -> None:
    nothing = np.zeros(12)
    assert (
        relative_drop(drops_of_classes([units(nothing, nothing)], paired=True, seed=0, salt="s"), 0)
        is None
    )


@pytest.mark.parametrize("paired", [True, False])
def test_blocks_of_draws_change_no_bit(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    present = rng.random((2, 57)) < 0.8
    right = rng.random((2, 57, 3)) < 0.6
    cls = accuracy_stats.ClassUnits("a", present[0], right[0], present[1], right[1])

    def drawn() -> Drops:
        return drops_of_classes([cls], paired=paired, seed=5, salt="s", replicates=301)

    whole = drawn()
    for block in (1, 57 * 7):
        monkeypatch.setattr(accuracy_stats, "_DRAWN_AT_ONCE", block)
        again = drawn()
        assert np.array_equal(whole.replicates, again.replicates)
        assert np.array_equal(whole.base_replicates, again.base_replicates)


def units(base: np.ndarray, shift: np.ndarray, name: str = "c") -> ClassUnits:
    present = np.ones(len(base), dtype=bool)
    return ClassUnits(
        name, present, base[:, None].astype(bool), present, shift[:, None].astype(bool)
    )


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("paired", [True, False])
def test_a_constant_predictor_has_newcombes_interval(right: bool, paired: bool) -> None:
    answers = np.full(12, right)
    measured = drops_of_classes([units(answers, answers)], paired=paired, seed=0, salt="s")
    low, high = confint_proportions_2indep(
        12 * right, 12, 12 * right, 12, method="newcomb", compare="diff"
    )
    for shown in (measured.interval(0), measured.impact(), measured.classes["c"]):
        assert shown is not None
        assert (shown.value, shown.low, shown.high) == pytest.approx((0.0, low, high), abs=1e-9)
    averaged = class_averages([units(answers, answers)], seed=0, salt="s").interval(0)
    alone = wilson_estimate(12 * right, 12)
    assert (averaged.low, averaged.high) == pytest.approx((alone.low, alone.high))


def test_distances_of_classes_add_as_standard_errors_do() -> None:
    right = np.ones(12)
    single = drops_of_classes([units(right, right)], paired=True, seed=0, salt="s").interval(0)
    four = drops_of_classes(
        [units(right, right, f"c{n}") for n in range(4)], paired=True, seed=0, salt="s"
    ).interval(0)
    assert single.high is not None and four.high is not None
    assert four.high == pytest.approx(single.high / 2)


def test_pairs_that_never_differ_are_not_sure_never_to() -> None:
    mixed = np.arange(40) % 2 == 0
    interval = drops_of_classes([units(mixed, mixed)], paired=True, seed=0, salt="s").interval(0)
    low, _, high = interval_of(interval)
    # After 40 equal pairs, about 3 in 40 may still differ ("rule of three").
    assert -0.1 < low < -0.02 and 0.02 < high < 0.1
    more = drops_of_classes(
        [units(np.tile(mixed, 9), np.tile(mixed, 9))], paired=True, seed=0, salt="s"
    ).interval(0)
    assert more.high is not None and more.high < high / 2


def test_classes_that_all_disagree_a_little_keep_the_bootstraps_interval() -> None:
    rng = np.random.default_rng(3)
    base = rng.random(60) < 0.8
    shift = rng.random(60) < 0.6
    measured = drops_of_classes([units(base, shift)], paired=True, seed=0, salt="s")
    low, high = np.quantile(measured.replicates[:, 0], [0.025, 0.975])
    assert (measured.interval(0).low, measured.interval(0).high) == (low, high)


def test_a_relative_drop_of_nothing_is_not_sure_either() -> None:
    right = np.ones(12)
    measured = drops_of_classes([units(right, right)], paired=True, seed=0, salt="s")
    agreed = (float(measured.agreed[0][0]), float(measured.agreed[1][0]))
    shown = relative_drop(measured, 0)
    drop = measured.interval(0)
    assert shown is not None and shown.high is not None and shown.low is not None
    assert (shown.low, shown.high) == pytest.approx(
        (drop.low, drop.high)
    ) and shown.low < 0 < shown.high
    halved = replace(
        measured,
        base_accuracy=measured.base_accuracy / 2,
        base_replicates=measured.base_replicates / 2,
    )
    half = relative_drop(halved, 0)
    assert half is not None and half.low is not None and half.high is not None
    assert (half.low, half.high) == pytest.approx((2 * -agreed[0], 2 * agreed[1]))


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize(
    ("classes", "images", "paired"), [(1, 12, True), (3, 12, False), (10, 6, True)]
)
@pytest.mark.parametrize(("base_rate", "shift_rate"), [(1.0, 0.98), (0.99, 0.95), (0.01, 0.0)])
def test_intervals_cover_the_drop_of_models_that_are_nearly_constant(
    base_rate: float, shift_rate: float, classes: int, images: int, paired: bool
) -> None:
    """200 data sets are drawn from known rates; a bootstrap alone misses each one whose images all
    agree."""
    rng = np.random.default_rng(17)
    covered = 0
    for _ in range(200):
        drawn = [
            units(rng.random(images) < base_rate, rng.random(images) < shift_rate, f"c{n}")
            for n in range(classes)
        ]
        shown = drops_of_classes(drawn, paired=paired, seed=0, salt="s", replicates=200).interval(0)
        low, _, high = interval_of(shown)
        covered += low <= base_rate - shift_rate <= high
    # Five standard errors below 95 %, for 200 data sets.
    assert covered / 200 > 0.95 - 5 * (0.95 * 0.05 / 200) ** 0.5


COLOURS = 3


def by_hand(correct: int, images: int, outputs: int) -> bool:
    """Apply the definition with the interval of another library."""
    chance = 1 / outputs
    low = wilson_interval(correct, images)[0]
    assert low is not None
    return low < chance + 0.1 * (1 - chance)


@given(images=st.integers(1, 400), outputs=st.integers(2, 1000), data=st.data())
def test_near_chance_is_wilsons_lower_end_under_the_line(
    images: int, outputs: int, data: st.DataObject
) -> None:
    correct = data.draw(st.integers(0, images))
    near = near_chance(np.array([correct / images]), images, np.array([1 / outputs]))
    assert near.tolist() == [by_hand(correct, images, outputs)]


def test_a_class_is_judged_by_the_models_that_are_not_near_chance() -> None:
    # Two models know the first class and six guess: an average over all would be near chance.
    guess = [0.1] * 6
    accuracy = np.array([[0.9, 0.9, *guess], [0.9, 0.8, *guess], [0.05, 0.1, *guess]])
    near = find_near_chance("abc", accuracy, np.array([30, 30, 30]), np.full((3, 8), 0.1))
    assert near.models.tolist() == [False, False, *[True] * 6]
    assert near.classes == {"c": pytest.approx(0.075)}
    assert near.cells["a"].tolist() == [False, False, *[True] * 6]


def test_where_every_model_is_near_chance_classes_are_judged_by_all_of_them() -> None:
    accuracy = np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    near = find_near_chance("abc", accuracy, np.array([12, 12, 12]), np.full((3, 2), 1 / 3))
    assert near.models.all()
    assert list(near.classes) == ["b", "c"]


def test_the_highest_chance_of_the_models_counts_for_a_class() -> None:
    accuracy = np.array([[0.62, 0.62], [0.99, 0.99]])
    images = np.array([100, 100])
    assert not find_near_chance("ab", accuracy, images, np.full((2, 2), 0.1)).classes
    assert find_near_chance("ab", accuracy, images, np.array([[0.1, 0.5]] * 2)).chances == {
        "a": 0.5
    }


def test_a_class_with_many_right_outputs_is_measured_by_its_own_chance() -> None:
    # 4 of 10 outputs are right for the first class, 1 for the second: a guess is right in 40 % and
    # 10 % of images.
    accuracy = np.full((2, 1), 0.45)
    images = np.array([200, 200])
    near = find_near_chance("ab", accuracy, images, np.array([[0.4], [0.1]]))
    assert (list(near.classes), near.cells) == (["a"], {"a": [True], "b": [False]})
    assert (
        not near.models[0] and find_near_chance("ab", accuracy, images, np.full((2, 1), 0.4)).models
    )
    assert ClassMap("imagenet", 10, ((1, 2, 3, 4), (5,))).chances.tolist() == [0.4, 0.1]


def test_a_model_near_chance_is_marked_and_in_no_average(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    assert [model.name for model in evaluation.models if model.near_chance] == [models["only_blue"]]
    assert {model.chance for model in evaluation.models} == {1 / COLOURS}
    sound = [model.name for model in evaluation.sound_models]
    for shift in evaluation.shifts:
        drops = [evaluation.score(name, shift.name).drop for name in sound]
        impact, fitted = (
            evaluation.results.rows.one(name, group=shift.name) for name in ("impact", "slope")
        )
        assert impact is not None and fitted is not None
        assert impact.value == pytest.approx(np.mean([drop.value for drop in drops if drop]))
        assert fitted.n == impact.n == len(sound)
        scores = [evaluation.score(name, shift.name) for name in sound]
        line = accuracy_slope(
            [score.drop_base or 0 for score in scores], [score.accuracy or 0 for score in scores]
        )
        assert line is not None and line.slope == pytest.approx(fitted.value)
    # Every table keeps it.
    rows = [
        row
        for row in csv_rows(evaluation.files["robustness"])
        if row["model"] == models["only_blue"]
    ]
    assert [row["near_chance"] for row in rows] == ["1", "1"] and all(row["drop"] for row in rows)
    marks = {row["model"]: row["near_chance"] for row in csv_rows(evaluation.files["results"])}
    assert marks[models["only_blue"]] == "1"


@pytest.fixture(scope="module")
def blind(dataset: Path, models: dict[str, str]) -> Evaluation:
    """Evaluate one model that never answers green: only that class is near chance on the base."""
    return numbers(dataset, [models["no_green"]])


def tables_of(evaluation: Evaluation) -> dict[str, str]:
    assert evaluation.task is not None
    tables = evaluation.task.all_tables(evaluation.results)
    return {name: text for name, (_, text) in tables.items()}


def test_drops_leave_out_a_class_near_chance_and_accuracies_count_it(
    blind: Evaluation, dataset: Path
) -> None:
    [model] = blind.models
    assert not model.near_chance and blind.base
    left_out = [(cls.class_id, cls.why, cls.base_accuracy) for cls in blind.near_chance_classes]
    assert left_out == [("01", "near chance", 0.0)]
    assert (blind.base.classes, blind.base.images, blind.base.left_out) == (3, 3 * CANDIDATES, ())
    base = blind.results.base_number(model.name)
    assert base is not None and base.value == pytest.approx(2 / 3)
    for shift in blind.shifts:
        score = blind.score(model.name, shift.name)
        assert (shift.classes, score.classes, score.images) == (2, 2, 2 * CANDIDATES)
        assert [cls.why for cls in shift.left_out] == ["near chance"]
        assert score.drop_base == 1.0 and score.numbers["drop"].note == "over 2 of 3 classes"
    # An average over all three classes would understate the drop.
    swap = blind.score(model.name, "swap").drop
    assert swap is not None and swap.value == pytest.approx(1 / 3)
    green = next(cls for cls in classes_of(blind.results, "swap") if cls.class_id == "01")
    assert (green.class_near_chance, green.near_chance, green.impact) == (True, (True,), None)
    assert green.base_accuracy == (0.0,) and len(green.drops) == 1
    few = numbers(dataset, [model.name], min_images_per_class=CANDIDATES + 1)
    assert {cls.why for shift in few.shifts for cls in shift.left_out} == {"few images"}
    assert not few.models[0].near_chance and few.results.base_number(model.name) == base
    assert not few.results.rows.where("drop")


def test_classes_near_chance_are_marked_in_their_tables(blind: Evaluation) -> None:
    tables = tables_of(blind)
    rows = {(row["shift"], row["class_id"]): row for row in csv_rows(tables["classes"])}
    green = rows["swap", "01"]
    red = rows["swap", "00"]
    assert (green["measured"], green["near_chance"], green["drop"]) == ("0", "1", "")
    assert (green["base_accuracy"], red["measured"], red["near_chance"]) == ("0.000", "1", "0")
    assert {row["classes_near_chance"] for row in csv_rows(tables["shifts"])} == {"01"}


def test_what_is_left_out_is_counted_in_words(blind: Evaluation, evaluation: Evaluation) -> None:
    assert near_chance_sentences(blind.results) == (
        "1 of 3 classes (green) is near chance on the base: accuracies count it, drops do not.",
    )
    assert near_chance_sentences(evaluation.results) == (
        "1 of 6 models (only_blue) is near chance on the base: averages over models leave it out.",
    )
    [cls] = blind.near_chance_classes
    many = tuple(replace(cls, class_id=str(n), name=f"class {n}") for n in range(40))
    groups = (
        blind.groups[0],
        *(replace(shift, classes=60, left_out=many) for shift in blind.shifts),
    )
    classes = tuple(ClassFacts(str(n), f"class {n}") for n in range(100))
    [shown] = near_chance_sentences(replace(blind.results, groups=groups, classes=classes))
    assert (
        shown.startswith("40 of 100 classes (class 0, class 1, ")
        and "and 28 more) are near chance" in shown
    )


def test_whom_an_average_is_over_is_said(blind: Evaluation, evaluation: Evaluation) -> None:
    alone = evaluation_html(blind.results)
    several = evaluation.files["report"].read_text()
    # The text on the method may name models in general.
    shown = alone.split(">Method<")[0].split("<script>")[0].split("<strong>Absolute impact")[0]
    assert "averaged over models" not in shown and "all models" not in shown
    assert (
        several.count("averaged over models not near chance") > 3
        and "all models: impact" not in several
    )
    assert "models not near chance: impact" in several


def test_where_everything_is_near_chance_there_are_words_and_no_number(
    tmp_path: Path, models: dict[str, str]
) -> None:
    # Every image is painted as the next class: a model that reads colours is always wrong.
    def image(sample: Sample) -> bytes:
        return png_of(replace(sample, label=(sample.label + 1) % COLOURS))

    dataset = build_colours(tmp_path / "d", image=image)
    result = numbers(dataset, [models["sharp"]])
    page = evaluation_html(result.results)
    base = result.results.base_number(result.models[0].name)
    assert result.models[0].near_chance and base is not None and base.value == 0
    assert "right on base; no drop can be given" in repr(result) and "0.0 %" in page
    assert not result.results.rows.where("impact", class_id="") and not result.results.rows.where(
        "slope"
    )
    assert all(
        score.drop is None and score.drop_base is None and score.accuracy == 0
        for score in result.scores
    )
    shown = near_chance_sentences(result.results)
    assert len(shown) == 2 and "no drop can be measured" in shown[0]
    text = json.dumps(result.to_json(), allow_nan=False)
    assert "NaN" not in text
    tables = tables_of(result)
    for name in ("results", "robustness", "shifts", "classes"):
        assert "nan" not in tables[name].lower().split(","), name
    assert "nan" not in page.lower().split(",")
    assert {row["drop"] for row in csv_rows(tables["robustness"])} == {""}
