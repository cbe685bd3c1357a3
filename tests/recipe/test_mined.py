"""Mined shifts: a kind of their own, and any record of what they came from, within bounds and outside every hash."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import (
    Recipe,
    dump_recipe,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
)
from counterfoil.recipe.schema_prompts import DEEPEST, MOST_CHARACTERS, MOST_VALUES, free_form_problem
from counterfoil.recipe.strict_yaml import dump_yaml

RECORD = {
    "target": {"model": "lab:resnet10t", "sha256": "ab" * 32},
    "method": "directions",
    "rate": [0.31, 0.05],
    "failures": 12,
    "confirmed": True,
    "q": None,
    "odd 'name': ": "{class} \n | <b> é",
}


def with_record(record: Any) -> Recipe:
    shift = {"kind": "mined", "mined_from": record}
    return load_recipe_text(dump_yaml({"extends": "wardrobe-mini", "prompts": {"shifts": {"red": shift}}}))


def record_of(recipe: Recipe) -> Any:
    return json.loads(recipe.model_dump_json())["prompts"]["shifts"]["red"].get("mined_from")


def test_a_mined_shift_is_the_shift_that_it_was(tmp_path) -> None:
    mini, mined = load_recipe("wardrobe-mini"), with_record(RECORD)
    assert (mined.plan_hash, mined.screen_hash) == (mini.plan_hash, mini.screen_hash)
    assert next(shift.kind for shift in mined.all_shifts() if shift.name == "red") == "mined"
    assert mined != mini
    published = load_own_recipe(tmp_path, text=mined.portable_yaml)
    assert record_of(mined) == record_of(published) == RECORD


scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
trees = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(words, trees, max_size=3))
def test_whatever_is_recorded_reads_back(record: dict[str, Any]) -> None:
    if free_form_problem(record) is None:
        recipe = with_record(record)
        assert record_of(recipe) == record_of(load_recipe_text(dump_recipe(recipe))) == record


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


BOUNDS = {
    "levels": (nested(DEEPEST), nested(DEEPEST + 1), "nested too deeply"),
    "values": ({"a": [0] * (MOST_VALUES - 2)}, {"a": [0] * (MOST_VALUES - 1)}, "keys and values"),
    "text": ({"a": "x" * (MOST_CHARACTERS - 1)}, {"a": "x" * MOST_CHARACTERS}, "characters"),
    "keys": ({"x" * MOST_CHARACTERS: 1}, {"x" * MOST_CHARACTERS: "y"}, "characters"),
    "whole numbers": ({"a": -(2**53)}, {"a": 2**53 + 1}, "whole number past 2^53"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_record_has_bounds(bound: str) -> None:
    within, past, said = BOUNDS[bound]
    assert free_form_problem(within) is None
    assert said in (free_form_problem(past) or "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1: 2}, {"a"}, object()])
def test_what_is_no_json_is_told(value: object) -> None:
    assert free_form_problem({"a": value})


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[1]", "found a list, expected a mapping"),
        ("text", "found 'text', expected a mapping"),
        ("{a: .nan}", "finite numbers"),
        (f"{{a: 1{'0' * 900}}}", "past 2^53"),
        (f"{{a: {'[' * 20}{']' * 20}}}", "nested too deeply"),
        (f"{{a: [{'b, ' * 2000}]}}", "more than 1,000 keys and values"),
    ],
)
def test_a_recipe_with_another_record_is_refused_where_it_stands(written: str, said: str) -> None:
    with pytest.raises(UserError, match=rf"prompts\.shifts\.red\.mined_from.*{re.escape(said)}"):
        load_recipe("wardrobe-mini", [f"prompts.shifts.red.mined_from={written}"])


def test_nested_as_deep_as_yaml_goes_no_one_recurses() -> None:
    assert "nested too deeply" in (free_form_problem(nested(100_000)) or "")
