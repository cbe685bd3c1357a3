"""What a card says of each kind of generator, as sentences: those of its own file, and no other
kind's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from card_cases import INPUTS

from counterfoil.dataset.card.sections import Statements, statements_of
from counterfoil.dataset.card.tables import input_rows
from counterfoil.recipe import load_recipe
from counterfoil.recipe.kinds import KINDS

NOTHING = "model: null, steps: null, guidance: null, size: null, scheduler: null"
POOL = ("tokens=null", "samples.noise=independent")
# By key of a kind: a recipe of it.
RECIPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "diffusers": ("wardrobe-mini", ()),
    "rows": (
        "wardrobe-mini",
        (f"generator={{kind: rows, {NOTHING}, rows: {{base: {{'00': [0]}}}}}}", *POOL),
    ),
    "drawn_elsewhere": (
        "wardrobe-mini",
        (f"generator={{kind: rows, {NOTHING}, dataset: ./given}}", "tokens=null"),
    ),
    "retrieve": ("wardrobe-retrieved", ()),
    "edit": ("wardrobe-edited", ()),
    "corrupt": ("wardrobe-corrupt", ()),
}
PINNED = INPUTS | {"pool": {"dataset": "pool", "revision": "9a", "license": "cc0-1.0"}}
PINNED["models"] = INPUTS["models"] | {
    "retrieval": {"name": "lab:clip", "revision": "1f", "license": "mit"}
}
# Words that only this kind has, around what a recipe's keys, pins and numbers fill in.
SAID = {
    "diffusers": (
        "synthetic images",
        "A diffusion model drew 9 candidates",
        "start from the same noise",
        "Seeds.",
    ),
    "rows": (
        "images, rows of a pool,",
        "9 rows were chosen",
        "gives an image’s row of the pool.",
        "Rows.",
    ),
    "drawn_elsewhere": (
        "drawn elsewhere,",
        "9 images were given",
        "cannot be rendered again.",
        "Images drawn",
    ),
    "retrieve": (
        "retrieved from a pool",
        "the nearest to their prompts",
        "No row is used twice",
        "Retrieval.",
    ),
    "edit": (
        "edits of real images",
        "re-rendered rows of `lab:wardrobe`",
        "are edits of one row",
        "Rows.",
    ),
    "corrupt": (
        "untouched and corrupted,",
        "Each is a row of `lab:wardrobe`",
        "corrupted under each shift",
        "Rows.",
    ),
}


def said(key: str, *changes: str, looked_at: bool = False) -> tuple[Statements, Mapping[str, str]]:
    name, settings = RECIPES[key]
    recipe = load_recipe(name, [*settings, *changes])
    assert recipe.kind.key == key
    return statements_of(recipe, input_rows(recipe, PINNED), 3, 9, looked_at=looked_at)


def test_each_kind_is_looked_at() -> None:
    assert list(RECIPES) == list(SAID)
    assert {*RECIPES} == {*(kind.key for kind in KINDS.values()), "drawn_elsewhere"}


@pytest.mark.parametrize("key", RECIPES)
def test_a_kind_says_what_its_images_are_how_they_are_paired_and_ordered(key: str) -> None:
    statements, its = said(key)
    for name, words in zip(("what", "origin", "pairs", "order"), SAID[key], strict=True):
        assert words in its[name], name
        assert not any(
            words in said(other)[1][name] for other in RECIPES if words not in SAID[other]
        ), name
    assert statements.summary.startswith("3 ") and statements.summary.endswith(
        "image classifiers fail."
    )
    assert "  " not in "".join([*its.values(), statements.collection])
    every = [
        text
        for name in Statements.__dataclass_fields__
        for text in _texts(getattr(statements, name))
    ]
    assert all(text.endswith((".", "none", ")")) or "CLIP, " in text for text in every), every
    assert not any(" None" in text or "{" in text for text in every)


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("diffusers", "generator"),
        ("rows", "pool"),
        ("drawn_elsewhere", "drawn images"),
        ("retrieve", "retrieval"),
        ("edit", "generator"),
        ("corrupt", "input dataset"),
    ],
)
def test_it_names_what_it_is_made_from_and_how_that_is_pinned(key: str, role: str) -> None:
    name, settings = RECIPES[key]
    recipe = load_recipe(name, settings)
    (row,) = (row for row in input_rows(recipe, PINNED) if row.role == role)
    statements, _ = said(key)
    named = (
        f"{row.name}{f', pinned at {row.pinned}' if row.pinned else ''}, licence"
        f" {row.license or 'not stated'}"
    )
    assert named in statements.collection + statements.source


def test_what_a_recipe_says_changes_the_kinds_own_sentences() -> None:
    assert "but different noise" in said("diffusers", "samples.noise=independent")[1]["pairs"]
    assert "attended to its features" in said("diffusers", "samples.pairs=attention")[1]["pairs"]
    assert "No image is paired" in said("drawn_elsewhere", "samples.noise=independent")[1]["pairs"]
    assert (
        "no label of the pool was compared"
        in said("rows", "generator.labels=predicted")[1]["pairs"]
    )
    assert "shorter side of 64 pixels" in said("corrupt", "generator.size=64")[1]["origin"]
    assert (
        "the column `license` of each"
        in said("retrieve", "generator.license_column=rights")[1]["licence"]
    )
    assert said("retrieve")[1]["needs"].startswith("the input dataset")
    assert said("retrieve", "generator.dataset=./photos")[1]["needs"] == "only"
    assert (
        said("corrupt")[0].annotation_tools == ()
        and said("corrupt")[0].preprocessing[0] == "No image was screened."
    )
    assert "People looked at some" in said("corrupt", looked_at=True)[0].annotation
    captioned = ("prompts.base={prompt: '{caption}'}", "generator.captioner=lab:captioner")
    assert "written by lab:captioner: they may say" in said("edit", *captioned)[0].biases[1]


def test_a_name_of_the_input_dataset_is_code_whatever_it_holds() -> None:
    _, its = said("corrupt", "source.dataset=./a|b*c")
    assert "`./a|b*c`" in its["origin"]
