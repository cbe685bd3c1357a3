"""Pairs that share more than noise: their column, and what a recipe must say that asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from counterfoil.keep import Column
from counterfoil.recipe.layering import embedding_specs

PAIRED_BY = "paired_by"
_KEY = "samples.pairs is attention"


def pair_columns(pairs: str) -> dict[str, Column]:
    """The columns that tables have because of `samples.pairs`."""
    if pairs == "noise":
        return {}
    what = "What the image shares with the base image of its pair: attention, or noise alone; none for the base."
    return {PAIRED_BY: Column("string", what)}


def pair_problems(
    recipe: Mapping[str, Any], samples: Mapping[str, Any], generator: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """What does not go with images that are drawn beside their base: each as (path in the recipe, message).

    recipe: of any form; samples, generator: its sections.
    """
    if samples.get("pairs") != "attention":
        return
    if (kind := generator.get("kind", "diffusers")) != "diffusers":
        yield ("samples", "pairs"), f"images of generator.kind {kind} see no base beside them, expected noise"
        return
    if samples.get("noise", "paired") != "paired":
        yield ("samples", "noise"), f"{_KEY}: a pair starts from one noise, expected paired"
    size = generator.get("batch_size")
    if isinstance(size, int) and not isinstance(size, bool) and size % 2:
        near = f"{size + 1}" if size == 1 else f"{size - 1} or {size + 1}"
        yield (
            ("generator", "batch_size"),
            f"found {size}; {_KEY}: a batch holds bases and as many shifted images, expected an even number, such as"
            f" {near}",
        )
    if generator.get("compile") is True:
        yield (
            ("generator", "compile"),
            f"{_KEY}: compiled blocks attend to their own image alone, expected false",
        )
    if generator.get("adapter") is not None:
        yield (
            ("generator", "adapter"),
            f"{_KEY}: an adapter has attention of its own, expected null (null drops an inherited one)",
        )
    if ("prompts", "base", "embedding") in {path for path, _ in embedding_specs(recipe)}:
        yield (
            ("prompts", "base", "embedding"),
            f"{_KEY}: the base is drawn again beside each shifted image, from its prompt alone; expected null",
        )
