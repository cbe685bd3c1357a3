"""The options of `verify`, for the command and the function."""

from __future__ import annotations

from pathlib import Path

from counterfoil.options import Overriding, argument, option, options


@options
class VerifyOptions(Overriding):
    """What `verify` takes."""

    source: str | Path = argument(typed=str, metavar="DATASET")
    """A dataset directory, or user/name[@revision]."""
    rerender: int = option(0, least=0, metavar="N")
    """Re-render N random rows and compare the images."""
    seed: int = option(0, least=0)
    """Seed for the choice of rows."""
    device: str = "auto"
    """Device for --rerender: auto, cpu, cuda, cuda:1 …"""
