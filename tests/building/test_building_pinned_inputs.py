"""The third hash of the lab's recipes stands still: what names stand for, and no key for what a recipe does not have.

Those of the other bundled recipes are over commits of the Hub. Measured thresholds are left out: their last bits are
the machine's. Weights that were trained further, or tokens, change a line here, and the changelog says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.building.inputs import pins_of
from counterfoil.engines.local import LocalEngine
from counterfoil.recipe import load_recipe, sha256_json
from counterfoil.sources.pins import pin_source
from counterfoil.tokens.learn_tokens import class_tokens

PINNED = {
    "wardrobe-mini": "576057a3832d0feffc0184d9903eb50cae9e73a8531598a29a93d71870714673",
    "wardrobe-star": "576057a3832d0feffc0184d9903eb50cae9e73a8531598a29a93d71870714673",
}
KEYS = {"models", "source", "tokens"}


@pytest.mark.parametrize("name", PINNED)
def test_what_names_stand_for_is_what_it_was(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, ["screen.judge=null"])
    tokens = class_tokens(recipe, tmp_path, "cpu", LocalEngine())
    pins = pins_of(recipe, tokens, pin_source(recipe.source), None)
    assert set(pins) == KEYS
    assert sha256_json(pins) == PINNED[name]


def test_a_judge_is_a_key_more(tmp_path: Path) -> None:
    keep = "screen.keep=[thresholds, {misclassified: {models: ['lab:lcnet_035']}}]"
    recipe = load_recipe("wardrobe-mini", [keep, "screen.judge=null", "tokens=null"])
    pins = pins_of(recipe, None, pin_source(recipe.source), None)
    assert set(pins) == KEYS | {"judges"}
    assert set(pins["judges"]) == {"lab:lcnet_035"}
