"""Recipes of images with masks: one class for every image, and only changes that leave pixels where
they are."""

from __future__ import annotations

import pytest

from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.rows import TableForm, table_columns
from support.refusals import problems_of

TEXT = """
recipe: 1
name: streets-corrupt
source: {dataset: ./streets, masks: {classes: [road, car]}}
generator: {kind: corrupt, split: validation}
prompts:
  shifts:
    fog: {corruption: fog}
samples: {candidates: 10}
"""


def load(*changes: str) -> Recipe:
    return load_recipe_text(TEXT, changes)


def test_rows_have_a_mask_and_candidates_none() -> None:
    recipe = load()
    form = TableForm.of(recipe)
    assert table_columns("data", form)["mask"].type == "Image"
    assert "mask" not in table_columns("candidates", form)
    again = load_recipe_text(recipe.portable_yaml)
    assert (again.plan_hash, again.screen_hash) == (recipe.plan_hash, recipe.screen_hash)


def test_classes_and_their_numbers_decide_what_is_stored() -> None:
    changes = (
        [],
        ["source.masks.classes=[car, road]"],
        ["source.masks.numbers=[7, 8]"],
        ["source.masks.column=labels"],
    )
    assert len({load(*change).plan_hash for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("source.masks.classes=[]", "source.masks.classes: "),
        ("source.masks.classes=[car, Car]", "source.masks.classes: found 'car' again"),
        ("source.masks.numbers=[1]", "source.masks: found the numbers '[1]'"),
        ("source.masks.numbers=[1, 1]", "source.masks: found the numbers '[1, 1]'"),
        ("source.masks.numbers=[1, 256]", "source.masks: found the numbers '[1, 256]'"),
        ("source.objects=objects", "source: its keys say the tasks objects and masks"),
        ("source.categories=[car]", "source.categories: found without source.objects"),
        ("source.conditions={columns: [wet]}", "source.conditions: images with masks have no"),
        ("generator.saved_size=64", "masks would not fit"),
        ("output.format=webdataset", "output.format: masks are a column of Parquet files"),
        ("screen.model=lab:clip", "screen.model: an image with many classes"),
        ("prompts.shifts.turned={corruption: rotation}", "masks no longer lie on what they mark"),
    ],
)
def test_what_masks_cannot_be_combined_with_is_refused(change: str, problem: str) -> None:
    problems = problems_of(load, change)
    key, _, words = problem.partition(": ")
    shown = "\n".join(problems)
    assert key in shown and words in shown
