"""The bundled recipes: what they hold, that they agree with the lab's own words, and that they round-trip."""

from __future__ import annotations

import pytest

from counterfoil.lab.captions import caption_of
from counterfoil.lab.vocabulary import CLASSES, SHIFTS
from counterfoil.recipe import (
    bundled_recipes,
    dump_recipe,
    load_recipe,
    load_recipe_text,
    prompt_for,
    shift_caption_for,
)

NAMES = ["wardrobe-mini", "wardrobe-star"]


def test_the_wardrobe_recipes_are_bundled() -> None:
    assert set(NAMES) <= set(bundled_recipes())


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_recipe_names_its_schema_and_itself(name: str) -> None:
    text = bundled_recipes()[name].read_text(encoding="utf-8")
    assert text.splitlines()[0] == "# yaml-language-server: $schema=./recipe.schema.json"
    assert load_recipe(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_resolved_recipe_loads_back_equal(name: str) -> None:
    recipe = load_recipe(name, ["description='on: 5e-4'", "evaluate.models=[lab:a]"])
    text = dump_recipe(recipe)
    assert load_recipe_text(text) == recipe
    assert dump_recipe(load_recipe_text(text)) == text


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_the_labs(name: str) -> None:
    classes = load_recipe(name).classes
    assert tuple(cls.name for cls in classes) == CLASSES
    assert [cls.id for cls in classes] == [f"{label:02d}" for label in range(10)]
    assert [cls.source_label for cls in classes] == [cls.label for cls in classes] == list(range(10))


def test_star_has_the_shifts_of_table_1_in_its_order() -> None:
    base, *shifts = load_recipe("wardrobe-star").all_shifts()
    assert base.name == base.group == "base"
    assert [(s.name, s.kind) for s in shifts] == [(s.name, s.kind) for s in SHIFTS]


def test_mini_is_a_part_of_star() -> None:
    star = {shift.name: shift for shift in load_recipe("wardrobe-star").all_shifts()}
    mini = load_recipe("wardrobe-mini").all_shifts()
    assert len(mini) == 6
    for shift in mini:
        twin = star[shift.name]
        assert (shift.prompt, shift.caption, shift.style) == (twin.prompt, twin.caption, twin.style)


def test_prompts_and_captions_are_what_the_labs_models_were_taught() -> None:
    recipe = load_recipe("wardrobe-star")
    worlds = {shift.name: shift for shift in SHIFTS}
    for shift in recipe.all_shifts()[1:]:
        world = worlds[shift.name]
        claims = {"style": "photo", world.attribute: world.value}
        assert shift_caption_for(shift) == caption_of(claims)
        for cls in recipe.classes:
            assert prompt_for(shift, cls) == caption_of(claims | {"class": cls.name})
        assert shift.style == (world.attribute == "style")


def test_sizes_are_as_promised() -> None:
    mini, star = (load_recipe(name) for name in NAMES)
    assert (mini.samples.candidates, star.samples.candidates) == (20, 50)
    for recipe in (mini, star):
        assert recipe.output.rows_per_shard % recipe.generator.batch_size == 0, "no batch is padded"
