"""Recipes of images with objects: one class for every image, and only changes that leave boxes
where they are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.registered import least_iou
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.recipe.tasks.objects import loosest_limits
from counterfoil.store.rows import TableForm
from support.refusals import problems_of

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
    problems = problems_of(load, change)
    lines = [
        re.sub(r" \([^)]*\):", ":", line, count=1) for line in problems
    ]  # without where it is written
    assert any(problem in line for line in lines), lines


EDITED = TEXT.replace(
    "{kind: corrupt, split: validation}", "{kind: edit, model: 'lab:sd', split: validation}"
).replace("{corruption: fog}", "{prompt: 'a {class} in fog'}")
PROMPTS = "prompts.base={prompt: 'a {class}'}"
STAYING = "[{registered: {translation: 0.05, zoom: 1.1}}]"


@pytest.mark.parametrize(
    "keep",
    [
        "screen.keep=[thresholds]",
        "screen.keep=[registered]",
        "screen.keep=[{registered: {zoom: 1.1}}]",
        f"prompts.shifts.fog.keep={STAYING}",
    ],
)
def test_edits_have_boxes_only_where_every_group_drops_what_moved(keep: str) -> None:
    with pytest.raises(UserError, match=r"found 'edit', which moves objects away from their"):
        load_recipe_text(EDITED, [PROMPTS, keep])


def test_edits_that_stay_have_the_boxes_of_their_rows() -> None:
    of_fog = "prompts.shifts.fog.keep=[{registered: {translation: 0.02, zoom: 1.2}}]"
    recipe = load_recipe_text(EDITED, [PROMPTS, f"screen.keep={STAYING}", of_fog])
    assert not recipe.screen.model
    assert loosest_limits(recipe) == (0.05, 1.2)
    words = recipe.task.stays(recipe)
    assert "more than 5 % of a side" in words and "above 1.2 or below 0.833" in words
    with pytest.raises(UserError, match=r"screen\.model.*no class to screen by"):
        load_recipe_text(EDITED, [PROMPTS, f"screen.keep={STAYING}", "screen.model=lab:clip"])


@given(st.floats(0.05, 1), st.floats(0, 0.3), st.floats(1, 1.4))
def test_the_iou_at_the_limits_is_that_of_the_worst_place(
    side: float, translation: float, zoom: float
) -> None:
    """Compare with boxes at many places, which move and zoom about the middle of the image."""
    ious = [1.0]
    for factor in (zoom, 1 / zoom):
        for start in np.linspace(0, 1 - side, 5):
            first = (start - 0.5) * factor + 0.5 + translation
            for moved in (first, first - 2 * translation):
                common = min(start + side, moved + side * factor) - max(start, moved)
                area = max(0.0, common) ** 2
                ious.append(area / (side**2 + (side * factor) ** 2 - area))
    assert least_iou(side, translation, zoom) == pytest.approx(min(ious), abs=1e-9)


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
