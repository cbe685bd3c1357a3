"""Load recipes, report all their problems at once, and write layers.

A cut is a layer over a built dataset's own recipe. It contains thresholds and screen settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model

from counterfoil.errors import UserError
from counterfoil.recipe.checks import cross_section_problems
from counterfoil.recipe.kinds import GeneratorKind, kind_of
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
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import RECIPE, did_you_mean
from counterfoil.recipe.parts import as_mapping
from counterfoil.recipe.problems import problem_lines, shown_path
from counterfoil.recipe.schema import Recipe, with_tuples
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.schema_prompts import Screen
from counterfoil.recipe.strict_yaml import LocatedMapping, dump_yaml, read_yaml


def load_recipe(source: Recipe | str | Path, overrides: str | Sequence[str] = ()) -> Recipe:
    """Load a recipe and check it.

    Args:
        source: A bundled name, a YAML file, a dataset directory or a Recipe, which is returned as
            it is.
        overrides: Changes to the recipe, as `a.b=c` strings.

    Returns:
        The Recipe.

    Raises:
        UserError: The recipe has problems; the message lists each with its key, file and line. Also
            if you override a Recipe.
    """
    if isinstance(source, Recipe):
        if overrides:
            raise UserError("overrides go with a recipe's name or path, not with a loaded Recipe")
        return source
    if isinstance(overrides, str):
        overrides = [overrides]
    layers = read_layers(find_recipe(source))
    return _validated_over(layers, overrides)


def load_recipe_text(text: str, overrides: Sequence[str] = (), *, place: str = RECIPE) -> Recipe:
    """Load a recipe from a text that is not a dataset's own recipe. Paths are relative to the
    working directory."""
    layers = text_layers(text, place, Path.cwd())
    return _validated_over(layers, overrides)


def load_own_recipe(
    directory: Path,
    overrides: Sequence[str] = (),
    *,
    text: str | None = None,
) -> Recipe:
    """Load the recipe of a dataset that may come from anybody (`layering.own_layers`), or the
    recipe's future `text`.

    The overrides come from the user, so they may name paths of this machine.
    """
    path = directory / RECIPE
    if text is None:
        text = text_of(path)
    layers = own_layers(text, str(path), directory)
    return validated(with_overrides(layers, overrides))


def validated(layers: LocatedMapping) -> Recipe:
    """Return the recipe of merged layers. Raise UserError with every problem and its path, file and
    line."""
    try:
        return Recipe.model_validate(with_tuples(layers), strict=True)
    except ValidationError as error:
        problems = problem_lines(
            _form_of(kind_of(layers.section("generator"))),
            layers,
            error,
            cross_section_problems,
        )
        hint = "Print a working recipe with: counterfoil show wardrobe-mini"
        raise UserError(problems, hint) from error


@cache
def _form_of(kind: type[GeneratorKind]) -> type[Recipe]:
    """Return the form of recipes with a generator of this kind, which names the keys of problems."""
    generator: Any = (kind, Recipe.model_fields["generator"])
    return create_model("Recipe", __base__=Recipe, generator=generator)


def with_classes(recipe: Recipe, classes: Sequence[ClassEntry]) -> Recipe:
    """Return the recipe with these classes instead of its own. Raise UserError with every problem
    that these classes cause.
    """
    values = recipe.model_dump(mode="json", exclude_none=True)
    entries = [entry.model_dump(mode="json", exclude_none=True) for entry in classes]
    values["source"]["classes"] = entries
    return validated(LocatedMapping(values))


def _validated_over(layers: Layers, overrides: Sequence[str]) -> Recipe:
    problems = [problem for seal in layers.seals for problem in _broken(seal)]
    if problems:
        hint = "If the layer is still right, write the new sha256 there, or remove that line."
        raise UserError(problems, hint)
    return validated(with_overrides(layers.laid, overrides))


def _broken(seal: Seal) -> Iterator[str]:
    """Yield a line for each change of the recipe that a layer extends, since the layer was
    written."""
    recipe = seal.extends
    try:
        below = validated(seal.below)
    except UserError as error:
        for problem in error.problems:
            now_invalid = problem.at(f"{recipe} is no longer a valid recipe")
            yield now_invalid.at(EXTENDS_SHA256, seal.origin)
        return
    if not below.names_every_label:
        problem = message("changed-recipe.classes", recipe=recipe)
        yield problem.at(EXTENDS_SHA256, seal.origin)
        return
    now = below.recipe_hash
    if now != seal.sha256:
        problem = message(
            "changed-recipe",
            recipe=recipe,
            before=seal.sha256,
            now=now,
        )
        yield problem.at(EXTENDS_SHA256, seal.origin)


def layer_text(changes: Mapping[str, Any], below: Recipe, extends: str | None = None) -> str:
    """Write the `changes` over the recipe `below` as YAML. A null deletes a value."""
    if changes.keys() & {EXTENDS, EXTENDS_SHA256}:
        raise ValueError("a layer's changes cannot say what it extends")
    if extends is None:
        return layer_head(below) + dump_yaml(dict(changes))
    comment = (
        f"# Changes to {below.name}. If that recipe changes, its sha256 no longer matches and"
        " this file is an error."
    )
    layer = {EXTENDS: extends, EXTENDS_SHA256: below.recipe_hash, **changes}
    return f"{comment}\n{dump_yaml(layer)}"


def merged_deeply(below: Any, above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings at every depth. The values of `above` win."""
    merged = dict(below) if isinstance(below, Mapping) else {}
    for key, value in above.items():
        if isinstance(value, Mapping):
            value = merged_deeply(merged.get(key), value)
        merged[key] = value
    return merged


def layer_head(below: Recipe) -> str:
    """Return the comment at the head of a layer without `extends`. It names the recipe for which
    the layer was written.
    """
    return f"# For {below.name}, whose recipe has the sha256 {below.recipe_hash}\n"


# Keys of `screen` that decide which images are kept, and that change no image and no score.
CUTTING = ("object_threshold", "shift_threshold", "keep", "keep_rejected", "store_embeddings")
_BASE_KEYS = ("object_threshold",)
_SHIFT_KEYS = ("threshold", "object_threshold", "keep")
_EXAMPLE = "prompts: {shifts: {in_the_snow: {threshold: 0.16}}}"


def load_cut(recipe: Path, cut: Path) -> Recipe:
    """Return the recipe in the file `recipe` with the layer in the file `cut` over it.

    Raise UserError with every problem if the layer changes more than thresholds and keep settings.
    """
    layer = read_yaml(text_of(cut), str(cut))
    if not isinstance(layer, LocatedMapping):
        kind = "nothing" if layer is None else type(layer).__name__
        problem = message("not-in-a-cut.layer", found=kind)
        raise UserError(problem.at(str(cut)), hint=f"As in: {_EXAMPLE}")
    below = own_layers(text_of(recipe), str(recipe), recipe.parent)
    problems = list(_cut_problems(layer, below, str(cut)))
    if problems:
        raise UserError(problems, hint=f"A cut changes thresholds alone, as in: {_EXAMPLE}")
    _replace_whole(layer)
    return validated(lay_over(below, layer))


def _replace_whole(layer: LocatedMapping) -> None:
    """Let `{percentile: …}` in a layer delete a lower `{value: …}`, and `{value: …}` delete a lower
    `{percentile: …}`.
    """
    for key, value in layer.items():
        if not isinstance(value, LocatedMapping):
            continue
        if not key.endswith("threshold"):
            _replace_whole(value)
            continue
        for given, other in (("value", "percentile"), ("percentile", "value")):
            if given in value and other not in value:
                value[other] = None
                value.origins[other] = value.origins[given]
                break


def _cut_problems(layer: LocatedMapping, recipe: LocatedMapping, file: str) -> Iterator[str]:
    shifts = tuple(recipe.section("prompts").section("shifts"))
    allowed: dict[tuple[str, ...], Sequence[str]] = {
        (): ("screen", "prompts"),
        ("screen",): CUTTING,
        ("prompts",): ("base", "shifts"),
        ("prompts", "base"): _BASE_KEYS,
        ("prompts", "shifts"): shifts,
    }
    for name in shifts:
        allowed["prompts", "shifts", name] = _SHIFT_KEYS
    for path, keys in allowed.items():
        values: Any = layer
        present = True
        for key in path:
            around = as_mapping(values)
            present = key in around
            values = around.get(key)
        if not present:
            continue
        if not isinstance(values, LocatedMapping):
            kind = "null" if values is None else type(values).__name__
            yield message("not-in-a-cut.mapping", found=kind).at(shown_path(path), file)
            continue
        # a layer with this value drops all lower shifts
        if path == ("prompts", "shifts") and not values:
            yield message("not-in-a-cut.shifts").at("prompts.shifts", file)
        for key in values:
            if key in keys:
                continue
            reason = "not-in-a-cut"
            if path == ("screen",) and key in Screen.model_fields:
                reason = "not-in-a-cut.scores"
            elif path == ("prompts", "shifts"):
                reason = "not-in-a-cut.shift"
            problem = message(reason, hint=did_you_mean(key, keys))
            yield problem.at(shown_path((*path, key)), values.origins[key])


def dump_recipe(recipe: Recipe) -> str:
    """Write the resolved recipe as YAML without `extends`, which loads to an equal recipe."""
    return dump_yaml(recipe.model_dump(mode="json", exclude_none=True))
