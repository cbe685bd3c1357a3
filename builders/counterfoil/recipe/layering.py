"""Find recipes and merge their layers: `extends`, `--set`, and paths relative to the file that
names them.

A dataset's own recipe may come from a stranger. Its folders therefore become names that open
nothing (`elsewhere:./photos`) until the user gives their path.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.recipe.keep.rule import FIRST_ROWS
from counterfoil.recipe.names import (
    _ADDRESS,
    _LOCAL,
    ELSEWHERE,
    EMBEDDINGS,
    LOCK,
    RECIPE,
    ROWS,
    TOKENS,
    did_you_mean,
    is_local,
    nearest,
    without_folders,
)
from counterfoil.recipe.parts import embedding_specs
from counterfoil.recipe.rows_table import MOST_BYTES, read_rows_table
from counterfoil.recipe.strict_yaml import (
    DEEPEST,
    MOST_CHARACTERS,
    LocatedList,
    LocatedMapping,
    Origin,
    read_yaml,
)
from counterfoil.regular_files import named_path, read_regular

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def bundled_folder() -> Path:
    """Return the folder of bundled recipes: in the installed package, or at the root of a
    checkout."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_recipes", package.parent.parent / "recipes"):
        if folder.is_dir():
            return folder
    raise UserError(
        "the bundled recipes are missing from this installation", hint="Install counterfoil again."
    )


def bundled_recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted(bundled_folder().glob("*.yaml"))}


def find_recipe(source: str | Path) -> Path:
    """Return the file of a recipe named by a bundled name (`wardrobe-mini`), a path or a dataset
    directory."""
    if isinstance(source, str) and _BARE.fullmatch(source):
        known = bundled_recipes()
        if source in known:
            return known[source]
        if not named_path(source).exists():
            hint = (
                f"Bundled recipes: {', '.join(known)}. A file is named by its path, as in"
                f" ./{source}.yaml."
            )
            raise UserError(
                f"no bundled recipe is called '{source}'{did_you_mean(source, known)}", hint=hint
            )
    path = named_path(source)
    if path.is_dir():
        inside = path / RECIPE
        if inside.is_file():
            return inside
        raise UserError(
            f"{path}: a folder without {RECIPE}, expected a recipe or a dataset directory"
        )
    if path.exists():
        return path
    neighbours = [file.name for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    close = nearest(path.name, neighbours)
    clause = f"; did you mean '{path.parent / close}'?" if close else ""
    raise UserError(f"{path}: no such recipe{clause}")


def is_of_a_dataset(path: Path) -> bool:
    """Return whether a recipe's file belongs to a dataset directory. Only in such a directory is a
    lock beside the file.
    """
    return path.name == RECIPE and (path.parent / LOCK).exists()


def class_slug(name: str) -> str:
    """Return a class id made from a name, such as `cafe-au-lait` from `Café au lait`. The result
    may be an empty text.
    """
    letters = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub(r"[^a-z0-9_]+", "-", plain.lower()).strip("-")


def spell_out(recipe: LocatedMapping) -> None:
    """Expand the short forms of a recipe in place, so that layers merge: a class given by its name,
    a prompt given as text.
    """
    source = recipe.get("source")
    prompts = recipe.get("prompts")
    if isinstance(source, LocatedMapping) and isinstance(source.get("classes"), LocatedList):
        listed = source["classes"]
        listed[:] = [
            _class(entry, origin) for entry, origin in zip(listed, listed.origins, strict=True)
        ]
    if not isinstance(prompts, LocatedMapping):
        return
    _prompt(prompts, "base")
    shifts = prompts.get("shifts")
    if isinstance(shifts, LocatedMapping):
        for name in shifts:
            _prompt(shifts, name)


def _class(entry: Any, origin: Origin) -> Any:
    if isinstance(entry, str):
        entry = LocatedMapping({"name": entry}, {"name": origin})
    if (
        isinstance(entry, LocatedMapping)
        and entry.get("id") is None
        and isinstance(entry.get("name"), str)
    ):
        slug = class_slug(entry["name"])
        if slug:
            entry["id"], entry.origins["id"] = slug, entry.origins["name"]
    return entry


def _prompt(specs: LocatedMapping, name: str) -> None:
    if isinstance(specs.get(name), str):
        specs[name] = LocatedMapping({"prompt": specs[name]}, {"prompt": specs.origins[name]})


def names_every_label(classes: Any) -> bool:
    """Return whether every class of a list has a source label. The list may have any form."""
    if not isinstance(classes, list | tuple):
        return classes is not None
    return all(
        not isinstance(entry, Mapping) or entry.get("source_label") is not None for entry in classes
    )


def same_classes(given: Any, resolved: Sequence[Any]) -> bool:
    """Return whether resolved classes agree with the classes of a recipe. Null stands for all
    classes."""
    if given is None:
        return True
    if not isinstance(given, list | tuple) or len(given) != len(resolved):
        return False
    for entry, known in zip(given, resolved, strict=True):
        if not isinstance(entry, Mapping) or not isinstance(known, Mapping):
            return False
        if any(value is not None and known.get(key) != value for key, value in entry.items()):
            return False
    return True


# The names of files beside a dataset's own recipe, as the recipe writes these names.
OWN_TOKENS = f"./{TOKENS}"
OWN_ROWS = f"./{ROWS}"
OWN_EMBEDDINGS = f"./{EMBEDDINGS}"
EXTENDS = "extends"
EXTENDS_SHA256 = "extends_sha256"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_CHAIN = 20
_LONGEST_SHOWN = 300
# Keys of classifiers in keep rules, for one rule or a list of rules. `*` stands for every value or
# item.
KEEP_JUDGES = ("keep.*.models.*", "keep.*.*.models.*")
# Keys whose values are names that may be folders.
_NAMES = (
    "source.dataset", "tokens.path", "generator.model", "generator.adapter", "generator.lora.*.path",
    "generator.dataset", "generator.captioner", "generator.clip.model", "screen.model", "screen.judge",
    "evaluate.models.*", "mine.target", "mine.on.*", "mine.others.*", "mine.settings.captions",
    "mine.settings.captioner", "mine.settings.contexts", "mine.settings.seeds.*", "mine.settings.pooled.*",
    "mine.settings.chat.model", "mine.settings.chat.base_url",
    *(f"{section}.{judges}" for section in ("screen", "prompts.shifts.*") for judges in KEEP_JUDGES),
)  # fmt: skip
# Keys whose values are always paths, even without a leading `./`.
_PATHS = ("mine.settings.examples.*.image", "mine.settings.chat.answers")


@dataclass(frozen=True, slots=True)
class Seal:
    """A layer's claim about the recipe that it extends: its name, its hash, and where the claim is
    in the file.

    below: the extended recipe as it is now.
    """

    extends: str
    sha256: str
    origin: Origin
    below: LocatedMapping


@dataclass(frozen=True, slots=True)
class Layers:
    """The merged layers of a recipe, and the seals of its layers, with the lowest layer first."""

    laid: LocatedMapping
    seals: tuple[Seal, ...] = ()


def read_layers(path: Path) -> Layers:
    """Return the recipe of a file merged over everything that it extends. A dataset's own recipe
    extends nothing."""
    if is_of_a_dataset(path):
        return Layers(own_layers(text_of(path), _shown(path), path.parent))
    return _read_chain(path, ())


def own_layers(text: str, shown_name: str, dataset: Path) -> LocatedMapping:
    """Return a dataset's own recipe. Its folders become names of another machine.

    Raise UserError if the recipe extends another, lists no classes, or names a file outside the
    dataset.
    """
    recipe = _read_mapping(text, shown_name)
    spell_out(recipe)
    problems = []
    if recipe.get("extends") is not None:
        problems.append(
            f"extends ({recipe.origins['extends']}): a dataset's own recipe cannot extend another"
            " recipe"
        )
    source = recipe.get("source")
    if isinstance(source, LocatedMapping):
        where = f"source.classes ({source.origins.get('classes', shown_name)})"
        if isinstance(source.get("classes"), str):
            problems.append(f"{where}: found a path; a dataset's own recipe lists its classes")
        elif not names_every_label(source.get("classes")):
            problems.append(
                f"{where}: a dataset's own recipe lists its classes, each with its source_label"
            )
    generator = _with_rows_of_a_file(recipe)
    if generator is not None and generator["rows"] != OWN_ROWS:
        origin = generator.origins["rows"]
        problems.append(
            f"generator.rows ({origin}): found a path; a dataset's own rows are in {OWN_ROWS}"
        )
    embeddings = [
        (path, spec) for path, spec in embedding_specs(recipe) if isinstance(spec, LocatedMapping)
    ]
    for path, spec in embeddings:
        if spec.get("file") not in (None, OWN_EMBEDDINGS):
            where = f"{'.'.join(path)}.file ({spec.origins['file']})"
            problems.append(
                f"{where}: found a path; a dataset's own embeddings are in {OWN_EMBEDDINGS}"
            )
    if problems:
        raise UserError(
            problems,
            "A dataset's recipe is what `counterfoil build` wrote: restore it from a copy.",
        )
    if isinstance(recipe.get("output"), LocatedMapping):
        recipe["output"].setdefault("row_version", FIRST_ROWS)
    tokens = recipe.get("tokens")
    brings_tokens = isinstance(tokens, LocatedMapping) and tokens.get("path") == OWN_TOKENS
    replace_names(recipe, _elsewhere)
    if generator is not None:
        generator["rows"] = _read_rows(dataset / OWN_ROWS, generator.origins["rows"])
    if brings_tokens:
        recipe["tokens"]["path"] = str(dataset.resolve() / OWN_TOKENS)
    for _, spec in embeddings:
        if spec.get("file") == OWN_EMBEDDINGS:
            spec["file"] = str(dataset.resolve() / OWN_EMBEDDINGS)
    return recipe


def lay_over(
    lower: LocatedMapping, upper: LocatedMapping, path: tuple[str, ...] = ()
) -> LocatedMapping:
    """Merge `upper` over `lower`. Mappings merge deeply, lists and scalars replace the lower value,
    and null deletes it.

    `prompts.shifts: {}` drops every inherited shift. `path` is the key of the two mappings in the
    recipe.
    """
    merged = LocatedMapping(lower, lower.origins)
    for key, value in upper.items():
        if value is None and key in merged:
            del merged[key], merged.origins[key]
            continue
        below = merged.get(key)
        key_path = (*path, key)
        names_classes = (
            key == "object_threshold"
            and isinstance(value, LocatedMapping)
            and set(value) == {"classes"}
        )
        if names_classes and isinstance(below, int | float) and not isinstance(below, bool):
            # Expand a bare number into a mapping, so that thresholds of classes can be merged over
            # it.
            below = LocatedMapping({"value": below}, {"value": merged.origins[key]})
        drops = key_path == ("prompts", "shifts") and not value
        if isinstance(below, LocatedMapping) and isinstance(value, LocatedMapping) and not drops:
            value = lay_over(below, value, key_path)
        merged[key], merged.origins[key] = value, upper.origins[key]
    return merged


def with_overrides(recipe: LocatedMapping, overrides: Sequence[str]) -> LocatedMapping:
    """Return the recipe with each `a.b=c` merged over it in turn. c is YAML; paths in c are
    relative to the working directory.
    """
    problems: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            problems.append(
                f"--set {override[:200]}: expected KEY=VALUE, such as samples.candidates=5"
            )
            continue
        if len(parts) > DEEPEST:
            problems.append(
                f"--set {override[:200]}…: a key of {len(parts):,} parts, expected at most"
                f" {DEEPEST}"
            )
            continue
        option = (
            f"--set {override}"
            if len(override) <= _LONGEST_SHOWN
            else f"--set {override[:_LONGEST_SHOWN]}…"
        )
        try:
            value = read_yaml(text, option) if text.strip() else None
            layer = _located(value, Origin(option))
            for part in reversed(parts):
                layer = LocatedMapping({part: layer}, {part: Origin(option)})
            _resolve_paths(layer, Path.cwd())
        except UserError as error:
            problems += error.problems
            continue
        recipe = lay_over(recipe, layer)
    if problems:
        raise UserError(problems)
    return recipe


def text_of(path: Path) -> str:
    """Return the text of a YAML file of bounded size. Raise UserError if it cannot be read."""
    try:
        return read_regular(path, MOST_CHARACTERS).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{_shown(path)}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise UserError(f"{_shown(path)}: cannot be read: {error.strerror}") from error


def _read_chain(path: Path, above: tuple[Path, ...]) -> Layers:
    real = path.resolve()
    if real in above:
        chain = " -> ".join(_shown(step) for step in (*above[above.index(real) :], real))
        raise UserError(f"{_shown(real)}: extends itself: {chain}")
    if len(above) == _LONGEST_CHAIN:
        raise UserError(f"{_shown(real)}: extended over more than {_LONGEST_CHAIN} files")
    return text_layers(text_of(path), _shown(path), real.parent, (*above, real))


def _read_mapping(text: str, shown_name: str) -> LocatedMapping:
    recipe = read_yaml(text, shown_name)
    if not isinstance(recipe, LocatedMapping):
        kind = "a list" if isinstance(recipe, list) else repr(recipe)[:60]
        raise UserError(f"{shown_name}: found {kind}, expected a mapping of a recipe's keys")
    return recipe


def text_layers(text: str, shown_name: str, folder: Path, above: tuple[Path, ...] = ()) -> Layers:
    """Read the layers of a recipe's text. Paths are relative to `folder`, and `above` lists the
    files that extend this text.
    """
    recipe = _read_mapping(text, shown_name)
    _resolve_paths(recipe, folder)
    origin = recipe.origins.pop(EXTENDS, None)
    sealed = recipe.origins.pop(EXTENDS_SHA256, None)
    parent = recipe.pop(EXTENDS, None)
    sha256 = recipe.pop(EXTENDS_SHA256, None)
    if sha256 is not None and (not isinstance(sha256, str) or not _SHA256.fullmatch(sha256)):
        raise UserError(
            f"{EXTENDS_SHA256} ({sealed}): found {str(sha256)[:80]!r}, expected the 64 digits of a"
            " sha256"
        )
    if sha256 is not None and parent is None:
        raise UserError(
            f"{EXTENDS_SHA256} ({sealed}): expected `extends` too: this is the sha256 of the recipe"
            " that it names"
        )
    if origin is None or parent is None:
        return Layers(recipe)
    if not isinstance(parent, str):
        raise UserError(f"extends ({origin}): expected one bundled name or path of a recipe")
    try:
        lower_path = find_recipe(
            parent if "/" not in parent and "." not in parent else folder / named_path(parent)
        )
    except UserError as error:
        raise UserError(
            [f"extends ({origin}): {problem}" for problem in error.problems], error.hint
        ) from error
    lower = (
        read_layers(lower_path) if is_of_a_dataset(lower_path) else _read_chain(lower_path, above)
    )
    sealed_below = _with_classes_of(lower.laid, recipe)
    seals = (
        (Seal(parent, sha256, sealed, sealed_below),)
        if sha256 is not None and sealed is not None
        else ()
    )
    return Layers(lay_over(lower.laid, recipe), (*lower.seals, *seals))


def _with_classes_of(lower: LocatedMapping, upper: LocatedMapping) -> LocatedMapping:
    """Return the lower recipe with the layer's classes, if the lower recipe leaves its classes to
    the source."""
    below = lower.get("source")
    above = upper.get("source")
    if not isinstance(below, LocatedMapping) or not isinstance(above, LocatedMapping):
        return lower
    given = below.get("classes")
    resolved = above.get("classes")
    if (
        names_every_label(given)
        or not isinstance(resolved, LocatedList)
        or not same_classes(given, resolved)
    ):
        return lower
    classes = LocatedMapping({"classes": resolved}, above.origins)
    return lay_over(lower, LocatedMapping({"source": classes}, upper.origins))


def _shown(path: Path) -> str:
    absolute = path.resolve()
    folder = Path.cwd()
    return str(absolute.relative_to(folder) if absolute.is_relative_to(folder) else absolute)


def _resolve_paths(recipe: LocatedMapping, folder: Path) -> None:
    """Make the paths of one file's recipe absolute, and read the file of classes if the recipe
    names one."""

    def absolute(name: str) -> str:
        match = _LOCAL.fullmatch(name)
        return (
            name
            if match is None
            else f"{match['scheme'] or ''}{_absolute_file(match['path'], folder)}"
        )

    replace_names(recipe, absolute)
    source = recipe.get("source")
    if isinstance(source, LocatedMapping) and isinstance(source.get("classes"), str):
        path = folder / named_path(source["classes"])
        origin = source.origins["classes"]
        if not path.exists():
            raise UserError(
                f"source.classes ({origin}): no such file: {path}; expected a list, or a YAML file"
                " of one"
            )
        classes = read_yaml(text_of(path), _shown(path))
        if not isinstance(classes, LocatedList):
            raise UserError(
                f"source.classes ({origin}): {_shown(path)} holds no list, expected a list of"
                " classes"
            )
        source["classes"] = classes
    spell_out(recipe)
    for _, spec in embedding_specs(recipe):
        if isinstance(spec, LocatedMapping) and isinstance(spec.get("file"), str):
            spec["file"] = _absolute_file(spec["file"], folder)
    generator = _with_rows_of_a_file(recipe)
    if generator is not None:
        generator["rows"] = _read_rows(
            folder / named_path(generator["rows"]), generator.origins["rows"]
        )


def replace_names(recipe: dict[str, Any], replaced: Callable[[str], str]) -> None:
    """Replace every name in a recipe that may be a folder."""
    for values, key in texts_at(recipe, *_NAMES):
        values[key] = replaced(values[key])
    for values, key in texts_at(recipe, *_PATHS):
        if values[key]:
            values[key] = replaced(values[key] if is_local(values[key]) else f"./{values[key]}")


def texts_at(recipe: Any, *dotted_keys: str) -> Iterator[tuple[Any, Any]]:
    """Yield each text at these dotted keys of a recipe of any form, as the mapping or list that
    holds the text, and its key.
    """
    for dotted_key in dotted_keys:
        containers: list[Any] = [recipe]
        *parts, last = dotted_key.split(".")
        for part in parts:
            containers = [values[key] for values in containers for key in _keys(values, part)]
        for values in containers:
            yield from (
                (values, key) for key in _keys(values, last) if isinstance(values[key], str)
            )


def _keys(values: Any, part: str) -> list[Any]:
    """Return the keys or indices of `values` that one part of a dotted key matches."""
    if isinstance(values, Mapping):
        return [*values] if part == "*" else [part] if part in values else []
    return [*range(len(values))] if part == "*" and isinstance(values, list | tuple) else []


def _absolute_file(name: str, folder: Path) -> str:
    try:
        return str((folder / named_path(name)).resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise UserError(f"{name[:80]}: cannot be followed: {error}") from error


def _elsewhere(name: str) -> str:
    if _ADDRESS.match(name):
        # While a stranger's dataset is mined, no question and no key may go to an address that the
        # stranger chose.
        return f"{ELSEWHERE}{name}"
    return f"{ELSEWHERE}{without_folders(name)}" if is_local(name) else name


def _with_rows_of_a_file(recipe: LocatedMapping) -> LocatedMapping | None:
    """Return the generator section if it names a file of rows, otherwise None."""
    generator = recipe.get("generator")
    return (
        generator
        if isinstance(generator, LocatedMapping) and isinstance(generator.get("rows"), str)
        else None
    )


def _read_rows(path: Path, origin: Origin) -> LocatedMapping:
    table = f"generator.rows ({origin}): {_shown(path)}"
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise UserError(
            f"{table}: {error.strerror or error}; expected a CSV file, or a mapping of rows"
        ) from error
    return _located(read_rows_table(content, table), origin)


def _located(value: Any, origin: Origin) -> Any:
    """Return a value whose parts all have the origin `origin`."""
    if isinstance(value, dict):
        items = {key: _located(item, origin) for key, item in value.items()}
        return LocatedMapping(items, dict.fromkeys(items, origin))
    if isinstance(value, list):
        return LocatedList([_located(item, origin) for item in value], [origin] * len(value))
    return value
