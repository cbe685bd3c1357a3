"""What a quota of wrong answers costs, in numbers and in one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.plan import judged_quotas, spoken_quotas
from counterfoil.recipe import Recipe, load_recipe

JUDGE = "lab:resnet10t"


def changes(
    record: Any,
    *,
    judges: str = JUDGE,
    at_least: int = 1,
    samples: str = "accepted: 20, at_most: 50",
    failure: str = "top1",
) -> list[str]:
    told = f"models: [{judges}], at_least: {at_least}, failure: '{failure}'"
    rule = f"[thresholds, {{misclassified: {{{told}}}}}]"
    return [
        f"prompts.shifts.red={json.dumps({'kind': 'mined', 'mined_from': record})}",
        f"prompts.shifts.red.keep={rule}",
        f"prompts.shifts.red.samples={{{samples}}}",
    ]


def recipe_of(record: Any, **options: Any) -> Recipe:
    return load_recipe("wardrobe-mini", changes(record, **options))


RECORD = {"target": {"name": JUDGE}, "set": {"rate": 0.25}}


def test_candidates_are_what_is_wanted_over_the_rate() -> None:
    [one] = judged_quotas(recipe_of(RECORD))
    assert (one.shift, one.cells, one.accepted, one.at_most) == ("red", 10, 20, 50)
    assert (one.rate, one.candidates_each, one.candidates_a_cell) == (0.25, 4, 80)
    assert spoken_quotas([one]) == (
        "at most 50 candidates a cell, 500 in all, until 20 are kept that lab:resnet10t gets wrong; at the failure"
        " rates that mined_from tells (25 %) a kept image takes about 4 candidates that pass the screen, a cell about"
        " 80, more than at_most."
    )


@pytest.mark.parametrize(
    "recipe",
    [
        recipe_of({"target": {"name": "lab:other"}, "set": {"rate": 0.25}}),
        recipe_of({"target": {"name": JUDGE}, "set": {"rate": 0}}),
        recipe_of({"target": {"name": JUDGE}, "set": {"rate": "often"}}),
        recipe_of({}),
        recipe_of(RECORD | {"failure": "parent"}),
        recipe_of(RECORD, failure="top3"),  # a record without a rule is of the first answer
        recipe_of(RECORD | {"failure": "top1"}, failure="top3"),
        recipe_of(RECORD | {"failure": "answered:00"}, failure="answered:05"),
        recipe_of(RECORD, judges=f"{JUDGE}, lab:lcnet_035", at_least=2),
    ],
)
def test_a_rate_that_is_not_that_of_the_rule_is_not_used(recipe: Recipe) -> None:
    [one] = judged_quotas(recipe)
    assert (one.rate, one.candidates_each, one.candidates_a_cell) == (None, None, None)
    assert "no failure rate is told (mined_from)" in spoken_quotas([one])


@pytest.mark.parametrize("failure", ["top3", "answered:05"])
def test_the_price_is_by_the_failure_rule_of_the_set(failure: str) -> None:
    [one] = judged_quotas(recipe_of(RECORD | {"failure": failure}, failure=failure))
    assert (one.failure, one.rate, one.candidates_a_cell) == (failure, 0.25, 80)
    assert f"are kept that lab:resnet10t gets wrong by the failure rule {failure}; at the" in spoken_quotas([one])


def test_without_a_quota_or_a_judge_there_is_nothing_to_say() -> None:
    assert judged_quotas(recipe_of(RECORD, samples="candidates: 5")) == ()
    assert judged_quotas(load_recipe("wardrobe-mini", ["samples={candidates: null, accepted: 2, at_most: 9}"])) == ()


def test_check_tells_it() -> None:
    words = [word for change in changes(RECORD) for word in ("--set", change)]
    shown = CliRunner().invoke(app, ["check", "wardrobe-mini", *words])
    assert shown.exit_code == 0, shown.output
    assert "at most 50 candidates a cell, 500 in all" in " ".join(shown.stdout.split())
    document = json.loads(CliRunner().invoke(app, ["check", "wardrobe-mini", *words, "--json"]).stdout)
    assert document["judged"][0]["candidates_a_cell"] == 80
    plain = json.loads(CliRunner().invoke(app, ["check", "wardrobe-mini", "--json"]).stdout)
    assert "judged" not in plain
