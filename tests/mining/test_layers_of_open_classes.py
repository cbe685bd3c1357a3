"""Layers over a recipe that leaves the labels of its classes to the input dataset: they hold those that were found."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.mining.findings_layer import laid_over
from counterfoil.recipe import layer_text, load_recipe
from counterfoil.sources.resolved_classes import resolve_classes


def open_recipe(folder: Path, classes: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"extends: wardrobe-mini\nname: mine\nsource: {{classes: {classes}}}\n")
    return path


@pytest.mark.parametrize("classes", ["null", "[bag, sandal]"])
def test_a_layer_is_of_the_classes_that_were_found(classes: str, tmp_path: Path) -> None:
    source = open_recipe(tmp_path, classes)
    below, changes, extends = laid_over(source, ["samples.seed=5"], tmp_path)
    layer = tmp_path / "layer.yaml"
    layer.write_text(layer_text(changes | {"name": "other"}, below, extends))
    loaded = load_recipe(layer)
    assert loaded.names_every_label
    assert loaded.classes == resolve_classes(load_recipe(source)).classes
    assert loaded.samples.seed == 5
    assert (below.recipe_hash in layer.read_text()) and below == resolve_classes(load_recipe(source))
    open_recipe(tmp_path, "[bag, coat]")
    with pytest.raises(UserError, match="extends_sha256"):
        load_recipe(layer)


def test_a_recipe_that_tells_its_labels_is_carried_as_it_was() -> None:
    below, changes, extends = laid_over("wardrobe-mini", ["samples.seed=5"], Path.cwd())
    assert (changes, extends) == ({"samples": {"seed": 5}}, "wardrobe-mini")
    assert below == load_recipe("wardrobe-mini")


def test_classes_that_are_changed_over_open_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--set changes the classes"):
        laid_over(open_recipe(tmp_path, "[bag, sandal]"), ["source.classes=[coat]"], tmp_path)
