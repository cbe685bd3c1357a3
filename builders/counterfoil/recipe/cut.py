"""A cut: a layer of thresholds and screen settings that is laid over a built dataset's own recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.layering import lay_over, own_layers, text_of
from counterfoil.recipe.loader import validated
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.problems import shown_path
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.schema_prompts import Screen
from counterfoil.recipe.strict_yaml import LocatedMapping, read_yaml

# What decides which images are kept, and nothing of what they or their scores are.
CUTTING = ("object_threshold", "shift_threshold", "keep", "keep_rejected", "store_embeddings")
_BASE_KEYS = ("object_threshold",)
_SHIFT_KEYS = ("threshold", "object_threshold", "keep")
_EXAMPLE = "prompts: {shifts: {in_the_snow: {threshold: 0.16}}}"


def load_cut(recipe: Path, cut: Path) -> Recipe:
    """The recipe in the file `recipe` with the layer in the file `cut` laid over it.

    UserError with every problem for a layer that is not YAML, or changes more than `screen` and the thresholds
    of `prompts`.
    """
    layer = _read(cut)
    below = own_layers(text_of(recipe), str(recipe), recipe.parent)
    problems = list(_problems(layer, below, str(cut)))
    if problems:
        raise UserError(problems, hint=f"A cut changes thresholds alone, as in: {_EXAMPLE}")
    _replace_whole(layer)
    return validated(lay_over(below, layer))


def _read(path: Path) -> LocatedMapping:
    layer = read_yaml(text_of(path), str(path))
    if not isinstance(layer, LocatedMapping):
        found = "nothing" if layer is None else type(layer).__name__
        raise UserError(f"{path}: found {found}, expected a layer of thresholds", hint=f"As in: {_EXAMPLE}")
    return layer


def _replace_whole(layer: LocatedMapping) -> None:
    """Let `{percentile: …}` drop the value that it lies over, and the other way round."""
    for key, value in layer.items():
        if not isinstance(value, LocatedMapping):
            continue
        if not key.endswith("threshold"):
            _replace_whole(value)
        elif len(given := [name for name in ("value", "percentile") if name in value]) == 1:
            for other in {"value", "percentile"} - {*given}:
                value[other], value.origins[other] = None, value.origins[given[0]]


def _problems(layer: LocatedMapping, recipe: LocatedMapping, place: str) -> Iterator[str]:
    yield from _unknown(layer, (), ("screen", "prompts"), place)
    screen, prompts = layer.get("screen"), layer.get("prompts")
    if "screen" in layer:
        yield from _unknown(screen, ("screen",), CUTTING, place)
    if "prompts" not in layer:
        return
    yield from _unknown(prompts, ("prompts",), ("base", "shifts"), place)
    if not isinstance(prompts, LocatedMapping):
        return
    if "base" in prompts:
        yield from _unknown(prompts["base"], ("prompts", "base"), _BASE_KEYS, place)
    if "shifts" not in prompts:
        return
    shifts = prompts["shifts"]
    known = recipe.get("prompts", {}).get("shifts", {})
    yield from _unknown(shifts, ("prompts", "shifts"), tuple(known), place)
    if isinstance(shifts, LocatedMapping) and not shifts:  # as a layer it drops what is below
        yield f"prompts.shifts ({place}): found {{}}, which would drop every shift"
    for name, values in shifts.items() if isinstance(shifts, LocatedMapping) else ():
        if name in known:
            yield from _unknown(values, ("prompts", "shifts", name), _SHIFT_KEYS, place)


def _unknown(values: Any, path: tuple[str, ...], allowed: Sequence[str], place: str) -> Iterator[str]:
    """A line for each key that a cut may not hold at this path."""
    if not isinstance(values, LocatedMapping):
        found = "null" if values is None else type(values).__name__
        yield f"{shown_path(path)} ({place}): found {found}, expected a mapping"
        return
    for key in values:
        if key not in allowed:
            where = f"{shown_path((*path, key))} ({values.origins[key]})"
            yield f"{where}: {_why(path, key)}{did_you_mean(key, list(allowed))}"


def _why(path: tuple[str, ...], key: str) -> str:
    if path == ("screen",) and key in Screen.model_fields:
        return "changes the scores, so images must be screened again; build the recipe into another folder"
    if path == ("prompts", "shifts"):
        return "the dataset has no such shift"
    return "not a threshold"
