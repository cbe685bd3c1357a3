"""`init`: read a dataset of one's own, propose a recipe for it, and write that down for a person to go on with."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_device
from counterfoil.models.names import LAB
from counterfoil.recipe import Recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.recipe.names import dataset_name_problem, derived_name, is_local
from counterfoil.regular_files import named_path
from counterfoil.sources import Reference
from counterfoil.sources.resolved_classes import resolve_classes
from counterfoil.starting.corrupt_recipe import TOLD, corrupt_recipe_text
from counterfoil.starting.found_data import FoundData, Wanted, find_data
from counterfoil.starting.proposed_models import proposed_models
from counterfoil.starting.written_recipe import Naming, recipe_text
from counterfoil.store.atomic import write_atomically

RECIPE = "recipe.yaml"
# As bundled recipes are called after what they shift: pets-star, and ImageNet* in the paper.
_DRAWN, _CORRUPTED = "star", "corrupt"


@dataclass(frozen=True, slots=True)
class InitResult:
    """What was written and found: images of each class by split (None where they are not counted), what should be said
    of the data (`notes`), why these models (`models`), and the commands that come next."""

    path: Path
    recipe: Recipe
    images: Mapping[str, Mapping[str, int] | None]
    rows: Mapping[str, int | None]
    notes: tuple[str, ...]
    models: str
    commands: tuple[str, ...]


def init(
    source: str | Path,
    out: str | Path = RECIPE,
    *,
    name: str | None = None,
    config: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    train_split: str | None = None,
    validation_split: str | None = None,
    generator: str | None = None,
    clip: str | None = None,
    device: str = "auto",
    force: bool = False,
) -> InitResult:
    """Propose a recipe for a dataset and write it to `out`: its classes, a base and shifts, models, thresholds.

    Without a GPU, and where no `generator` and no `clip` is named, shifts are known changes of its own images.

    `source` is a folder of class folders (in folders of splits or not), of Parquet files or as `datasets` saves it, or
    `user/name` of the Hub. What is not named is found where it can be told. `generator` and `clip` (ARCH/TAG of
    open_clip, or a model's name) default to what the machine can run. Nothing is rendered and no model loaded.

    UserError for data that cannot be used, and for a file that is there, unless `force`; RunFailure without network.
    """
    wanted = Wanted(config, image_column, label_column, train_split, validation_split)
    path = named_path(out)
    _refuse_there(path, force)
    if name is not None:
        _refuse_name(name)
    device = resolve_device(device)
    corrupts = device == "cpu" and generator is None and clip is None
    models = None if corrupts else proposed_models(device, generator, clip)
    found = find_data(source, replace(wanted, drawn=not corrupts))
    dataset = name or _dataset_name(found.reference, _CORRUPTED if corrupts else _DRAWN)
    naming = Naming(dataset, _from(path, found.reference))
    text = corrupt_recipe_text(found, naming) if models is None else recipe_text(found, models, naming)
    recipe = _validated(text, path, found)
    _write(path, text)
    return InitResult(
        path=path,
        recipe=recipe,
        images={each.name: each.images for each in found.classes},
        rows=found.rows,
        notes=_with_repeated(found),
        models=TOLD if models is None else models.told,
        commands=_commands(path, dataset, cut=not corrupts),
    )


def _validated(text: str, path: Path, found: FoundData) -> Recipe:
    """The recipe that was written, as every command reads it; its labels are those that were found."""
    recipe = load_recipe_text(text, [f"source.dataset={json.dumps(found.reference.dataset)}"], place=str(path))
    recipe = resolve_classes(recipe, names=found.labels)
    told = [(each.name, each.source_label) for each in recipe.classes]
    if told != [(each.name, each.source_label) for each in found.classes]:
        raise RunFailure(f"{path}: the classes that were written are not those of the data")
    return recipe


def _refuse_there(path: Path, force: bool) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected the file to write", f"For example: --out {path / RECIPE}")
    if path.exists() and not force:
        raise UserError(
            f"{path} is there already and may hold your changes", "Name another by --out, or write over it by --force."
        )


def _refuse_name(name: str) -> None:
    problem = dataset_name_problem(name)
    if problem is not None:
        raise UserError(f"--name: {problem}")


def _dataset_name(reference: Reference, suffix: str) -> str:
    last = reference.dataset.removeprefix(LAB).rstrip("/").rpartition("/")[2]
    return derived_name(re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-_") or "photos", suffix)


def _from(path: Path, reference: Reference) -> str:
    """How a recipe at `path` names the dataset: a folder below the recipe's own by its way from there."""
    if not is_local(reference.dataset):
        return reference.dataset
    folder, home = Path(reference.dataset), path.resolve().parent
    if folder != home and folder.is_relative_to(home):
        return f"./{folder.relative_to(home).as_posix()}"
    return str(folder)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be made: {error.strerror or error}") from error
    write_atomically(path, text.encode())


def _with_repeated(found: FoundData) -> tuple[str, ...]:
    """The notes, and one of classes whose names are said alike."""
    names = [each.name.casefold() for each in found.classes]
    alike = sorted({each.name for each in found.classes if names.count(each.name.casefold()) > 1})
    if not alike:
        return found.notes
    return (*found.notes, f"several classes are called alike: {', '.join(alike[:10])}")


def _commands(path: Path, dataset: str, *, cut: bool) -> tuple[str, ...]:
    # A bare word would mean a bundled recipe.
    written = str(path) if path.suffix or len(path.parts) > 1 else f"{os.curdir}/{path}"
    recipe, folder = shlex.quote(written), shlex.quote(dataset)
    if not cut:
        return (
            f"counterfoil check {recipe}",
            f"counterfoil build {recipe} --out {folder}",
            f"counterfoil evaluate {folder} --models YOUR-MODEL",
        )
    return (
        f"counterfoil check {recipe}",
        f"counterfoil build {recipe} --out {folder}",
        f"counterfoil calibrate {folder} --open",
        f"counterfoil calibrate {folder} --apply cut.yaml --out {folder}-cut",
        f"counterfoil review {folder}-cut",
        f"counterfoil evaluate {folder}-cut --models YOUR-MODEL",
    )
