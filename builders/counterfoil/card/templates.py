"""Where the Jinja2 templates of cards and pages lie: in the installed package, or at the root of a checkout."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from counterfoil.errors import RunFailure


def templates_folder(template: str) -> Path:
    """The folder that holds this template. RunFailure when an installation lacks it."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_cards", package.parent.parent / "cards"):
        if (folder / template).is_file():
            return folder
    raise RunFailure(f"the template {template} is missing from this installation", hint="Install Counterfoil again.")
