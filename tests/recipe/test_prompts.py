"""Shifts with their defaults filled in, and the texts made from them."""

from __future__ import annotations

import pickle

from counterfoil.recipe import (
    Recipe,
    load_recipe,
    load_recipe_text,
    object_caption_for,
    prompt_for,
)

TEXT = """
extends: wardrobe-mini
source:
  classes:
    - {id: n01, name: crane, source_label: 134, imagenet: [134]}
    - {id: n02, name: crane, source_label: 517, imagenet: [517]}
screen: {shift_threshold: 0.2}
prompts:
  base: {object_threshold: 0.4}
  shifts:
    in_the_snow: {group: cold, classes: [n02]}
    at_night: {threshold: {percentile: 30}, group: cold}
    red: {caption: null}
    pencil_sketch: {object_caption: "a drawn {class}"}
    oil: {style: true, prompt: "an oil painting of a {class}", caption: oil}
"""


def shifts(recipe: Recipe) -> dict:
    return {shift.name: shift for shift in recipe.all_shifts()}


def test_defaults_are_filled_in_and_own_values_win() -> None:
    found = shifts(load_recipe_text(TEXT))
    assert found["base"].threshold is None and found["base"].caption is None
    assert found["base"].object_threshold.value == 0.4
    assert found["in_the_grass"].object_threshold.percentile == 5
    assert found["in_the_grass"].threshold.value == 0.2
    assert found["at_night"].threshold.percentile == 30
    assert found["red"].threshold is None, "a shift without a caption is not screened"
    assert found["in_the_grass"].group == "in_the_grass"
    assert found["in_the_snow"].group == found["at_night"].group == "cold"
    assert found["in_the_snow"].class_labels == (1,)
    assert found["at_night"].class_labels == (0, 1)


def test_prompts_take_the_placeholder_and_captions_the_name() -> None:
    recipe = load_recipe_text(TEXT)
    found, crane = shifts(recipe), recipe.classes[1]
    assert crane.label == 1 and crane.imagenet == (517,)
    assert prompt_for(found["red"], crane) == "a photo of a red crane"
    assert prompt_for(found["red"], crane, "<n02>") == "a photo of a red <n02>"
    assert object_caption_for(found["red"], crane) == "a photo of a crane"
    assert object_caption_for(found["oil"], crane) == "a crane"
    assert object_caption_for(found["pencil_sketch"], crane) == "a drawn crane"
    assert found["oil"].caption == "oil"
    assert found["red"].caption is None


def test_a_class_name_is_never_read_as_a_template() -> None:
    text = TEXT.replace("name: crane, source_label: 134", "name: '{class} {x}', source_label: 134")
    recipe = load_recipe_text(text)
    assert prompt_for(recipe.all_shifts()[0], recipe.classes[0]) == "a photo of a {class} {x}"


def test_a_recipe_is_frozen_and_pickles_with_what_it_has_worked_out() -> None:
    recipe = load_recipe("wardrobe-mini")
    recipe.all_shifts()
    copy = pickle.loads(pickle.dumps(recipe))
    assert copy == recipe == load_recipe("wardrobe-mini")
    assert copy.all_shifts() == recipe.all_shifts()
