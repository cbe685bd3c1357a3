"""Levels of a shift: valid settings, and the shifts of the plan that they make."""

from __future__ import annotations

import pytest
import yaml

from counterfoil.plan.layout import Between, make_plan
from counterfoil.recipe import Recipe, load_recipe
from support.recipes import assert_refused, mini

LEVELS = "prompts.shifts.at_night.severity={levels: [.05, .5, 1]}"


def at_night(recipe: Recipe) -> list:
    return [shift for shift in recipe.all_shifts() if shift.of == "at_night"]


def test_each_level_is_a_shift_of_one_group_and_the_whole_one_keeps_its_name() -> None:
    plain = at_night(mini())
    levelled = at_night(mini(LEVELS))
    assert [shift.name for shift in levelled] == ["at_night_05", "at_night_50", "at_night"]
    assert {shift.group for shift in levelled} == {"at_night"}
    assert [shift.top for shift in levelled] == [False, False, True]
    assert [shift.scale for shift in levelled] == [0.05, 0.5, 1]
    assert {shift.by for shift in levelled} == {"prompt"} and not any(
        shift.realised for shift in levelled
    )
    assert {shift.threshold for shift in levelled} == {None} and plain[0].threshold is not None
    assert {shift.caption for shift in levelled} == {plain[0].caption}, "scores are still measured"


def test_levels_leave_every_other_sample_as_it_is() -> None:
    plain, levelled = (
        {sample.key: sample for cell in plan.cells() for sample in plan.samples(cell)}
        for plan in (make_plan(mini()), make_plan(mini(LEVELS)))
    )
    assert plain.items() <= levelled.items()
    base = levelled["base_08_000001"]
    for suffix, between in (("_05", 0.05), ("_50", 0.5), ("", None)):
        sample = levelled[f"at_night{suffix}_08_000001"]
        assert (sample.seed, sample.pair) == (base.seed, base.pair), "a trajectory is one scene"
        assert sample.between == (
            None if between is None else Between("prompt", between, base.prompt or "")
        )


def test_a_recipe_without_levels_has_no_column_of_them() -> None:
    assert "severity" not in mini().added_columns
    recipe = mini(
        LEVELS, "prompts.shifts.red.severity={levels: {realised: [.5, 1], scales: [.25, 1]}}"
    )
    given = {shift.name: recipe.given(shift) for shift in recipe.all_shifts()}
    assert given["base"] == {"severity": 0, "severity_realised": 0}
    assert given["at_night_50"] == {"severity": 0.5, "severity_realised": None}
    assert given["red_50"] == {"severity": 0.25, "severity_realised": 0.5}
    assert given["pencil_sketch"] == {"severity": None, "severity_realised": None}


def test_the_scales_that_a_build_finds_are_an_input_and_no_plan() -> None:
    open_scales = "prompts.shifts.red.severity={levels: {realised: [.5, 1]}}"
    with_scales = "prompts.shifts.red.severity={levels: {realised: [.5, 1], scales: [.25, 1]}}"
    assert (
        mini(open_scales).plan_hash
        == mini(with_scales).plan_hash
        != mini(with_scales.replace("realised: [.5", "realised: [.6")).plan_hash
    )
    assert mini(open_scales).scales == {"red": []} and mini(with_scales).scales == {
        "red": [0.25, 1.0]
    }
    assert mini(LEVELS).plan_hash != mini(LEVELS.replace(".05", ".1")).plan_hash != mini().plan_hash


def test_a_style_is_said_to_change_more_on_its_way() -> None:
    styled = "prompts.shifts.pencil_sketch.severity={levels: [.5, 1]}"
    assert mini(LEVELS, styled).levels_away_from_base == ["pencil_sketch"]


@pytest.mark.parametrize(
    "written", [LEVELS, LEVELS.replace("levels: [.05", "by: steps, levels: [.25")]
)
def test_the_portable_recipe_says_the_same(written: str) -> None:
    recipe = mini(written)
    severity = yaml.safe_load(recipe.portable_yaml)["prompts"]["shifts"]["at_night"]["severity"]
    assert severity == (
        {"by": "steps", "levels": [0.25, 0.5, 1]}
        if "steps" in written
        else {"levels": [0.05, 0.5, 1]}
    )
    assert recipe.portable.all_shifts() == recipe.all_shifts()


def test_a_corruption_has_its_five_severities_as_levels() -> None:
    recipe = load_recipe(
        "wardrobe-corrupt",
        ["prompts.shifts.fog={corruption: fog, severity: {levels: [.2, .6, 1]}}"],
    )
    fog = [shift for shift in recipe.all_shifts() if shift.of == "fog"]
    assert [(shift.name, shift.severity, shift.by) for shift in fog] == [
        ("fog_1", 1, "corruption"), ("fog_3", 3, "corruption"), ("fog", 5, "corruption")
    ]  # fmt: skip
    fixed = load_recipe("wardrobe-corrupt", ["prompts.shifts.fog={corruption: fog, severity: 3}"])
    assert yaml.safe_load(fixed.portable_yaml)["prompts"]["shifts"]["fog"]["severity"] == 3


@pytest.mark.parametrize(
    "case",
    [
        ("prompts.shifts.at_night.severity wrong-kind", "prompts.shifts.at_night.severity=3"),
        (
            "prompts.shifts.at_night.severity.levels.raw out-of-range",
            "prompts.shifts.at_night.severity={levels: []}",
        ),
        (
            "prompts.shifts.at_night.severity.levels.raw invalid-value expected rising levels",
            "prompts.shifts.at_night.severity={levels: [.5, .25]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels.raw invalid-value expected rising levels",
            "prompts.shifts.at_night.severity={levels: [.5, .5]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels.raw out-of-range",
            "prompts.shifts.at_night.severity={levels: [0, .5]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels.raw out-of-range",
            "prompts.shifts.at_night.severity={levels: [.5, 1.5]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels.raw invalid-value at most two decimals",
            "prompts.shifts.at_night.severity={levels: [.125, 1]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels invalid-value expected a list of levels, or `realised:`",
            "prompts.shifts.at_night.severity={levels: {}}",
        ),
        (
            "prompts.shifts.at_night.severity.levels invalid-value found 1 scales",
            "prompts.shifts.at_night.severity={levels: {realised: [.5, 1], scales: [.2]}}",
        ),
        (
            "prompts.shifts.at_night.severity.by wrong-kind",
            "prompts.shifts.at_night.severity={by: corruption, levels: [.2]}",
        ),
        (
            "prompts.shifts.at_night.severity quota-conflict",
            LEVELS,
            "samples={candidates: null, accepted: 2, at_most: 5}",
        ),
        (
            "prompts.shifts.at_night.keep levels-conflict",
            LEVELS,
            "prompts.shifts.at_night.keep=[thresholds, {misclassified: {models: [a]}}]",
        ),
        (
            "prompts.shifts.at_night.severity.levels invalid-levels in 0, 6",
            "prompts.shifts.at_night.severity={by: steps, levels: [.05, .5]}",
        ),
        (
            "prompts.shifts.at_night.severity.levels invalid-levels in 3, 3",
            "prompts.shifts.at_night.severity={by: steps, levels: [.25, .3]}",
        ),
        ("prompts.shifts.at_night.severity levels-conflict", LEVELS, "samples.noise=independent"),
        (
            "prompts.shifts.at_night.threshold levels-conflict",
            LEVELS,
            "prompts.shifts.at_night.threshold=0.2",
        ),
        (
            "prompts.shifts.at_night.severity name-clash",
            LEVELS,
            "prompts.shifts.at_night_50={prompt: 'a {class}'}",
        ),
        (
            "prompts.shifts.at_night.caption missing-key",
            "prompts.shifts.at_night.caption=null",
            LEVELS.replace("[.05, .5, 1]", "{realised: [.5, 1]}"),
        ),
    ],
)
def test_levels_that_cannot_be_are_refused(case: tuple[str, ...]) -> None:
    assert_refused("wardrobe-mini", *case)


@pytest.mark.parametrize(
    ("severity", "expected"),
    [
        ("{levels: [.3]}", "severity.levels invalid-levels"),
        ("{levels: {realised: [.2]}}", "severity.levels wrong-kind"),
        ("{by: prompt, levels: [.2]}", "severity.by wrong-kind"),
        ("9", "severity out-of-range"),
    ],
)
def test_levels_of_corruptions_that_cannot_be_are_refused(severity: str, expected: str) -> None:
    change = f"prompts.shifts.fog={{corruption: fog, severity: {severity}}}"
    assert_refused("wardrobe-corrupt", f"prompts.shifts.fog.{expected}", change)


@pytest.mark.parametrize(
    ("severities", "shares"), [("[1, 3, 5]", "[.2, .6, 1]"), ("[2]", "[.4]"), ("[5]", "[1]")]
)
def test_levels_of_a_corruption_may_be_severities(severities: str, shares: str) -> None:
    by_severity, by_share = (
        load_recipe("wardrobe-corrupt", [f"prompts.shifts.fog.severity={{levels: {levels}}}"])
        for levels in (severities, shares)
    )
    assert (
        by_severity.plan_hash == by_share.plan_hash
        and by_severity.portable_yaml == by_share.portable_yaml
    )


def test_rows_of_a_pool_have_no_levels() -> None:
    path = "prompts.shifts.in_the_snow.severity"
    assert_refused("wardrobe-retrieved", f"{path} wrong-kind", f"{path}={{levels: [.5]}}")
