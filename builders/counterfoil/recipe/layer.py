"""Writes a layer of a recipe for people to review: what it extends, the sha256 of that, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.recipe.layering import EXTENDS, EXTENDS_SHA256
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.strict_yaml import dump_yaml


def layer_text(changes: Mapping[str, Any], below: Recipe, extends: str | None = None) -> str:
    """YAML of the `changes`, which null deletes, over the recipe `below`.

    `extends` is the bundled name of that recipe, or its path from the folder that the layer is for; where it has
    become another recipe, `load_recipe` refuses the layer. Without it the layer is one for `load_cut`, over whatever
    dataset a person names, and the sha256 is a comment. ValueError for changes that extend something themselves.
    """
    if changes.keys() & {EXTENDS, EXTENDS_SHA256}:
        raise ValueError("a layer's changes cannot say what it extends")
    if extends is None:
        return layer_head(below) + dump_yaml(dict(changes))
    head = {EXTENDS: extends, EXTENDS_SHA256: below.recipe_hash}
    return (
        f"# Changes to {below.name}, as it was when they were written: once that is another recipe, this is refused.\n"
        + dump_yaml(head | dict(changes))
    )


def merged_deeply(below: Any, above: Mapping[str, Any]) -> dict[str, Any]:
    """Changes over other changes: mappings merged at every depth, the upper one last."""
    merged = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        merged[key] = merged_deeply(merged.get(key), value) if isinstance(value, Mapping) else value
    return merged


def layer_head(below: Recipe) -> str:
    """The comment over a layer that extends nothing: which recipe it was written for."""
    return f"# For {below.name}, whose recipe has the sha256 {below.recipe_hash}\n"
