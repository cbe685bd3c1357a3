"""The options of commands about recipes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.options import Overriding, argument, option, options

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


@options
class OfRecipe(Overriding):
    """A recipe, and changes of it."""

    recipe: Recipe | str | Path = argument(metavar="RECIPE")
    """A bundled recipe's name, a YAML file, or a dataset directory.

    In Python also a Recipe."""


@options
class CheckOptions(OfRecipe):
    """What `check` takes."""

    rate: float | None = option(None, least=1e-6)
    """Images per second, for the time estimate."""
    copies: int | None = option(None, least=0, metavar="N")
    """Images of each split to compare, to find test images that are copies of training images; 0:
    none. Default: 10,000, or fewer large ones."""
