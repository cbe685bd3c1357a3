"""Whether a model that a recipe names is here, and is the one that a dataset's lock pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models import local_folder
from counterfoil.models.names import LOCAL, folder_sha256
from counterfoil.recipe.names import without_folders
from counterfoil.store.layout import LOCK


def wrong_model(key: str, name: str, pin: Mapping[str, Any]) -> Iterator[str]:
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
        here = f"sha256 {found}" if found else "a name of the Hub"
        there = f"sha256 {pin['sha256']}" if pin["sha256"] else f"commit {pin['revision']} of the Hub"
        yield f"{key}: '{name}' is not the one that {LOCK} pins: found {here}, expected {there}"
