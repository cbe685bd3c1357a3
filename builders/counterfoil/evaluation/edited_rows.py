"""Which rows of which pool the images of a built dataset are edits of, so that two sets of edits can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.models.mended import EditsOf
from counterfoil.recipe import Recipe, sha256_json
from counterfoil.recipe.schema_generator import ROW
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import Pool
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm


def edits_of(directory: Path, recipe: Recipe, pins: Mapping[str, Any], keys: Sequence[str]) -> EditsOf | None:
    """The rows that the images of these keys are edits of; None where they are no edits."""
    if recipe.generator.kind != "edit":
        return None
    rows = sorted(set(rows_in_pool(directory, recipe, keys)))
    return EditsOf(_pool_called(recipe, pins.get("pool")), recipe.generator.split, tuple(rows))


def rows_in_pool(directory: Path, recipe: Recipe, keys: Sequence[str]) -> list[int]:
    """The row of the pool that each of some images is, or is an edit of. ValueError where no pool has any."""
    if not recipe.generator.takes_rows:
        raise ValueError(f"the images of {recipe.name} are no rows")
    row_of: dict[str, int] = {}
    form = TableForm.of(recipe)
    for receipt in read_receipts(directory):
        row_of |= {one["key"]: one[ROW] for one in read_shard(directory, receipt, ["key", ROW], form=form)}
    return [row_of[key] for key in keys]


def _pool_called(recipe: Recipe, recorded: Any) -> str:
    """A hash that two pools of the same rows share: of a folder's content, wherever it lies, or a name and a commit."""
    pool, pin = Pool.of(recipe), SourcePin.of(recorded)
    if pin is None:
        return sha256_json([pool.dataset, pool.revision, pool.config])
    return sha256_json([pin.content or [pin.dataset, pin.revision], pool.config])
