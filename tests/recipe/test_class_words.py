"""A class's parent and category: words for prompts, which enter a hash by what they make of a prompt, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.plan import make_plan
from counterfoil.recipe import (
    Recipe,
    dump_recipe,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
    object_caption_for,
    prompt_for,
)

CLASSES: list[dict[str, Any]] = [
    {"id": "a", "name": "tench", "source_label": 0, "parent": "cyprinid", "category": "fish"},
    {"id": "b", "name": "kite", "source_label": 1, "parent": "hawk", "category": "bird"},
    {"id": "c", "name": "coot", "source_label": 2},
]
WORDS = ("parent", "category")
PROMPT = "prompts.shifts.red.prompt=a photo of a red {class} ({parent})"
CAPTION = "prompts.shifts.red.object_caption=a {class}, a {category}"
SOME = "prompts.shifts.red.classes=[a, b]"


def recipe_of(*overrides: str, **changed: dict[str, Any]) -> Recipe:
    """The three classes, each with the changes under its id."""
    classes = [entry | changed.get(entry["id"], {}) for entry in CLASSES]
    return load_recipe("wardrobe-mini", [f"source.classes={json.dumps(classes)}", *overrides])


def hashes(recipe: Recipe) -> tuple[str, str]:
    return recipe.plan_hash, recipe.screen_hash


def shift_of(recipe: Recipe, name: str):
    return next(shift for shift in recipe.all_shifts() if shift.name == name)


def test_prompts_and_object_captions_are_filled_with_the_words_of_each_class() -> None:
    recipe = recipe_of(PROMPT, CAPTION, SOME)
    tench, kite, _ = recipe.classes
    red = shift_of(recipe, "red")
    assert prompt_for(red, tench) == "a photo of a red tench (cyprinid)"
    assert prompt_for(red, kite, "<kite-1>") == "a photo of a red <kite-1> (hawk)"
    assert object_caption_for(red, kite) == "a kite, a bird"
    plan = make_plan(recipe_of(PROMPT, SOME, "tokens=null"))
    prompts = {s.prompt for cell in plan.cells() if cell.shift == "red" for s in plan.samples(cell)}
    assert prompts == {"a photo of a red tench (cyprinid)", "a photo of a red kite (hawk)"}


@given(st.sampled_from(["{class}", "{parent}", "{category}", "{", "\\1", "x"]), st.sampled_from([*WORDS, "name"]))
def test_what_is_filled_in_is_never_read_as_a_template(text: str, word: str) -> None:
    recipe = recipe_of(PROMPT, SOME, a={word: text})
    words = {"name": "tench", "parent": "cyprinid"} | {word: text}
    expected = f"a photo of a red {words['name']} ({words['parent']})"
    assert prompt_for(shift_of(recipe, "red"), recipe.classes[0]) == expected


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("value", ["other", None])
def test_a_word_that_no_prompt_uses_enters_no_hash(word: str, value: str | None) -> None:
    changed = recipe_of(a={word: value}, c={word: "rail"})
    assert changed != recipe_of()
    assert hashes(changed) == hashes(recipe_of())


def test_a_word_enters_the_hash_of_what_uses_it_by_the_classes_that_do() -> None:
    use = (PROMPT, CAPTION, SOME)
    plan, screen = hashes(recipe_of(*use))
    assert (plan, screen) != hashes(recipe_of(SOME))
    parent, category = recipe_of(*use, b={"parent": "raptor"}), recipe_of(*use, b={"category": "raptor"})
    assert parent.plan_hash != plan and parent.screen_hash == screen
    assert category.plan_hash == plan and category.screen_hash != screen
    elsewhere = recipe_of(*use, c={"parent": "rail", "category": "bird"})
    assert hashes(elsewhere) == (plan, screen), "the shift has no prompt of that class"


def test_a_default_caption_counts_for_every_shift_that_takes_it() -> None:
    caption = "screen.object_caption=a photo of a {class}, a {category}"
    with pytest.raises(UserError, match=r"screen\.object_caption .*'\{category\}', which 1 class \(c\) does not have"):
        recipe_of(caption)
    whole = {"c": {"category": "bird"}}
    assert recipe_of(caption, **whole).screen_hash != recipe_of(caption, c={"category": "rail"}).screen_hash
    style = "screen.style_object_caption=a {class} ({parent})"
    with pytest.raises(UserError, match=r"screen\.style_object_caption"):
        recipe_of(style)
    recipe_of(style, "prompts.shifts.pencil_sketch.classes=[a, b]")


def test_hashes_stand_when_the_recipe_is_published_and_read_back(tmp_path: Path) -> None:
    recipe = recipe_of(PROMPT, CAPTION, SOME)
    text = recipe.portable_yaml
    assert hashes(load_own_recipe(tmp_path, text=text)) == hashes(recipe)
    assert dump_recipe(load_recipe_text(text)) == dump_recipe(load_recipe_text(recipe.portable_yaml))
    assert "parent" not in dump_recipe(load_recipe("wardrobe-mini")), "an unset key is not written"


def test_classes_without_the_word_are_told_together_and_once_for_all_prompts() -> None:
    many = [{"id": f"{n:03d}", "name": "thing", "source_label": n} for n in range(200)]
    given = [*many, {"id": "whole", "name": "kite", "source_label": 200, "parent": "hawk"}]
    with pytest.raises(UserError) as refused:
        load_recipe(
            "wardrobe-mini",
            [
                f"source.classes={json.dumps(given)}",
                "prompts.base.prompt=a {class} ({parent}, {category})",
                "prompts.shifts.red.prompt=a red {class} ({parent})",
                "prompts.shifts.at_night.prompt=a {class} ({parent}) at night",
                "prompts.shifts.at_night.classes=[whole]",
            ],
        )
    parent, category = sorted(refused.value.problems, key=lambda line: "{category}" in line.partition(", which")[0])
    for line, count, others in ((parent, 200, True), (category, 201, False)):
        assert line.startswith("prompts.base.prompt (--set")
        assert f"which {count} classes (000, 001, 002" in line
        assert f"and {count - 20} more) do not have" in line
        assert ("uses '{parent}' (as 2 texts do), which" in line) is others
        assert len(line) < 500


def test_other_problems_of_the_recipe_are_told_beside_it() -> None:
    with pytest.raises(UserError) as refused:
        recipe_of(PROMPT, "samples.seed=x", "generator.steps=0")
    assert len(refused.value.problems) == 3


WRONG = {
    "prompts.shifts.red.caption=a red {parent}": "without '{parent}'",
    "prompts.shifts.red.prompt=a red {parent}": "expected '{class}' somewhere in it",
    "prompts.shifts.red.prompt=a {class} ({parnt})": "did you mean '{parent}'?",
    "prompts.shifts.red.prompt=a {class} {": "lone brace",
    "tokens={path: null, learn: {templates: ['a {class} ({parent})']}}": "the only one is '{class}'",
    "source.classes=[{id: a, name: b, source_label: 0, parent: ''}]": "text that is not empty",
    "source.classes=[{id: a, name: b, source_label: 0, category: 3}]": "found the number 3, expected text",
    "source.classes=[{id: a, name: b, source_label: 0, parnt: x}]": "did you mean 'parent'?",
}


@pytest.mark.parametrize("override", WRONG)
def test_what_is_wrong_with_a_word_is_told(override: str) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("wardrobe-mini", [override])
    assert WRONG[override] in "\n".join(refused.value.problems)
