"""Mining by contexts end to end, where what fails is known: sneakers that are not on the road."""

from __future__ import annotations

from pathlib import Path

import pytest
from mined_sneakers import OVERRIDES, WORLD

from counterfoil.mining.findings import Findings
from counterfoil.mining.mine_recipe import mine
from counterfoil.recipe import load_recipe
from shared_datasets import Once

FILES = {"findings.json", "findings.csv", "vectors.safetensors", "report.html", "recipe.yaml"}
CHANGES = ("mine.method=contexts", "mine.settings={captions: null, contexts: wardrobe, at_most_images: 4}")


def mine_contexts(folder: Path) -> None:
    overrides = [one for one in OVERRIDES if "permutations" not in one]
    mine("wardrobe-star", folder, overrides=[*overrides, *CHANGES], target=WORLD, on=["validation"], device="cpu")


@pytest.fixture(scope="module")
def mined(once_a_run: Once) -> Path:
    return once_a_run("mined-contexts", mine_contexts)


def test_the_contexts_that_are_chosen_are_where_the_classifier_fails(mined: Path) -> None:
    findings = Findings.from_json((mined / "findings.json").read_bytes())
    (sneaker,) = [audit for audit in findings.classes if audit.name == "sneaker"]
    chosen = [one for one in sneaker.contexts if one.rank is not None]
    assert chosen and all(one.words != "on the road" for one in chosen)
    (road,) = [one for one in sneaker.contexts if one.words == "on the road"]
    assert road.lift is not None and road.lift < 0.5
    tested = {one.caption: one for one in findings.findings}
    assert all(one.caption in tested for one in chosen)
    # Every row of the class is in one context: sets and rests add up to the class's confirm rows.
    sizes = {tested[one.caption].set.rows + tested[one.caption].rest.rows for one in chosen}
    assert len(sizes) == 1


def test_it_leaves_the_files_of_every_method_and_a_recipe_that_loads(mined: Path) -> None:
    assert {path.name for path in mined.iterdir() if not path.name.startswith(".")} == FILES
    recipe = load_recipe(mined / "recipe.yaml")
    groups = {shift.group for shift in recipe.prompts.shifts.values()}
    assert groups == {"contexts", "class_name", "random_contexts"}
    assert "Contexts by class" in (mined / "report.html").read_text()
