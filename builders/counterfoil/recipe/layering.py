"""How recipes lay over one another: `extends`, `--set`, and paths relative to the file that names them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.bundled import find_recipe
from counterfoil.recipe.strict_yaml import LocatedList, LocatedMapping, Origin, read_yaml

_LOCAL = re.compile(r"(?P<scheme>local-dir:)?(?P<path>(?:\.{1,2}|~)?/.*|\.{1,2}|~)", re.DOTALL)


def read_layers(path: Path) -> LocatedMapping:
    """The recipe of a file with everything it extends laid under it."""
    return _read_chain(path, ())


def text_layers(text: str, place: str, folder: Path) -> LocatedMapping:
    """As `read_layers`, for a recipe's text that stands (or stood) in `folder`."""
    return _layered(text, place, folder, ())


def lay_over(lower: LocatedMapping, upper: LocatedMapping) -> LocatedMapping:
    """Mappings merge deeply, lists and scalars replace, null deletes what the lower one holds."""
    merged = LocatedMapping(lower, lower.origins)
    for key, value in upper.items():
        if value is None and key in merged:
            del merged[key], merged.origins[key]
            continue
        below = merged.get(key)
        if isinstance(below, LocatedMapping) and isinstance(value, LocatedMapping):
            value = lay_over(below, value)
        merged[key], merged.origins[key] = value, upper.origins[key]
    return merged


def with_overrides(recipe: LocatedMapping, overrides: Sequence[str]) -> LocatedMapping:
    """The recipe with each `a.b=c` laid over it in turn; c is YAML, paths are relative to here."""
    problems: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            problems.append(f"--set {override}: expected KEY=VALUE, such as samples.candidates=5")
            continue
        place = f"--set {override}"
        try:
            value = read_yaml(text, place) if text.strip() else None
            layer = _nested(parts, _relocated(value, Origin(place)), Origin(place))
            _resolve_paths(layer, Path.cwd())
        except UserError as error:
            problems += error.problems
            continue
        recipe = lay_over(recipe, layer)
    if problems:
        raise UserError(problems)
    return recipe


def is_local(name: str) -> bool:
    """Whether a model, dataset or token name is a path of this machine (`/…`, `./…`, `local-dir:./…`)."""
    return _LOCAL.fullmatch(name) is not None


def without_folders(name: str) -> str:
    """A path of this machine as `./` and its last part; any other name unchanged."""
    match = _LOCAL.fullmatch(name)
    return f"{match['scheme'] or ''}./{Path(match['path']).name}" if match else name


def _read_chain(path: Path, above: tuple[Path, ...]) -> LocatedMapping:
    real = path.resolve()
    if real in above:
        chain = " -> ".join(_shown(step) for step in (*above[above.index(real) :], real))
        raise UserError(f"{_shown(real)}: extends itself: {chain}")
    return _layered(_text_of(path), _shown(path), real.parent, (*above, real))


def _layered(text: str, place: str, folder: Path, above: tuple[Path, ...]) -> LocatedMapping:
    recipe = read_yaml(text, place)
    if not isinstance(recipe, LocatedMapping):
        raise UserError(f"{place}: found {type(recipe).__name__}, expected a mapping of a recipe's keys")
    _resolve_paths(recipe, folder)
    origin = recipe.origins.pop("extends", None)
    parent = recipe.pop("extends", None)
    if origin is None or parent is None:
        return recipe
    if not isinstance(parent, str):
        raise UserError(f"extends ({origin}): expected one bundled name or path of a recipe")
    try:
        found = find_recipe(parent if "/" not in parent and "." not in parent else folder / parent)
    except UserError as error:
        raise UserError([f"extends ({origin}): {problem}" for problem in error.problems], error.hint) from error
    return lay_over(_read_chain(found, above), recipe)


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{_shown(path)}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{_shown(path)}: cannot be read: {error.strerror}") from error


def _shown(path: Path) -> str:
    """The path as a person here would write it."""
    absolute = path.resolve()
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def _resolve_paths(recipe: LocatedMapping, folder: Path) -> None:
    """Make the paths in one file's recipe absolute, and read the file of classes where it names one."""
    for section, key in (
        ("source", "dataset"),
        ("tokens", "path"),
        ("generator", "model"),
        ("screen", "model"),
    ):
        values = recipe.get(section)
        if isinstance(values, LocatedMapping) and isinstance(values.get(key), str):
            values[key] = _absolute(values[key], folder)
    evaluate = recipe.get("evaluate")
    if isinstance(evaluate, LocatedMapping) and isinstance(evaluate.get("models"), LocatedList):
        models = evaluate["models"]
        models[:] = [_absolute(name, folder) if isinstance(name, str) else name for name in models]
    source = recipe.get("source")
    if isinstance(source, LocatedMapping) and isinstance(source.get("classes"), str):
        source["classes"] = _read_classes(folder / source["classes"], source.origins["classes"])


def _absolute(name: str, folder: Path) -> str:
    match = _LOCAL.fullmatch(name)
    if match is None:
        return name
    return f"{match['scheme'] or ''}{(folder / Path(match['path']).expanduser()).resolve()}"


def _read_classes(path: Path, origin: Origin) -> Any:
    if not path.is_file():
        raise UserError(f"source.classes ({origin}): no such file: {path}; expected a list, or a YAML file of one")
    classes = read_yaml(_text_of(path), _shown(path))
    if not isinstance(classes, LocatedList):
        raise UserError(f"source.classes ({origin}): {_shown(path)} holds no list, expected a list of classes")
    return classes


def _nested(parts: Sequence[str], value: Any, origin: Origin) -> LocatedMapping:
    for part in reversed(parts):
        value = LocatedMapping({part: value}, {part: origin})
    return value


def _relocated(value: Any, origin: Origin) -> Any:
    if isinstance(value, LocatedMapping):
        items = {key: _relocated(item, origin) for key, item in value.items()}
        return LocatedMapping(items, dict.fromkeys(items, origin))
    if isinstance(value, LocatedList):
        return LocatedList([_relocated(item, origin) for item in value], [origin] * len(value))
    return value
