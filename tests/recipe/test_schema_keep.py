"""`screen.keep` is a list of rules, by name or with settings; a shift may have its own; odd ones are refused."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.keep import ThresholdsRule, TopRule
from counterfoil.recipe import Recipe, dump_recipe, load_recipe, load_recipe_text

TOP = "screen.keep=[thresholds, {top: {k: 2, by: shift}}]"
QUOTA = "samples={candidates: null, accepted: 2, at_most: 4}"


def rules(recipe: Recipe, shift: str) -> tuple:
    return next(each.keep for each in recipe.all_shifts() if each.name == shift)


def test_rules_are_applied_to_every_shift_and_ranking_by_the_shift_not_to_the_base() -> None:
    recipe = load_recipe("wardrobe-mini", [TOP])
    assert rules(recipe, "red") == (ThresholdsRule(), TopRule(k=2, by="shift"))
    assert rules(recipe, "base") == (ThresholdsRule(),)
    by_object = load_recipe("wardrobe-mini", ["screen.keep=[{top: {k: 2, by: object}}]"])
    assert rules(by_object, "base") == rules(by_object, "red") == (TopRule(k=2, by="object"),)


def test_a_shift_may_have_its_own_rules() -> None:
    recipe = load_recipe("wardrobe-mini", [TOP, "prompts.shifts.red.keep=thresholds"])
    assert rules(recipe, "red") == (ThresholdsRule(),)
    assert rules(recipe, "at_night") == (ThresholdsRule(), TopRule(k=2))


@pytest.mark.parametrize("changes", [[], [TOP], [TOP, "prompts.shifts.red.keep=[{top: {k: 1, by: object}}]"]])
def test_a_written_recipe_reads_back(changes: list[str]) -> None:
    recipe = load_recipe("wardrobe-mini", changes)
    assert load_recipe_text(dump_recipe(recipe)) == recipe


REFUSED = {
    "[tresholds]": "unknown name 'tresholds'; did you mean 'thresholds'? (names here: thresholds, misclassified, top,"
    " visible, same_image)",
    "[{tp: {k: 2}}]": "unknown key; did you mean 'top'?",
    "[{top: {k: 0}}]": "found the number 0, expected a whole number from 1",
    "[top]": "missing, expected a whole number",
    "[{top: {k: 2, by: colour}}]": "found 'colour', expected object or shift",
    "[]": "found an empty list, expected at least one of: thresholds, misclassified, top, visible, same_image",
    "3": "found the number 3, expected a list",
    "[{top: {k: 2}, thresholds: {}}]": "found thresholds and top, expected one of: thresholds, misclassified, top,"
    " visible, same_image",
}


JUDGED = "[thresholds, {misclassified: {models: [a], failure: %s}}]"
REFUSED |= {
    JUDGED % "top2": "found 'top2', expected top1, top3, parent or answered:CLASS_ID",
    JUDGED % "'answered:99'": "found 'answered:99', expected the id of a class",
    JUDGED % "parent": "found 'parent', but the class '00' and 9 more has no `parent` in the list of classes",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_no_rule_is_told(written: str) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("wardrobe-mini", [f"screen.keep={written}"])
    assert REFUSED[written] in "\n".join(refused.value.problems)


def test_ranking_goes_with_no_quota() -> None:
    with pytest.raises(UserError, match="'top' ranks a whole cell, which is unknown while a quota"):
        load_recipe("wardrobe-mini", [TOP, QUOTA])
    with pytest.raises(UserError, match=r"prompts\.shifts\.red\.keep .*'top' ranks a whole cell"):
        load_recipe("wardrobe-mini", ["prompts.shifts.red.keep=[{top: {k: 1}}]", QUOTA])


def test_ranking_goes_with_no_open_threshold() -> None:
    with pytest.raises(UserError, match="a percentile over all candidates with the keep rule 'top'"):
        load_recipe("wardrobe-mini", [TOP, "prompts.shifts.red.threshold={percentile: 5}"])
    load_recipe("wardrobe-mini", ["prompts.shifts.red.threshold={percentile: 5}"])


def test_an_empty_mapping_drops_the_inherited_shifts() -> None:
    assert [shift.name for shift in load_recipe("wardrobe-mini", ["prompts.shifts={}"]).all_shifts()] == ["base"]
    layer = "extends: wardrobe-mini\nprompts: {shifts: {}}\n"
    assert [shift.name for shift in load_recipe_text(layer).all_shifts()] == ["base"]
    both = ["prompts.shifts={}", "prompts.shifts.own={prompt: 'a {class}'}"]
    assert [shift.name for shift in load_recipe("wardrobe-mini", both).all_shifts()] == ["base", "own"]
