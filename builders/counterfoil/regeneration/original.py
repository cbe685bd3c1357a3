"""A dataset as it tells itself: recipe, lock, thresholds and tokens, each proved before anything is made from them.

The input dataset takes no part: thresholds stand as numbers in the directory, and tokens as vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from counterfoil.building.chosen_rows import loadable_pool, rows_file
from counterfoil.building.inputs import Inputs, measured_thresholds
from counterfoil.building.judges import pin_judges
from counterfoil.errors import RunFailure, UserError
from counterfoil.models import local_folder
from counterfoil.models.names import COMMIT, LOCAL, folder_sha256
from counterfoil.recipe import Recipe, dump_recipe, load_own_recipe, plan_inputs, screen_inputs, sha256_json
from counterfoil.recipe.layering import without_folders
from counterfoil.screen.thresholds import Thresholds, resolve_thresholds
from counterfoil.store.differences import differences
from counterfoil.store.layout import LOCK, MANIFEST, RECIPE, ROWS, THRESHOLDS, TOKENS
from counterfoil.store.lock import HASHES, Lock, read_lock
from counterfoil.store.manifest import Entry, read_manifest
from counterfoil.store.reading import no_dataset
from counterfoil.tokens.class_tokens import ClassTokens, read_token_folder
from counterfoil.tokens.token_files import token_file_name

# What making a dataset again needs of a published one, and comparing with it.
WANTED = (RECIPE, LOCK, THRESHOLDS, MANIFEST, f"{TOKENS}/**", "receipts/**", ROWS)

_RESTORE = "These cannot be made again: restore them from a copy, such as the published dataset."


@dataclass(frozen=True, slots=True)
class Original:
    """What a dataset is made again from. `listed` are its manifest's files; empty where it has no sound manifest."""

    directory: Path
    recipe: Recipe
    recipe_yaml: str
    lock: Lock
    inputs: Inputs
    listed: Mapping[str, Entry]


def read_original(directory: Path, overrides: Sequence[str] = ()) -> Original:
    """The original in a directory, with `a.b=c` overrides that change no image and no row of it.

    UserError where there is no dataset, or an override would make another; RunFailure, with every damaged file, when
    one of those that cannot be made again is not as the lock or the manifest says.
    """
    lock = read_lock(directory)
    if lock is None:
        raise no_dataset(directory)
    listed = read_manifest(directory) or {}
    problems = [*_changed(directory, listed), *wrong_lock(lock)]
    if problems:
        raise RunFailure([f"{directory}: {problem}" for problem in dict.fromkeys(problems)], _RESTORE)
    own = _own_recipe(directory, lock)
    thresholds, tokens = _thresholds(directory, own, lock), _tokens(directory, own, lock)
    recipe = _overridden(directory, own, lock, overrides)
    text = (directory / RECIPE).read_text(encoding="utf-8")
    portable = dump_recipe(recipe, portable=True)
    return Original(
        directory=directory,
        recipe=recipe,
        recipe_yaml=text if portable == dump_recipe(own, portable=True) else portable,
        lock=lock,
        inputs=Inputs(lock.inputs, thresholds, tokens, rows_file(recipe)),
        listed=listed,
    )


def refuse_other_models(recipe: Recipe, lock: Lock) -> None:
    """UserError when a model that lies in a folder is not here, or has other content than the lock pins.

    Models of the Hub need no look: their pinned commits are what is loaded.
    """
    pins = lock.inputs["models"]
    problems: list[str] = []
    if recipe.generator.kind == "diffusers":
        problems += _wrong_model("generator.model", recipe.generator.model, pins["generator"])
    elif (pin := loadable_pool(recipe, lock.inputs.get("pool"))).document() != lock.inputs.get("pool"):
        problems.append(f"generator.dataset: {pin.dataset} is not the pool that {LOCK} pins")
    if recipe.screen.weights is None:  # else the name is one of open_clip's own
        problems += _wrong_model("screen.model", recipe.screen.model, pins["screen"])
    if not problems and recipe.judges and pin_judges(recipe) != lock.inputs.get("judges"):
        problems.append(f"screen.keep: the judges are not those that {LOCK} pins")
    if problems:
        raise UserError(
            problems,
            "The same weights must lie there; another model makes another dataset: `counterfoil build RECIPE`.",
        )


def _changed(directory: Path, listed: Mapping[str, Entry]) -> Iterator[str]:
    """The files that cannot be made again, against the manifest."""
    for path, entry in listed.items():
        if path in (RECIPE, LOCK, THRESHOLDS, ROWS) or PurePosixPath(path).parent == PurePosixPath(TOKENS):
            file = directory / path
            if not file.is_file():
                yield f"{path} is missing"
            elif hashlib.sha256(file.read_bytes()).hexdigest() != entry.sha256:
                yield f"{path} is not as {MANIFEST} lists it"


def wrong_lock(lock: Lock) -> Iterator[str]:
    """The lock against itself: each hash is over a document beside it, and models are pinned as a build pins them."""
    if any(lock.hashes.get(name) != sha256_json(getattr(lock, name)) for name in HASHES):
        yield f"{LOCK} is changed: its hashes are not those of what it holds"
    try:
        parts = ("screen",) if "pool" in lock.inputs else ("generator", "screen")
        pins = [lock.inputs["models"][part] for part in parts]
        commits, contents = ([pin[key] for pin in pins] for key in ("revision", "sha256"))
        whole = all(commit is None or COMMIT.fullmatch(commit) for commit in commits)
        whole &= all(isinstance(content, str | None) for content in contents)
        whole &= isinstance(lock.inputs["tokens"], Mapping | None)
        whole &= isinstance(lock.inputs.get("judges", {}), Mapping)
    except (KeyError, TypeError):
        whole = False
    if not whole:
        yield f"{LOCK} does not pin models and tokens as a build does"


def _own_recipe(directory: Path, lock: Lock) -> Recipe:
    path = directory / RECIPE
    if not path.is_file():
        raise RunFailure(f"{directory}: {RECIPE} is missing", _RESTORE)
    try:
        recipe = load_own_recipe(directory)
    except UserError as error:
        raise RunFailure([f"{path} cannot be read:", *(f"  {line}" for line in error.problems)], _RESTORE) from error
    lines = _other_hashes(recipe, lock)
    if lines:
        raise RunFailure(
            [f"{path} is not the recipe that the dataset was built with:", *(f"  {line}" for line in lines)], _RESTORE
        )
    return recipe


def _other_hashes(recipe: Recipe, lock: Lock) -> list[str]:
    """How the documents of a recipe's two hashes differ from those in the lock; none where the hashes are equal."""
    lines: list[str] = []
    for name, document, there in (
        ("plan", plan_inputs(recipe), lock.plan),
        ("screen", screen_inputs(recipe), lock.screen),
    ):
        if sha256_json(document) != lock.hashes[name]:
            lines += differences(there, document) or [f"{name}: another hash"]
    return lines


def _overridden(directory: Path, own: Recipe, lock: Lock, overrides: Sequence[str]) -> Recipe:
    if not overrides:
        return own
    recipe = load_own_recipe(directory, overrides)
    lines = _other_hashes(recipe, lock)
    # These make no image here, but the recipe would no longer say where the thresholds and the tokens come from.
    for section in ("source", TOKENS):
        before, after = (getattr(each, section) for each in (own, recipe))
        lines += differences(_portable(before), _portable(after), section)
    if lines:
        raise UserError(
            ["--set would make another dataset than the one to be made again:", *(f"  {line}" for line in lines)],
            "--set may say where a folder lies now, or change words of the card. For another dataset build its recipe:"
            f" counterfoil build {directory} --set … --out NEW",
        )
    return recipe


def _portable(section: Any) -> Any:
    values = None if section is None else section.model_dump(mode="json")
    for key in ("dataset", "path"):
        if values and isinstance(values.get(key), str):
            values[key] = without_folders(values[key])
    return values


def _thresholds(directory: Path, recipe: Recipe, lock: Lock) -> Thresholds:
    path = directory / THRESHOLDS
    measured = measured_thresholds(directory, lock) if path.is_file() else None
    try:
        thresholds = None if measured is None else resolve_thresholds(recipe, None, measured)
    except ValueError:
        thresholds = None
    if thresholds is None or thresholds.content() != path.read_bytes():
        raise RunFailure(f"{path} is missing, or not as {LOCK} and {RECIPE} say", _RESTORE)
    return thresholds


def _tokens(directory: Path, recipe: Recipe, lock: Lock) -> ClassTokens | None:
    pins = lock.inputs["tokens"]
    if recipe.tokens is None:
        return None
    problems = []
    for cls in recipe.classes:
        path = directory / TOKENS / token_file_name(cls.id)
        if not path.is_file():
            problems.append(f"{path} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != (pins or {}).get(cls.id):
            problems.append(f"{path} is not as {LOCK} pins it")
    if problems:
        raise RunFailure(problems, _RESTORE)
    return read_token_folder(recipe, directory / TOKENS)


def _wrong_model(key: str, name: str, pin: Mapping[str, Any]) -> Iterator[str]:
    """A folder that is not here or has other content, a model of the Hub whose commit is not known."""
    try:
        folder = local_folder(name)
    except UserError as error:
        plain = without_folders(name)
        scheme = LOCAL if plain.startswith(LOCAL) else ""
        place = f"{scheme}/PATH/{Path(plain.removeprefix(LOCAL)).name}"
        yield f"{key}: {'; '.join(error.problems)}; say where it lies, as in --set {key}={place}"
        return
    found = None if folder is None else folder_sha256(folder)
    if folder is None and pin["revision"] is None:
        yield f"{key}: {LOCK} has no commit of {name}, so nothing tells which it was"
    elif found != pin["sha256"]:
        yield f"{key}: {name} has sha256 {found}, and {LOCK} pins {pin['sha256']}"
