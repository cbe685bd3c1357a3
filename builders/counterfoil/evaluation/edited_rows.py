"""Which rows of which pool the images of a built dataset are made from, so that two such sets can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.mended import EditsOf
from counterfoil.recipe import Recipe, sha256_json
from counterfoil.recipe.schema_inputs import ROW
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import Pool
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm


def edits_of(directory: Path, recipe: Recipe, pins: Mapping[str, Any], keys: Sequence[str]) -> EditsOf | None:
    """The rows that the images of these keys are edits of; None where they are no edits."""
    if not recipe.generator.alters_rows:
        return None
    rows = sorted(set(rows_in_pool(directory, recipe, keys)))
    return EditsOf(_pool_called(recipe, pins.get("pool")), recipe.generator.split, tuple(rows))


def rows_in_pool(directory: Path, recipe: Recipe, keys: Sequence[str]) -> list[int]:
    """The row of the pool that each of some images is, or is an edit of.

    UserError where the dataset does not tell it of each; ValueError where no pool has any.
    """
    if not recipe.generator.takes_rows:
        raise ValueError(f"the images of {recipe.name} are no rows")
    row_of: dict[str, int] = {}
    form = TableForm.of(recipe)
    for receipt in read_receipts(directory):
        row_of |= {one["key"]: one[ROW] for one in read_shard(directory, receipt, ["key", ROW], form=form)}
    found = [row_of.get(key) for key in keys]
    untold = [key for key, row in zip(keys, found, strict=True) if row is None or row < 0]
    if untold:
        raise UserError(
            f"{directory}: {ROW} of {untold[0]} is no row of a pool, nor are those of {len(untold) - 1:,} more images",
            f"See what is wrong with it: counterfoil verify {directory}",
        )
    return [row for row in found if row is not None]


def _pool_called(recipe: Recipe, recorded: Any) -> str:
    """A hash that two pools of the same rows share: of a folder's content, wherever it lies, or a name and a commit."""
    pool, pin = Pool.of(recipe), SourcePin.of(recorded)
    if pin is None:
        return sha256_json([pool.dataset, pool.revision, pool.config])
    return sha256_json([pin.content or [pin.dataset, pin.revision], pool.config])
