"""`samples.pairs: attention` in recipes: what it needs, what it adds, and that without it nothing is another."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_output import PAIRED_BY
from support.recipes import mini
from support.recipes import problems as refused_for

BESIDE = "samples.pairs=attention"
DRAWN = "prompts.shifts.red.embedding={file: hard.safetensors, key: '{class_id}_hard'}"


def problems(*changes: str) -> list[str]:
    return refused_for(mini, BESIDE, *changes)


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        (["samples.noise=independent"], "samples.noise", "expected paired"),
        (["generator.batch_size=5"], "generator.batch_size", "found 5; .* such as 4 or 6"),
        (["generator.batch_size=1"], "generator.batch_size", "found 1; .* such as 2"),
        (["generator.compile=true"], "generator.compile", "expected false"),
        (["generator.adapter=lab:decoder"], "generator.adapter", "expected null"),
        (["prompts.base.embedding={file: a.safetensors, key: '{class_id}'}"], "prompts.base.embedding", "null"),
        ([DRAWN], "prompts.shifts.red.embedding", "drawn from prompts alone, expected null"),
        (
            ["generator={kind: retrieve, model: null, steps: null, guidance: null}", "tokens=null"],
            "samples.pairs",
            "generator.kind retrieve see no base beside them, expected noise",
        ),
    ],
)
def test_what_does_not_go_with_it_is_told_by_its_key(changes: list[str], key: str, said: str) -> None:
    found = problems(*changes)
    assert any(problem.startswith(key) for problem in found)
    with pytest.raises(UserError, match=said):
        load_recipe("wardrobe-mini", [BESIDE, *changes])


def test_all_of_it_is_told_at_once() -> None:
    changes = ("samples.noise=independent", "generator.batch_size=3", "generator.compile=true")
    found = {problem.partition(" ")[0].rstrip(":") for problem in problems(*changes)}
    assert found == {"samples.noise", "generator.batch_size", "generator.compile"}


def test_an_odd_batch_is_one_where_pairs_share_noise_alone() -> None:
    assert load_recipe("wardrobe-mini", ["generator.batch_size=5"]).generator.batch_size == 5


def test_what_is_held_of_a_base_is_of_the_plan_and_of_nothing_where_pairs_share_noise_alone() -> None:
    plain, beside = load_recipe("wardrobe-mini"), load_recipe("wardrobe-mini", [BESIDE])
    default, less = ["samples.held={share: 0.4, until: 0.6}"], ["samples.held.share=0.25"]
    assert load_recipe("wardrobe-mini", [BESIDE, *default]).plan_hash == beside.plan_hash
    assert load_recipe("wardrobe-mini", default).plan_hash == plain.plan_hash
    assert load_recipe("wardrobe-mini", [BESIDE, *less]).plan_hash != beside.plan_hash
    with pytest.raises(UserError, match=r"samples\.held.*pairs of noise alone"):
        load_recipe("wardrobe-mini", less)


def test_it_is_of_the_plan_and_of_no_other_hash() -> None:
    plain, beside = load_recipe("wardrobe-mini"), load_recipe("wardrobe-mini", [BESIDE])
    said = load_recipe("wardrobe-mini", ["samples.pairs=noise"])
    assert said.plan_hash == plain.plan_hash != beside.plan_hash
    assert beside.screen_hash == plain.screen_hash
    assert "pairs" not in plain.plan_document["samples"] and beside.plan_document["samples"]["pairs"] == "attention"


def test_rows_tell_what_pairs_share_only_where_a_recipe_asks_for_more_than_noise() -> None:
    plain, beside = load_recipe("wardrobe-mini"), load_recipe("wardrobe-mini", [BESIDE])
    assert PAIRED_BY not in plain.added_columns and beside.added_columns[PAIRED_BY].type == "string"
    assert set(beside.added_columns) == {*plain.added_columns, PAIRED_BY}
    assert all(plain.pairing(shift) == {} for shift in plain.all_shifts())
    told = {shift.name: beside.pairing(shift)[PAIRED_BY] for shift in beside.all_shifts()}
    assert told.pop("base") is None and set(told.values()) == {"attention"}


@pytest.mark.parametrize(
    ("steps", "held", "least"),
    [
        (12, "{until: 0.1}", "step 2 of 12 ends; expected at least 0.167"),
        (2, "{until: 0.4}", "step 1 of 2 ends; expected at least 0.5"),
        (7, "{share: 0.2, until: 0.28}", "step 2 of 7 ends; expected at least 0.286"),
        (1, "{share: 1}", "found 0.6, .* as step one ends; expected at least 1,"),
    ],
)
def test_a_part_that_no_step_would_hold_is_refused_and_what_is_expected_is_held(
    steps: int, held: str, least: str
) -> None:
    changes = [BESIDE, f"generator.steps={steps}", f"samples.held={held}"]
    with pytest.raises(UserError, match=rf"samples\.held\.until.*{least}"):
        load_recipe("wardrobe-mini", changes)
    enough = least.rpartition("at least ")[2].rstrip(",")
    recipe = load_recipe("wardrobe-mini", [*changes, f"samples.held.until={enough}"])
    assert recipe.samples.held.holds(steps)


@pytest.mark.parametrize("held", ["{until: 0}", "{share: 0, until: 0.01}", "{share: 0.4, until: 0.6}", "{until: 1}"])
@pytest.mark.parametrize("steps", [1, 2, 12])
def test_nothing_is_held_where_nothing_is_asked_for_and_by_default_as_far_as_steps_go(steps: int, held: str) -> None:
    recipe = load_recipe("wardrobe-mini", [BESIDE, f"generator.steps={steps}", f"samples.held={held}"])
    asks = "0" not in held or "0.6" in held
    assert recipe.samples.held.holds(steps) == (asks and (steps > 1 or "1}" in held))
