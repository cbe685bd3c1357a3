"""Loading a recipe: find it, lay its layers, validate it, and report everything wrong at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from counterfoil.errors import UserError
from counterfoil.recipe.bundled import find_recipe
from counterfoil.recipe.layering import (
    OWN_ROWS,
    OWN_TOKENS,
    model_lists,
    own_layers,
    read_layers,
    text_layers,
    text_of,
    with_overrides,
    without_folders,
)
from counterfoil.recipe.names import RECIPE, REPOSITORY
from counterfoil.recipe.problems import problem_lines
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.strict_yaml import LocatedMapping, dump_yaml


def load_recipe(source: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a bundled name, a YAML file or a dataset directory, with `a.b=c` overrides.

    Raises UserError with every problem, each with its path, file and line.
    """
    return validated(with_overrides(read_layers(find_recipe(source)), overrides))


def load_recipe_text(text: str, overrides: Sequence[str] = (), *, place: str = RECIPE) -> Recipe:
    """As `load_recipe`, for the text of a recipe that is not a dataset's own; relative paths start here."""
    return validated(with_overrides(text_layers(text, place, Path.cwd()), overrides))


def load_own_recipe(directory: Path, overrides: Sequence[str] = (), *, text: str | None = None) -> Recipe:
    """The recipe that a dataset directory brings (or is going to: `text`), which may come from anybody.

    It names nothing of this machine (`layering.own_layers`); `overrides`, which a person gave, may. Raises as
    `load_recipe`.
    """
    place = directory / RECIPE
    layers = own_layers(text_of(place) if text is None else text, str(place), directory)
    return validated(with_overrides(layers, overrides))


def dump_recipe(recipe: Recipe, *, portable: bool = False) -> str:
    """YAML of the resolved recipe, without `extends`, that loads back to an equal recipe.

    `portable` is for a dataset directory, which holds no path of this machine: a folder becomes `./` and
    its last part; tokens, unless they are of the Hub, `./tokens`, and rows `./rows.csv`, where the directory keeps its
    copies. The hashes of the portable recipe are those of the recipe.
    """
    values = recipe.model_dump(mode="json", exclude_none=True)
    if portable:
        _strip_folders(values)
    return dump_yaml(values)


def _strip_folders(values: dict[str, Any]) -> None:
    for section, key in (("source", "dataset"), ("generator", "model"), ("generator", "dataset"), ("screen", "model")):
        if key in values[section]:
            values[section][key] = without_folders(values[section][key])
    if "rows" in values["generator"]:
        values["generator"]["rows"] = OWN_ROWS
    for models in model_lists(values):
        models[:] = [without_folders(name) for name in models]
    tokens = values.get("tokens", {})
    if tokens and not REPOSITORY.fullmatch(tokens.get("path", "")):
        # How they were learned stands in the tokens' own manifest; the lab may have learned others since.
        values["tokens"] = {"path": OWN_TOKENS}


def validated(layers: LocatedMapping) -> Recipe:
    """The recipe of laid layers. UserError with every problem, each with its path, file and line."""
    try:
        return Recipe.model_validate(_with_tuples(layers), strict=True)
    except ValidationError as error:
        problems = problem_lines(Recipe, layers, error)
        hint = "Print a working recipe with: counterfoil show wardrobe-mini"
        raise UserError(problems, hint=hint) from error


def _with_tuples(value: Any) -> Any:
    """Lists as tuples, which strict validation wants for fields that are tuples."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in value)
    return value
