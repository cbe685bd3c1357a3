"""Recipes of images with objects: one class for every image, and only changes that leave boxes
where they are."""

from __future__ import annotations

import re

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.rows import TableForm

TEXT = """
recipe: 1
name: streets-corrupt
source: {dataset: ./streets, objects: objects, categories: [car, bus]}
generator: {kind: corrupt, split: validation}
prompts:
  shifts:
    fog: {corruption: fog}
samples: {candidates: 10}
"""


def load(*changes: str) -> Recipe:
    return load_recipe_text(TEXT, changes)


def test_every_image_is_of_one_class_and_the_recipe_reads_back_to_itself() -> None:
    recipe = load()
    assert [(cls.id, cls.name, cls.source_label) for cls in recipe.classes] == [
        ("images", "image", 0)
    ]
    again = load_recipe_text(recipe.portable_yaml)
    assert (again.plan_hash, again.screen_hash) == (recipe.plan_hash, recipe.screen_hash)
    assert TableForm.of(recipe).added["objects"].type == "objects" and TableForm.of(
        recipe
    ).names == ("car", "bus")


def test_categories_and_the_form_of_boxes_decide_what_is_stored() -> None:
    hashes = {
        load(*changes).plan_hash
        for changes in ([], ["source.categories=[bus, car]"], ["source.boxes=yolo"])
    }
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("source.categories=[]", "source.categories: missing"),
        ("source.categories=[car, Car]", "source.categories: found 'car' again"),
        (
            "source.classes=[car, bus]",
            "source.classes: images with objects have categories and no classes",
        ),
        (
            "prompts.shifts.zoom={corruption: zoom_blur}",
            "prompts.shifts.zoom.corruption: zoom_blur moves",
        ),
        ("prompts.shifts.turned={corruption: rotation}", "rotation moves what is in the image"),
        ("prompts.shifts.elastic={corruption: elastic_transform}", "elastic_transform moves"),
        ("prompts.shifts.fog={corruption: [zoom_blur]}", "prompts.shifts.fog.corruption"),
        ("generator.saved_size=64", "generator.saved_size: images would become squares"),
        (
            "screen.model=lab:clip",
            "screen.model: an image with many objects has no class to screen by",
        ),
        ("screen.judge=lab:resnet10t", "screen.judge: an image with many objects"),
        ("source.objects=null", "source.categories: found without source.objects"),
    ],
)
def test_what_does_not_go_with_boxes_is_refused_by_name(change: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        load(change)
    lines = [
        re.sub(r" \([^)]*\):", ":", line, count=1) for line in caught.value.problems
    ]  # without where it is written
    assert any(problem in line for line in lines), lines


def test_images_that_are_drawn_have_no_boxes() -> None:
    with pytest.raises(
        UserError, match="found 'diffusers', whose images have no boxes, expected corrupt"
    ):
        load_recipe_text(
            TEXT.replace(
                "{kind: corrupt, split: validation}", "{kind: diffusers, model: 'lab:sd'}"
            ),
            ["prompts.base.prompt=a {class}", "prompts.shifts.fog={prompt: 'a {class} in fog'}"],
        )
