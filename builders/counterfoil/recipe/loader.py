"""Loading a recipe: find it, lay its layers, validate it, and report everything wrong at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from counterfoil.errors import UserError
from counterfoil.recipe.bundled import find_recipe
from counterfoil.recipe.layering import (
    EXTENDS_SHA256,
    OWN_EMBEDDINGS,
    OWN_ROWS,
    OWN_TOKENS,
    Layers,
    Seal,
    embedding_specs,
    own_layers,
    read_layers,
    replace_names,
    text_layers,
    text_of,
    with_overrides,
    without_folders,
)
from counterfoil.recipe.names import RECIPE, REPOSITORY
from counterfoil.recipe.problems import problem_lines
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.schema_inputs import ClassEntry
from counterfoil.recipe.strict_yaml import LocatedMapping, dump_yaml
from counterfoil.recipe.templates import own_key

# Keys that came later, and whose default is a value: a dataset's recipe without them keeps its bytes.
_UNSAID = {"generator": ("options", "offload", "compile"), "samples": ("pairs", "held")}


def load_recipe(source: Recipe | str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a bundled name, a YAML file or a dataset directory, with `a.b=c` overrides; a Recipe is itself.

    Raises UserError with every problem, each with its path, file and line, and for overrides of a Recipe.
    """
    if isinstance(source, Recipe):
        if overrides:
            raise UserError("overrides go with a recipe's name or path, not with a loaded Recipe")
        return source
    return _resolved(read_layers(find_recipe(source)), overrides)


def load_recipe_text(text: str, overrides: Sequence[str] = (), *, place: str = RECIPE) -> Recipe:
    """As `load_recipe`, for the text of a recipe that is not a dataset's own; relative paths start here."""
    return _resolved(text_layers(text, place, Path.cwd()), overrides)


def load_own_recipe(directory: Path, overrides: Sequence[str] = (), *, text: str | None = None) -> Recipe:
    """The recipe that a dataset directory brings (or is going to: `text`), which may come from anybody.

    It names nothing of this machine (`layering.own_layers`); `overrides`, which a person gave, may. Raises as
    `load_recipe`.
    """
    place = directory / RECIPE
    layers = own_layers(text_of(place) if text is None else text, str(place), directory)
    return validated(with_overrides(layers, overrides))


def dump_recipe(recipe: Recipe) -> str:
    """YAML of the resolved recipe, without `extends`, that loads back to an equal recipe."""
    return dump_yaml(recipe.model_dump(mode="json", exclude_none=True))


def portable_text(recipe: Recipe) -> str:
    """`Recipe.portable_yaml`: for a dataset directory, which holds no path of this machine.

    A folder becomes `./` and its last part; tokens, unless they are of the Hub, `./tokens`, rows `./rows.csv`, and
    embeddings `./embeddings.safetensors`, under keys by shift: the directory keeps copies of them.
    """
    values = _portable_values(recipe)
    if "rows" in values["generator"]:
        values["generator"]["rows"] = OWN_ROWS
    return dump_yaml(values)


def portable_recipe(recipe: Recipe) -> Recipe:
    """`Recipe.portable`: what the text of `portable_text` loads to."""
    return Recipe.model_validate(_with_tuples(_portable_values(recipe)), strict=True)


def _portable_values(recipe: Recipe) -> dict[str, Any]:
    values = recipe.model_dump(mode="json", exclude_none=True)
    for key, names in _UNSAID.items():
        section = getattr(recipe, key)
        for name in names:
            if getattr(section, name) == type(section).model_fields[name].get_default(call_default_factory=True):
                values[key].pop(name, None)  # of other kinds it is not said at all
    tokens = dict(values.get("tokens", {}))
    replace_names(values, without_folders)
    for path, spec in embedding_specs(values):
        spec["file"], spec["key"] = OWN_EMBEDDINGS, own_key(path[-2], spec["key"])
    if tokens and not REPOSITORY.fullmatch(tokens.get("path", "")):
        # How they were learned stands in the tokens' own manifest; the lab may have learned others since.
        values["tokens"] = {"path": OWN_TOKENS}
    return values


def validated(layers: LocatedMapping) -> Recipe:
    """The recipe of laid layers. UserError with every problem, each with its path, file and line."""
    try:
        return Recipe.model_validate(_with_tuples(layers), strict=True)
    except ValidationError as error:
        problems = problem_lines(Recipe, layers, error)
        hint = "Print a working recipe with: counterfoil show wardrobe-mini"
        raise UserError(problems, hint=hint) from error


def with_classes(recipe: Recipe, classes: Sequence[ClassEntry]) -> Recipe:
    """The recipe with these classes in place of its own. UserError with every problem that they bring."""
    values = recipe.model_dump(mode="json", exclude_none=True)
    values["source"]["classes"] = [entry.model_dump(mode="json", exclude_none=True) for entry in classes]
    return validated(LocatedMapping(values))


def _resolved(layers: Layers, overrides: Sequence[str]) -> Recipe:
    problems = [problem for seal in layers.seals for problem in _broken(seal)]
    if problems:
        hint = "If the layer still says what you mean, write the sha256 of now there, or take that line out."
        raise UserError(problems, hint)
    return validated(with_overrides(layers.laid, overrides))


def _broken(seal: Seal) -> Iterator[str]:
    """How what a layer extends is another recipe than the one that it was written for."""
    place = f"{EXTENDS_SHA256} ({seal.origin})"
    try:
        below = validated(seal.below)
        if not below.names_every_label:
            yield f"{place}: {seal.extends} has other classes than were found for it when this layer was written"
            return
        now = below.recipe_hash
    except UserError as error:
        yield from (f"{place}: {seal.extends} is a recipe no more: {problem}" for problem in error.problems)
        return
    if now != seal.sha256:
        written = f"has changed since this layer was written: its sha256 is now {now}, and was {seal.sha256}"
        yield f"{place}: {seal.extends} {written}"


def _with_tuples(value: Any) -> Any:
    """Lists as tuples, which strict validation wants for fields that are tuples."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in value)
    return value
