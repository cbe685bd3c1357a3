"""A recipe's task: it follows from the keys of the source, may be stated, and may not contradict
them."""

from __future__ import annotations

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe, load_recipe_text
from counterfoil.recipe.tasks import TASKS
from support.refusals import problems_of

TEXT = """
recipe: 1
name: streets-corrupt
source: {dataset: ./streets}
generator: {kind: corrupt, split: validation}
prompts:
  shifts:
    fog: {corruption: fog}
samples: {candidates: 10}
"""
QUESTIONS = ", ".join(
    f"{{id: c{label}, name: n{label}, source_label: {label}}}" for label in range(2)
)
KEYS = {
    "classes": ["source.classes=[{id: cup, name: cup, source_label: 0}]"],
    "objects": ["source.objects=boxes", "source.categories=[car, bus]"],
    "labels": ["source.conditions={columns: [wet]}"],
    "masks": ["source.masks={classes: [road, car]}"],
}


def load(*changes: str) -> Recipe:
    return load_recipe_text(TEXT, changes)


def test_the_keys_say_the_task() -> None:
    for name, keys in KEYS.items():
        recipe = load(*keys)
        assert recipe.source.task == recipe.task.name == name
        assert recipe.task.by_class == (name == "classes")
    assert (
        load("source.conditions={columns: [wet]}", f"source.classes=[{QUESTIONS}]").task.name
        == "classes"
    )
    assert set(KEYS) == set(TASKS)


@pytest.mark.parametrize("name", KEYS)
def test_a_task_that_is_said_changes_neither_hash_nor_text(name: str) -> None:
    plain = load(*KEYS[name])
    stated = load(*KEYS[name], f"source.task={name}")
    assert stated == plain
    for part in ("plan_hash", "screen_hash", "recipe_hash", "portable_yaml"):
        assert getattr(stated, part) == getattr(plain, part)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("stated", KEYS)
def test_a_task_that_contradicts_the_keys_is_refused(name: str, stated: str) -> None:
    if name == stated:
        return
    problems = problems_of(load, *KEYS[name], f"source.task={stated}")
    assert f"found the task {stated}, expected {name}, which the other keys say" in "\n".join(
        problems
    )


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    for stated in ("detection", "[objects]"):
        with pytest.raises(UserError, match="expected classes or objects or labels"):
            load(*KEYS["objects"], f"source.task={stated}")


@pytest.mark.parametrize("name", KEYS)
def test_names_are_those_whose_numbers_rows_hold(name: str) -> None:
    recipe = load(*KEYS[name])
    assert (
        list(recipe.task.names(recipe.source))
        == {
            "classes": ["cup"],
            "objects": ["car", "bus"],
            "labels": ["wet"],
            "masks": ["road", "car"],
        }[name]
    )


def test_images_made_from_rows_of_the_source_store_their_unit() -> None:
    for keys in KEYS.values():
        recipe = load(*keys, "source.unit_column=video")
        assert "unit" in recipe.added_columns and recipe.plan_document["units"] == "video"
    drawn = load_recipe("wardrobe-mini")
    assert (
        drawn.source.unit_column
        and "unit" not in drawn.added_columns
        and "units" not in drawn.plan_document
    )
