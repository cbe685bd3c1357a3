"""Where recipes are: the bundled ones by bare name, others by path, a dataset directory's by its folder."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.recipe.names import LOCK, RECIPE, did_you_mean, nearest
from counterfoil.regular_files import named_path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def bundled_folder() -> Path:
    """The folder of bundled recipes: in the installed package, or at the root of a checkout."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_recipes", package.parent.parent / "recipes"):
        if folder.is_dir():
            return folder
    raise UserError("the bundled recipes are missing from this installation", hint="Install counterfoil again.")


def bundled_recipes() -> dict[str, Path]:
    """Bundled recipes by bare name, sorted."""
    return {path.stem: path for path in sorted(bundled_folder().glob("*.yaml"))}


def find_recipe(source: str | Path) -> Path:
    """The file of a recipe named by bare name, file, or dataset directory.

    A bare name (`wardrobe-mini`) always means the bundled recipe; a folder beside you is `./wardrobe-mini`.
    """
    if isinstance(source, str) and _BARE.fullmatch(source):
        known = bundled_recipes()
        if source in known:
            return known[source]
        if not named_path(source).exists():
            hint = f"Bundled recipes: {', '.join(known)}. A file is named by its path, as in ./{source}.yaml."
            raise UserError(f"no bundled recipe is called '{source}'{did_you_mean(source, known)}", hint=hint)
    return _existing(named_path(source))


def is_of_a_dataset(path: Path) -> bool:
    """Whether a recipe's file is the one that a dataset directory brings: only there lies a lock beside it."""
    return path.name == RECIPE and (path.parent / LOCK).exists()


def _existing(path: Path) -> Path:
    if path.is_dir():
        inside = path / RECIPE
        if inside.is_file():
            return inside
        raise UserError(f"{path}: a folder without {RECIPE}, expected a recipe or a dataset directory")
    if path.exists():
        return path
    folder = path.parent
    beside = [p.name for p in folder.glob("*.y*ml")] if folder.is_dir() else []
    close = nearest(path.name, beside)
    clause = f"; did you mean '{folder / close}'?" if close else ""
    raise UserError(f"{path}: no such recipe{clause}")
