"""Mining by contexts end to end, where what fails is known: sneakers that are not on the road."""

from __future__ import annotations

from pathlib import Path

import pytest
from mined_sneakers import OVERRIDES, WORLD

from counterfoil.mining.findings import Findings
from counterfoil.mining.mine_recipe import mine
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import method_settings
from shared_datasets import Once

FILES = {"findings.json", "findings.csv", "vectors.safetensors", "report.html", "recipe.yaml", "index.html"}
CHANGES = ("mine.settings.contexts=wardrobe", "mine.settings.at_most_images=4", "mine.others=[]", "mine.train_rows=10")


def mine_contexts(folder: Path) -> None:
    overrides = [one for one in OVERRIDES if "permutations" not in one]
    given = {"method": "contexts", "target": WORLD, "on": ["validation"], "device": "cpu"}
    # The recipe's own settings are of another method: they are left out, and what is told here is not.
    mine("wardrobe-star", folder, overrides=[*overrides, *CHANGES], **given)


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
    assert recipe.mine is not None and method_settings(recipe.mine).model_dump()["contexts"] == "wardrobe"
    groups = {shift.group for shift in recipe.prompts.shifts.values()}
    assert groups == {"contexts", "class_name", "random_contexts"}
    page = (mined / "report.html").read_text()
    assert "Contexts by class" in page and "what counts is the ratio" not in page
    # This recipe chooses by number, and the ratio that is shown is not the one that another would choose by.
    assert "those with most failures are chosen, whatever their ratio" in page
    assert "one image more of both kinds" in page
