"""Pairs that share more than noise: their column, and what a recipe must say that asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from counterfoil.keep import Column
from counterfoil.recipe.layering import embedding_specs
from counterfoil.recipe.schema_output import HeldFromBase, first_compared

PAIRED_BY = "paired_by"
_KEY = "samples.pairs is attention"


def pair_columns(pairs: str) -> dict[str, Column]:
    """The columns that tables have because of `samples.pairs`."""
    if pairs == "noise":
        return {}
    what = "What the image shares with the base image of its pair beside noise: attention; none for the base."
    return {PAIRED_BY: Column("string", what)}


def pair_problems(
    recipe: Mapping[str, Any], samples: Mapping[str, Any], generator: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """What does not go with images that are drawn beside their base: each as (path in the recipe, message).

    recipe: of any form; samples, generator: its sections.
    """
    if samples.get("pairs") != "attention":
        held, none = samples.get("held"), HeldFromBase().model_dump()
        if isinstance(held, Mapping) and none | dict(held) != none:
            yield ("samples", "held"), "found with pairs of noise alone, expected none (null drops an inherited one)"
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
    for path, _ in embedding_specs(recipe):
        yield path, f"{_KEY}: a batch of pairs is drawn from prompts alone, expected null"
    yield from _held_problems(samples.get("held"), generator.get("steps"))


def _held_problems(held: Any, steps: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """A part that was asked for in words of one's own, and is over before any step could hold it."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1 or not isinstance(held, Mapping):
        return
    try:
        asked = HeldFromBase.model_validate(dict(held))
    except ValueError:  # told as what it is
        return
    if asked == HeldFromBase() or not asked.share or not asked.until or asked.holds(steps):
        return
    first = first_compared(steps)
    ends = "one ends" if steps == 1 else f"{first} of {steps} ends"
    yield (
        ("samples", "held", "until"),
        f"found {asked.until:g}, with which no step holds a part: base and shifted image are first compared as step"
        f" {ends}; expected at least {-(-1000 * first // steps) / 1000:g}, or 0 to hold none",
    )
