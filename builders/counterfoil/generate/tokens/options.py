"""The options of `tokens`, for the command and the functions."""

from __future__ import annotations

from pathlib import Path

from counterfoil.options import OnDevices, argument, options
from counterfoil.plan.options import OfRecipe


@options
class TokenOptions(OfRecipe, OnDevices):
    """What `learn_tokens` takes."""

    out: str | Path = argument("--out", "-o", default_words="NAME-tokens")
    """Folder for the tokens."""


@options
class ImportOptions(OfRecipe):
    """What `tokens --import` takes. Each class of the recipe needs a file."""

    source: str | Path = argument("--import", metavar="PATH")
    """Import released {label}.bin tensors (ImageNet*) from a zip or folder."""
    out: str | Path = argument("--out", "-o")
    """The folder to write."""
