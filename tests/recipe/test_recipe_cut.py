"""A cut changes thresholds and nothing else, and says everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import dump_recipe, load_recipe
from counterfoil.recipe.loader import load_cut


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(load_recipe("wardrobe-mini")))
    return path


def cut(recipe: Path, text: str | bytes):
    layer = recipe.with_name("cut.yaml")
    layer.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_cut(recipe, layer)


def test_a_cut_lies_over_the_recipe(recipe: Path) -> None:
    before = load_recipe(recipe)
    after = cut(recipe, "prompts: {shifts: {red: {threshold: 0.3}}}\nscreen: {keep_rejected: true}\n")
    assert after == load_recipe(recipe, ["prompts.shifts.red.threshold=0.3", "screen.keep_rejected=true"])
    assert after.plan_hash == before.plan_hash
    assert after.screen_hash != before.screen_hash


def test_percentile_and_value_replace_each_other(recipe: Path) -> None:
    after = cut(recipe, "prompts: {base: {object_threshold: 0.1}, shifts: {red: {threshold: {percentile: 20}}}}")
    red = next(shift for shift in after.all_shifts() if shift.name == "red")
    assert red.threshold is not None
    assert red.threshold.percentile == 20
    recipe.write_text(dump_recipe(after))
    red = next(s for s in cut(recipe, "prompts: {shifts: {red: {threshold: 0.2}}}").all_shifts() if s.name == "red")
    assert red.threshold is not None
    assert red.threshold.value == 0.2
    recipe.write_text(dump_recipe(load_recipe("wardrobe-mini", ["prompts.shifts.red.threshold=0.2"])))
    cut(recipe, "prompts: {shifts: {red: {threshold: {percentile: 3}}}}")
    assert cut(recipe, "screen: {object_threshold: 0.2}").screen.object_threshold.value == 0.2


def test_all_that_is_wrong_is_said_at_once(recipe: Path) -> None:
    text = """
nme: x
screen: {model: other, keep_rejcted: true}
prompts:
  base: {prompt: "a {class}"}
  shifts:
    reed: {threshold: 0.1}
    red: {caption: red, threshold: 0.2}
"""
    with pytest.raises(UserError) as refused:
        cut(recipe, text)
    said = refused.value.problems
    assert refused.value.exit_code == 2
    places = ("nme", "screen.model", "screen.keep_rejcted", "base.prompt", "shifts.reed", "shifts.red.caption")
    assert len(said) == len(places)
    for place, line in zip(places, said, strict=True):
        assert place in line
        assert "cut.yaml:" in line
    assert "did you mean 'keep_rejected'" in said[2]
    assert "did you mean 'red'" in said[4]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "- a",
        "prompts: null",
        "prompts: {shifts: [red]}",
        "prompts: {shifts: {red: 0.2}}",
        "prompts: {shifts: {red: {threshold: 2}}}",
        "prompts: {shifts: {red: {threshold: .nan}}}",
        "prompts: {shifts: {red: {threshold: {value: 0.1, percentile: 5}}}}",
        "prompts: {shifts: {red: {threshold: 0.1}, red: {threshold: 0.2}}}",
        "extends: wardrobe-star",
        "screen: !!python/object/apply:os.system [ls]",
        b"\xff\xfe",
        "prompts: {",
    ],
)
def test_what_is_no_cut_is_a_users_mistake(recipe: Path, text: str | bytes) -> None:
    with pytest.raises(UserError):
        cut(recipe, text)


def test_a_file_that_is_not_there_is_said(recipe: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        load_cut(recipe, recipe.with_name("nowhere.yaml"))


def test_an_open_shift_and_a_quota_exclude_each_other() -> None:
    quota = ["samples=null", "samples={accepted: 2, at_most: 6}"]
    load_recipe("wardrobe-mini", quota)
    with pytest.raises(UserError) as refused:
        load_recipe("wardrobe-mini", [*quota, "prompts.shifts.red.threshold={percentile: 5}"])
    (problem,) = refused.value.problems
    assert "prompts.shifts.red.threshold" in problem
    assert "quota" in problem
    every = load_recipe("wardrobe-mini").prompts.shifts
    inherited = [f"prompts.shifts.{name}.threshold=null" for name in every]
    with pytest.raises(UserError, match=r"screen\.shift_threshold"):
        load_recipe("wardrobe-mini", [*quota, "screen.shift_threshold={percentile: 5}", *inherited])
    load_recipe("wardrobe-mini", ["screen.shift_threshold={percentile: 5}", *inherited])
