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
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from counterfoil.errors import ProblemLine, UserError, nearest_name
from counterfoil.recipe.keep.rule import FIRST_ROWS
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import (
    _ADDRESS,
    _LOCAL,
    ELSEWHERE,
    EMBEDDINGS,
    LOCK,
    RECIPE,
    ROWS,
    TOKENS,
    chat_parts,
    did_you_mean,
    is_local,
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
    copied,
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
    raise UserError(message("broken-installation"), hint="Install counterfoil again.")


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
            near = did_you_mean(source, known)
            raise UserError(message("file-not-found.bundled", found=source, hint=near), hint=hint)
    path = named_path(source)
    if path.is_dir():
        inside = path / RECIPE
        if inside.is_file():
            return inside
        raise UserError(message("file-not-found.in-folder").at(str(path)))
    if path.exists():
        return path
    neighbours: list[str] = []
    if path.parent.is_dir():
        neighbours = [file.name for file in path.parent.glob("*.y*ml")]
    close = nearest_name(path.name, neighbours)
    near = f"; did you mean '{path.parent / close}'?" if close else ""
    raise UserError(message("file-not-found", hint=near).at(str(path)))


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
    listed = recipe.section("source").get("classes")
    if isinstance(listed, LocatedList):
        for index, origin in enumerate(listed.origins):
            listed[index] = _class(listed[index], origin)
    prompts = recipe.section("prompts")
    _prompt(prompts, "base")
    shifts = prompts.section("shifts")
    for name in shifts:
        _prompt(shifts, name)


def _class(entry: Any, origin: Origin) -> Any:
    if isinstance(entry, str):
        entry = LocatedMapping({"name": entry}, {"name": origin})
    if not isinstance(entry, LocatedMapping) or entry.get("id") is not None:
        return entry
    name = entry.get("name")
    slug = class_slug(name) if isinstance(name, str) else ""
    if slug:
        entry["id"] = slug
        entry.origins["id"] = entry.origins["name"]
    return entry


def _prompt(specs: LocatedMapping, name: str) -> None:
    prompt = specs.get(name)
    if isinstance(prompt, str):
        specs[name] = LocatedMapping({"prompt": prompt}, {"prompt": specs.origins[name]})


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
# Keys of the models that keep rules ask, and of their servers.
KEEP_ASKED = ("keep.*.model", "keep.*.*.model", "keep.*.base_url", "keep.*.*.base_url")
# Keys whose values are names that may be folders.
_NAMES = (
    "source.dataset",
    "tokens.path",
    "generator.model",
    "generator.adapter",
    "generator.lora.*.path",
    "generator.dataset",
    "generator.captioner",
    "generator.clip.model",
    "screen.model",
    "screen.judge",
    "evaluate.models.*",
    "mine.target",
    "mine.on.*",
    "mine.others.*",
    "mine.settings.captions",
    "mine.settings.captioner",
    "mine.settings.contexts",
    "mine.settings.seeds.*",
    "mine.settings.pooled.*",
    "mine.settings.chat.model",
    "mine.settings.chat.base_url",
    *(f"screen.{models}" for models in (*KEEP_JUDGES, *KEEP_ASKED)),
    *(f"prompts.shifts.*.{models}" for models in (*KEEP_JUDGES, *KEEP_ASKED)),
)
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


def read_layers(path: Path, above: tuple[Path, ...] = ()) -> Layers:
    """Return the recipe of a file merged over everything that it extends. A dataset's own recipe
    extends nothing.

    above: the files that extend this one, the uppermost first. UserError for a circle or a long
    chain of them.
    """
    if is_of_a_dataset(path):
        return Layers(own_layers(text_of(path), _shown(path), path.parent))
    real = path.resolve()
    if real in above:
        circle = [*above[above.index(real) :], real]
        chain = " -> ".join(_shown(step) for step in circle)
        raise UserError(message("invalid-extends.circle", chain=chain).at(_shown(real)))
    if len(above) == _LONGEST_CHAIN:
        raise UserError(message("invalid-extends.chain", most=_LONGEST_CHAIN).at(_shown(real)))
    return text_layers(text_of(path), _shown(path), real.parent, (*above, real))


def own_layers(text: str, shown_name: str, dataset: Path) -> LocatedMapping:
    """Return a dataset's own recipe. Its folders become names of another machine.

    Raise UserError if the recipe extends another, lists no classes, or names a file outside the
    dataset.
    """
    recipe = _read_mapping(text, shown_name)
    spell_out(recipe)
    problems: list[ProblemLine] = []
    if recipe.get(EXTENDS) is not None:
        problem = message("not-in-a-dataset.extends")
        problems.append(problem.at(EXTENDS, recipe.origins[EXTENDS]))
    source = recipe.get("source")
    if isinstance(source, LocatedMapping):
        classes = source.get("classes")
        origin = source.origins.get("classes", shown_name)
        if isinstance(classes, str):
            problem = message("not-in-a-dataset.classes")
            problems.append(problem.at("source.classes", origin))
        elif not names_every_label(classes):
            problem = message("not-in-a-dataset.labels")
            problems.append(problem.at("source.classes", origin))
    generator = _with_rows_of_a_file(recipe)
    if generator is not None and generator["rows"] != OWN_ROWS:
        problem = message("not-in-a-dataset", what="rows", expected=OWN_ROWS)
        problems.append(problem.at("generator.rows", generator.origins["rows"]))
    embeddings: list[LocatedMapping] = []
    for path, spec in embedding_specs(recipe):
        if not isinstance(spec, LocatedMapping):
            continue
        embeddings.append(spec)
        if spec.get("file") not in (None, OWN_EMBEDDINGS):
            problem = message("not-in-a-dataset", what="embeddings", expected=OWN_EMBEDDINGS)
            problems.append(problem.at(f"{'.'.join(path)}.file", spec.origins["file"]))
    if problems:
        raise UserError(
            problems,
            "A dataset's recipe is what `counterfoil build` wrote: restore it from a copy.",
        )
    recipe.section("output").setdefault("row_version", FIRST_ROWS)
    tokens = recipe.section("tokens")
    brings_tokens = tokens.get("path") == OWN_TOKENS
    replace_names(recipe, _elsewhere)
    if generator is not None:
        generator["rows"] = _read_rows(dataset / OWN_ROWS, generator.origins["rows"])
    if brings_tokens:
        tokens["path"] = str(dataset.resolve() / OWN_TOKENS)
    for spec in embeddings:
        if spec.get("file") == OWN_EMBEDDINGS:
            spec["file"] = str(dataset.resolve() / OWN_EMBEDDINGS)
    return recipe


def lay_over(
    lower: LocatedMapping,
    upper: LocatedMapping,
    path: tuple[str, ...] = (),
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
        if isinstance(value, LocatedMapping):
            names_classes = key == "object_threshold" and set(value) == {"classes"}
            if names_classes and isinstance(below, int | float) and not isinstance(below, bool):
                # Expand a bare number into a mapping, so that thresholds of classes can be merged
                # over it.
                below = LocatedMapping({"value": below}, {"value": merged.origins[key]})
            key_path = (*path, key)
            drops = key_path == ("prompts", "shifts") and not value
            if isinstance(below, LocatedMapping) and not drops:
                value = lay_over(below, value, key_path)
        merged[key] = value
        merged.origins[key] = upper.origins[key]
    return merged


def with_overrides(recipe: LocatedMapping, overrides: Sequence[str]) -> LocatedMapping:
    """Return the recipe with each `a.b=c` merged over it in turn. c is YAML; paths in c are
    relative to the working directory.
    """
    problems: list[str] = []
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = key.strip().split(".")
        begins = f"--set {override[:200]}"
        if not equals or not all(parts):
            problems.append(message("invalid-override").at(begins))
            continue
        if len(parts) > DEEPEST:
            problem = message("too-large.override", found=len(parts), most=DEEPEST)
            problems.append(problem.at(f"{begins}…"))
            continue
        option = f"--set {override}"
        if len(override) > _LONGEST_SHOWN:
            option = f"--set {override[:_LONGEST_SHOWN]}…"
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
        problem = message("unreadable-file.encoding", byte=error.start)
        raise UserError(problem.at(_shown(path))) from error
    except OSError as error:
        problem = message("unreadable-file", reason=error.strerror)
        raise UserError(problem.at(_shown(path))) from error


def _read_mapping(text: str, shown_name: str) -> LocatedMapping:
    recipe = read_yaml(text, shown_name)
    if not isinstance(recipe, LocatedMapping):
        kind = "a list" if isinstance(recipe, list) else repr(recipe)[:60]
        raise UserError(message("wrong-type.recipe", found=kind).at(shown_name))
    return recipe


def text_layers(
    text: str,
    shown_name: str,
    folder: Path,
    above: tuple[Path, ...] = (),
) -> Layers:
    """Read the layers of a recipe's text. Paths are relative to `folder`, and `above` lists the
    files that extend this text.
    """
    recipe = _read_mapping(text, shown_name)
    _resolve_paths(recipe, folder)
    origin = recipe.origins.pop(EXTENDS, None)
    sealed = recipe.origins.pop(EXTENDS_SHA256, None)
    parent = recipe.pop(EXTENDS, None)
    sha256 = recipe.pop(EXTENDS_SHA256, None)
    if sha256 is not None:
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            problem = message("invalid-extends.sha256", found=str(sha256)[:80])
            raise UserError(problem.at(EXTENDS_SHA256, sealed))
        if parent is None:
            raise UserError(message("invalid-extends.alone").at(EXTENDS_SHA256, sealed))
    if parent is None:
        return Layers(recipe)
    if not isinstance(parent, str):
        raise UserError(message("invalid-extends").at(EXTENDS, origin))
    is_path = "/" in parent or "." in parent
    try:
        lower_path = find_recipe(folder / named_path(parent) if is_path else parent)
    except UserError as error:
        problems = [problem.at(EXTENDS, origin) for problem in error.problems]
        raise UserError(problems, error.hint) from error
    lower = read_layers(lower_path, above)
    seals = lower.seals
    if sha256 is not None and sealed is not None:
        below = _with_classes_of(lower.laid, recipe)
        seals += (Seal(parent, sha256, sealed, below),)
    return Layers(lay_over(lower.laid, recipe), seals)


def _with_classes_of(lower: LocatedMapping, upper: LocatedMapping) -> LocatedMapping:
    """Return the lower recipe with the layer's classes, if the lower recipe leaves its classes to
    the source."""
    below = lower.get("source")
    above = upper.get("source")
    if not isinstance(below, LocatedMapping) or not isinstance(above, LocatedMapping):
        return lower
    given = below.get("classes")
    resolved = above.get("classes")
    if names_every_label(given) or not isinstance(resolved, LocatedList):
        return lower
    if not same_classes(given, resolved):
        return lower
    classes = LocatedMapping({"classes": resolved}, above.origins)
    return lay_over(lower, LocatedMapping({"source": classes}, upper.origins))


def _shown(path: Path) -> str:
    absolute = path.resolve()
    folder = Path.cwd()
    if absolute.is_relative_to(folder):
        absolute = absolute.relative_to(folder)
    return str(absolute)


def _resolve_paths(recipe: LocatedMapping, folder: Path) -> None:
    """Make the paths of one file's recipe absolute, and read the file of classes if the recipe
    names one."""

    def absolute(name: str) -> str:
        match = _LOCAL.fullmatch(name)
        if match is None:
            return name
        scheme = match["scheme"] or ""
        return f"{scheme}{_absolute_file(match['path'], folder)}"

    replace_names(recipe, absolute)
    source = recipe.section("source")
    classes = source.get("classes")
    if isinstance(classes, str):
        path = folder / named_path(classes)
        origin = source.origins["classes"]
        if not path.exists():
            problem = message("file-not-found.classes", found=path)
            raise UserError(problem.at("source.classes", origin))
        source["classes"] = copied(_read_classes(text_of(path), _shown(path)))
        if not isinstance(source["classes"], LocatedList):
            problem = message("wrong-type.classes", found=_shown(path))
            raise UserError(problem.at("source.classes", origin))
    spell_out(recipe)
    for _, spec in embedding_specs(recipe):
        if isinstance(spec, LocatedMapping) and isinstance(spec.get("file"), str):
            spec["file"] = _absolute_file(spec["file"], folder)
    generator = _with_rows_of_a_file(recipe)
    if generator is not None:
        path = folder / named_path(generator["rows"])
        generator["rows"] = _read_rows(path, generator.origins["rows"])


@lru_cache(maxsize=4)
def _read_classes(text: str, shown_name: str) -> Any:
    """Read a file of classes once, because the thousand of ImageNet are most of the time that their
    recipes take. Recipes get copies of the value."""
    return read_yaml(text, shown_name)


def replace_names(recipe: dict[str, Any], replaced: Callable[[str], str]) -> None:
    """Replace every name in a recipe that may be a folder."""
    for values, key in texts_at(recipe, *_NAMES):
        values[key] = replaced(values[key])
    for values, key in texts_at(recipe, *_PATHS):
        name = values[key]
        if name:
            values[key] = replaced(name if is_local(name) else f"./{name}")


def texts_at(recipe: Any, *dotted_keys: str) -> Iterator[tuple[Any, Any]]:
    """Yield each text at these dotted keys of a recipe of any form, as the mapping or list that
    holds the text, and its key.
    """
    for dotted_key in dotted_keys:
        containers: list[Any] = [recipe]
        *parts, last = dotted_key.split(".")
        for part in parts:
            inside: list[Any] = []
            for values in containers:
                inside += [values[key] for key in _keys(values, part)]
            containers = inside
        for values in containers:
            for key in _keys(values, last):
                if isinstance(values[key], str):
                    yield values, key


def _keys(values: Any, part: str) -> list[Any]:
    """Return the keys or indices of `values` that one part of a dotted key matches."""
    if isinstance(values, Mapping):
        if part == "*":
            return [*values]
        return [part] if part in values else []
    if part == "*" and isinstance(values, list | tuple):
        return [*range(len(values))]
    return []


def _absolute_file(name: str, folder: Path) -> str:
    try:
        return str((folder / named_path(name)).resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise UserError(message("unreadable-file.link", reason=error).at(name[:80])) from error


def _elsewhere(name: str) -> str:
    if _ADDRESS.match(name) or chat_parts(name)[1] is not None:
        # While a stranger's dataset is mined, no question and no key may go to an address that the
        # stranger chose.
        return f"{ELSEWHERE}{name}"
    return f"{ELSEWHERE}{without_folders(name)}" if is_local(name) else name


def _with_rows_of_a_file(recipe: LocatedMapping) -> LocatedMapping | None:
    """Return the generator section if it names a file of rows, otherwise None."""
    generator = recipe.section("generator")
    return generator if isinstance(generator.get("rows"), str) else None


def _read_rows(path: Path, origin: Origin) -> LocatedMapping:
    table = f"generator.rows ({origin}): {_shown(path)}"
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        problem = message("unreadable-file.rows", reason=error.strerror or error)
        raise UserError(problem.at(table)) from error
    return _located(read_rows_table(content, table), origin)


def _located(value: Any, origin: Origin) -> Any:
    """Return a value whose parts all have the origin `origin`."""
    if isinstance(value, dict):
        entries = {key: _located(item, origin) for key, item in value.items()}
        return LocatedMapping(entries, dict.fromkeys(entries, origin))
    if isinstance(value, list):
        items = [_located(item, origin) for item in value]
        return LocatedList(items, [origin] * len(value))
    return value
