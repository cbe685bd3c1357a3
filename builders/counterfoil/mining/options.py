"""The options of `mine`, for the command and the functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from counterfoil.options import (
    DATA,
    MACHINES,
    MODELS,
    Overriding,
    argument,
    in_python,
    option,
    options,
)
from counterfoil.plan.options import OfRecipe

if TYPE_CHECKING:
    from counterfoil.models.classifiers.of_python import Transform
    from counterfoil.recipe import Recipe

# One model, in any form that `evaluate` takes.
TargetModel: TypeAlias = "str | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any] | str]"
_POOL = "More to learn from"
_EARLIER = "In the folder of an earlier run"


@options
class _OnDevice:
    device: str = option("auto", MODELS)
    """Where to compute: auto, cpu, cuda, cuda:1 …"""
    workers: int | None = option(None, MACHINES, least=1)
    """Processes for fitting and for rendering."""


@options
class MineOptions(OfRecipe, _OnDevice):
    """What `mine` takes. The recipe's section `mine` says what is audited, on which images, and
    how."""

    out: str | Path = argument("--out", "-o")
    """Folder for the findings, the report and the recipe."""
    method: str | None = option(None, key="mine.method")
    target: TargetModel | None = option(
        None,
        None,
        "--target",
        "-t",
        metavar="MODEL",
        key="mine.target",
    )
    """

    In Python also a callable, or a mapping from one name to a callable. A callable runs in this
    process and only sees existing images."""
    on: Sequence[str] | None = option(None, metavar="SPLIT|DATASET", key="mine.on")
    """Repeatable."""
    confirm: str | None = option(None, MODELS, metavar="rows|rendered|both", key="mine.confirm")
    limit: int | None = option(None, DATA, least=1, metavar="N", key="mine.limit")
    pool: str | None = option(None, _POOL, metavar="SPLIT|FOLDER|DATASET")
    """Also choose the hardest rows of a pool of images and write them as a recipe (pool.yaml). The
    pool is a split of the recipe's source, a folder, or a dataset on the Hub."""
    pool_rows: int | None = option(None, _POOL, least=1, metavar="K")
    """Rows of the pool per class, at most. Default: 50."""
    pool_labels: str | None = option(None, _POOL, metavar="COLUMN|predicted")
    """Where the pool's classes come from: a column, or the target's predictions. Default: its label
    column."""
    weights: bool = option(False, _POOL)
    """Also write weights for the train split's rows (weights.parquet): 2 for hard ones, else 1."""
    overrides: Sequence[str] = option((), MODELS, "--set", metavar="KEY=VALUE")
    """Change a value of the recipe, as in samples.candidates=5; null removes it. Repeatable.

    The written recipe keeps the changes."""
    transform: Transform | Mapping[str, Transform] | None = in_python()
    """Prepares each PIL image for a callable."""


@options
class TryOptions(_OnDevice):
    """What `try_descriptions` takes."""

    folder: str | Path = argument(metavar="RECIPE")
    """The folder of an earlier run of the method `bugs`."""
    texts: Sequence[str] = argument("--try", panel=_EARLIER, metavar="WORDS")
    """Give the folder of an earlier run of --method bugs as RECIPE, and test a description of your
    own (repeatable) for the class that --class names.

    Captions ("a sandal in the snow"), or only what they add to the class ("in the snow")."""
    class_name: str = argument("--class", panel=_EARLIER, metavar="CLASS")
    """The class for --try: its name or id."""


@options
class AgainOptions(Overriding, _OnDevice):
    """What `mine_again` takes."""

    folder: str | Path = argument(metavar="RECIPE")
    """The folder of an earlier run of the method `bugs`."""
    recipe: Recipe | str | Path = argument("--again", panel=_EARLIER, metavar="RECIPE2")
    """Give the folder of an earlier run of --method bugs as RECIPE, and test its confirmed findings
    once more on images that RECIPE2 renders; with --on, on images of that recipe's source.

    RECIPE2 has another generator, other tokens or another screen."""
    on: Sequence[str] | None = option(None, metavar="SPLIT|DATASET")
    """Test on existing images instead: splits of that recipe's source, or one built dataset."""
