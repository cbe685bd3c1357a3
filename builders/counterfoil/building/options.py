"""The options of `build` and of `build --from`, for the command and the functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.options import MACHINES, Limited, OnDevices, Overriding, argument, option, options

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


@options
class _Rendering(Overriding, OnDevices):
    """What the shards are made with."""

    allow_mixed: bool = False
    """Resume with other library versions or on another device. The card says so."""


@options
class WholeOptions(_Rendering, Limited):
    """What `build` takes for a whole dataset."""

    recipe: Recipe | str | Path = argument(metavar="RECIPE", default_words="none with --from")
    """A bundled recipe's name, a YAML file, or a dataset directory. Not with --from.

    In Python also a Recipe."""
    out: str | Path = argument("--out", "-o")
    """Directory of the dataset: new, empty, or one to resume."""


@options
class BuildOptions(WholeOptions):
    """What `build` takes."""

    shards: str | tuple[int, int] | None = option(None, MACHINES, metavar="K/N")
    """Build only part K of N, for example one part on each machine of a cluster. When all parts are
    done, run once without --shards to complete the dataset.

    In Python also (K, N). Other processes may build other parts at the same time. The dataset stays
    open until a build without `shards`, which makes the missing shards too."""


@options
class RegenerateOptions(_Rendering):
    """What `regenerate` takes."""

    source: str | Path = argument("--from", typed=str, metavar="DATASET")
    """Rebuild this dataset from its own recipe and lock: a directory, or USER/NAME[@REVISION]. To
    repair it, give the same directory as --out.

    Its own folders of models may be elsewhere now: `overrides` says where."""
    out: str | Path = argument("--out", "-o")
    """The directory to write."""
