"""Recipes of images that keep all their conditions: one class for every image, and only corruptions
of rows."""

from __future__ import annotations

import re

import pytest

from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.rows import TableForm
from support.refusals import problems_of

TEXT = """
recipe: 1
name: faces-corrupt
source: {dataset: ./faces, conditions: {columns: [Smiling, Eyeglasses]}}
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
    assert recipe.task.name == "labels"
    assert [(cls.id, cls.name, cls.source_label) for cls in recipe.classes] == [
        ("images", "image", 0)
    ]
    again = load_recipe_text(recipe.portable_yaml)
    assert again.task.name == "labels" and again.plan_hash == recipe.plan_hash
    form = TableForm.of(recipe)
    assert form.added["conditions"].type == "list<ClassLabel>" and form.names == (
        "Smiling",
        "Eyeglasses",
    )


def test_conditions_and_their_order_decide_what_is_stored() -> None:
    by_label = "{labels: [Smiling, Eyeglasses], columns: null}"
    orders = ("{columns: [Smiling, Eyeglasses]}", "{columns: [Eyeglasses, Smiling]}", by_label)
    assert len({load(f"source.conditions={order}").plan_hash for order in orders}) == 3


def test_two_classes_a_condition_are_as_before() -> None:
    entries = ", ".join(
        f"{{id: c{label}, name: n{label}, source_label: {label}}}" for label in range(4)
    )
    recipe = load(f"source.classes=[{entries}]")
    assert recipe.task.name == "classes" and "conditions" not in recipe.added_columns
    assert "conditions" not in recipe.plan_document


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("generator={kind: retrieve}", ": missing, expected two classes a condition"),
        ("screen.model=lab:clip", ": an image with several conditions has no class"),
        ("screen.judge=lab:resnet10t", ": an image with several conditions has no class"),
        ("mine={}", ": mining needs two classes a condition"),
        (
            "source.classes=[{id: images, name: image, source_label: 1}]",
            "expected two classes a condition",
        ),
    ],
)
def test_what_does_not_go_with_several_labels_is_refused_by_name(change: str, problem: str) -> None:
    problems = problems_of(load, change)
    assert re.search(re.escape(problem), "\n".join(problems))
