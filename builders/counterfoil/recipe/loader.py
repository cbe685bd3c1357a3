"""Loading a recipe: find it, lay its layers, validate it, and report everything wrong at once; and writing such layers.

A cut is a layer of thresholds and screen settings that is laid over a built dataset's own recipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from counterfoil.errors import UserError
from counterfoil.recipe.layering import (
    EXTENDS,
    EXTENDS_SHA256,
    Layers,
    Seal,
    find_recipe,
    lay_over,
    own_layers,
    read_layers,
    text_layers,
    text_of,
    with_overrides,
)
from counterfoil.recipe.names import RECIPE, did_you_mean
from counterfoil.recipe.problems import problem_lines, shown_path
from counterfoil.recipe.schema import Recipe, with_tuples
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.schema_prompts import Screen
from counterfoil.recipe.strict_yaml import LocatedMapping, dump_yaml, read_yaml


def load_recipe(source: Recipe | str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe and check it.

    Args:
        source: A bundled name, a YAML file, a dataset directory or a Recipe, which is returned as it is.
        overrides: Changes to the recipe, as `a.b=c` strings.

    Returns:
        The Recipe.

    Raises:
        UserError: The recipe has problems; the message lists each with its key, file and line. Also if you override a
            Recipe.
    """
    if isinstance(source, Recipe):
        if overrides:
            raise UserError("overrides go with a recipe's name or path, not with a loaded Recipe")
        return source
    return _resolved(read_layers(find_recipe(source)), overrides)


def load_recipe_text(text: str, overrides: Sequence[str] = (), *, place: str = RECIPE) -> Recipe:
    """Load a recipe from text, which is not a dataset's own; relative paths start here."""
    return _resolved(text_layers(text, place, Path.cwd()), overrides)


def load_own_recipe(directory: Path, overrides: Sequence[str] = (), *, text: str | None = None) -> Recipe:
    """Return the recipe that a dataset directory brings (or is going to: `text`), which may come from anybody.

    It names nothing of this machine (`layering.own_layers`); `overrides`, which a person gave, may. Raises as
    `load_recipe`.
    """
    place = directory / RECIPE
    layers = own_layers(text_of(place) if text is None else text, str(place), directory)
    return validated(with_overrides(layers, overrides))


def validated(layers: LocatedMapping) -> Recipe:
    """Return the recipe of laid layers. UserError with every problem, each with its path, file and line."""
    try:
        return Recipe.model_validate(with_tuples(layers), strict=True)
    except ValidationError as error:
        problems = problem_lines(Recipe, layers, error)
        hint = "Print a working recipe with: counterfoil show wardrobe-mini"
        raise UserError(problems, hint=hint) from error


def with_classes(recipe: Recipe, classes: Sequence[ClassEntry]) -> Recipe:
    """Return the recipe with these classes in place of its own. UserError with every problem that they bring."""
    values = recipe.model_dump(mode="json", exclude_none=True)
    values["source"]["classes"] = [entry.model_dump(mode="json", exclude_none=True) for entry in classes]
    return validated(LocatedMapping(values))


def _resolved(layers: Layers, overrides: Sequence[str]) -> Recipe:
    problems = [problem for seal in layers.seals for problem in _broken(seal)]
    if problems:
        hint = "If the layer is still right, write the new sha256 there, or remove that line."
        raise UserError(problems, hint)
    return validated(with_overrides(layers.laid, overrides))


def _broken(seal: Seal) -> Iterator[str]:
    """Yield how what a layer extends is another recipe than the one that it was written for."""
    place = f"{EXTENDS_SHA256} ({seal.origin})"
    try:
        below = validated(seal.below)
        if not below.names_every_label:
            yield f"{place}: the classes of {seal.extends} have changed since this layer was written"
            return
        now = below.recipe_hash
    except UserError as error:
        yield from (f"{place}: {seal.extends} is no longer a valid recipe: {problem}" for problem in error.problems)
        return
    if now != seal.sha256:
        written = f"has changed since this layer was written: its sha256 was {seal.sha256} and is now {now}"
        yield f"{place}: {seal.extends} {written}"


def layer_text(changes: Mapping[str, Any], below: Recipe, extends: str | None = None) -> str:
    """Write the `changes` over the recipe `below` as YAML; null deletes."""
    if changes.keys() & {EXTENDS, EXTENDS_SHA256}:
        raise ValueError("a layer's changes cannot say what it extends")
    if extends is None:
        return layer_head(below) + dump_yaml(dict(changes))
    head = {EXTENDS: extends, EXTENDS_SHA256: below.recipe_hash}
    return (
        f"# Changes to {below.name}. If that recipe changes, its sha256 no longer matches and this file is an error.\n"
        + dump_yaml(head | dict(changes))
    )


def merged_deeply(below: Any, above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings at every depth, the upper one last."""
    merged = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        merged[key] = merged_deeply(merged.get(key), value) if isinstance(value, Mapping) else value
    return merged


def layer_head(below: Recipe) -> str:
    """Return the comment over a layer that extends nothing: which recipe it was written for."""
    return f"# For {below.name}, whose recipe has the sha256 {below.recipe_hash}\n"


# What decides which images are kept, and nothing of what they or their scores are.
CUTTING = ("object_threshold", "shift_threshold", "keep", "keep_rejected", "store_embeddings")
_BASE_KEYS = ("object_threshold",)
_SHIFT_KEYS = ("threshold", "object_threshold", "keep")
_EXAMPLE = "prompts: {shifts: {in_the_snow: {threshold: 0.16}}}"


def load_cut(recipe: Path, cut: Path) -> Recipe:
    """Return the recipe in the file `recipe` with the layer in the file `cut` laid over it.

    UserError with every problem for a layer that is not YAML, or changes more than `screen` and the thresholds
    of `prompts`.
    """
    layer = read_yaml(text_of(cut), str(cut))
    if not isinstance(layer, LocatedMapping):
        found = "nothing" if layer is None else type(layer).__name__
        raise UserError(f"{cut}: found {found}, expected a layer of thresholds", hint=f"As in: {_EXAMPLE}")
    below = own_layers(text_of(recipe), str(recipe), recipe.parent)
    problems = list(_cut_problems(layer, below, str(cut)))
    if problems:
        raise UserError(problems, hint=f"A cut changes thresholds alone, as in: {_EXAMPLE}")
    _replace_whole(layer)
    return validated(lay_over(below, layer))


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


def _cut_problems(layer: LocatedMapping, recipe: LocatedMapping, place: str) -> Iterator[str]:
    yield from _unknown_keys(layer, (), ("screen", "prompts"), place)
    screen, prompts = layer.get("screen"), layer.get("prompts")
    if "screen" in layer:
        yield from _unknown_keys(screen, ("screen",), CUTTING, place)
    if "prompts" not in layer:
        return
    yield from _unknown_keys(prompts, ("prompts",), ("base", "shifts"), place)
    if not isinstance(prompts, LocatedMapping):
        return
    if "base" in prompts:
        yield from _unknown_keys(prompts["base"], ("prompts", "base"), _BASE_KEYS, place)
    if "shifts" not in prompts:
        return
    shifts = prompts["shifts"]
    known = recipe.get("prompts", {}).get("shifts", {})
    yield from _unknown_keys(shifts, ("prompts", "shifts"), tuple(known), place)
    if isinstance(shifts, LocatedMapping) and not shifts:  # as a layer it drops what is below
        yield f"prompts.shifts ({place}): found {{}}, which would drop every shift"
    for name, values in shifts.items() if isinstance(shifts, LocatedMapping) else ():
        if name in known:
            yield from _unknown_keys(values, ("prompts", "shifts", name), _SHIFT_KEYS, place)


def _unknown_keys(values: Any, path: tuple[str, ...], allowed: Sequence[str], place: str) -> Iterator[str]:
    """Yield a line for each key that a cut may not hold at this path."""
    if not isinstance(values, LocatedMapping):
        found = "null" if values is None else type(values).__name__
        yield f"{shown_path(path)} ({place}): found {found}, expected a mapping"
        return
    for key in values:
        if key not in allowed:
            where = f"{shown_path((*path, key))} ({values.origins[key]})"
            yield f"{where}: {_why_not(path, key)}{did_you_mean(key, list(allowed))}"


def _why_not(path: tuple[str, ...], key: str) -> str:
    if path == ("screen",) and key in Screen.model_fields:
        return "changes the scores, so images must be screened again; build the recipe into another folder"
    if path == ("prompts", "shifts"):
        return "the dataset has no such shift"
    return "not a threshold"


def dump_recipe(recipe: Recipe) -> str:
    """Write the resolved recipe as YAML, without `extends`, that loads back to an equal recipe."""
    return dump_yaml(recipe.model_dump(mode="json", exclude_none=True))
