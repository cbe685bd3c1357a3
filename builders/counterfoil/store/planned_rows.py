"""Rows of a shard against the plan, as they are read: each must be one of the samples of its shard.

A shard may come from anybody. Whoever counts, cuts or draws by what its rows say of themselves asks here first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.plan import sample_key
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from counterfoil.plan import Plan, Shard
    from counterfoil.store.layout import What
    from counterfoil.store.receipts import Receipt

# What a row says of which sample it is.
IDENTITY = ("key", "shift", "label", "class_id", "index")
_LONGEST = 80


class PlannedRows:
    """The rows that a table of one shard may hold."""

    def __init__(self, directory: Path, receipt: Receipt, what: What, plan: Plan, shard: Shard) -> None:
        self._path = directory / (receipt.file(what) or receipt).path
        self._hint = remake_hint(directory, receipt.path)
        self._cells = {(c.shift, c.label): (plan.class_of(c.label).id, c.candidates) for c in shard.cells}

    def refuse_other(self, *identity: Any) -> None:
        """RunFailure, with the file, for a row whose values of `IDENTITY` are those of no sample."""
        key, shift, label, class_id, index = identity
        own, candidates = self._cells.get((shift, label), (None, 0))
        if own is None or own != class_id or not 0 <= index < candidates or key != sample_key(shift, own, index):
            said = ", ".join(
                f"{name} {str(value)[:_LONGEST]!r}" for name, value in zip(IDENTITY, identity, strict=True)
            )
            raise RunFailure(f"{self._path} has a row that is no sample of its shard by the recipe: {said}", self._hint)
