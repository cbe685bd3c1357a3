"""Which candidates were accepted, cell by cell, in a bit each: one pass over the candidates, little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure
from counterfoil.keep import ACCEPTED
from counterfoil.recipe.prompts import BASE
from counterfoil.store.planned_rows import IDENTITY, PlannedRows
from counterfoil.store.reading import shard_batches
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.store import Receipt


@dataclass(frozen=True, slots=True)
class Tally:
    """(shift, label) → the accepted indices as the bits of a number; cells without any are absent."""

    accepted: Mapping[tuple[str, int], int]

    def count(self, shift: str, label: int) -> int:
        """Accepted images of a cell."""
        return self._bits(shift, label).bit_count()

    def pairs(self, shift: str, label: int) -> int:
        """Indices of a class that are accepted both on the base and under the shift."""
        return (self._bits(shift, label) & self._bits(BASE, label)).bit_count()

    def has(self, shift: str, label: int, index: int) -> bool:
        return bool(self._bits(shift, label) >> index & 1)

    def indices(self, shift: str, label: int) -> Iterator[int]:
        """Accepted indices of a cell, ascending."""
        for index, bit in enumerate(reversed(f"{self._bits(shift, label):b}")):
            if bit == "1":
                yield index

    def _bits(self, shift: str, label: int) -> int:
        return self.accepted.get((shift, label), 0)


def tally_of(directory: Path, plan: Plan, receipts: Sequence[Receipt]) -> Tally:
    """Read every candidate's reason once, without images.

    RunFailure, with the file, for candidates that are no samples of the plan, and where another number of them is
    accepted than `data` has rows.
    """
    indices: dict[tuple[str, int], int] = {}
    by_shard = {(receipt.group, receipt.shard): receipt for receipt in receipts}
    for shard in plan.shards:
        receipt = by_shard.get((shard.group, shard.number))
        file = None if receipt is None else receipt.file("candidates")
        if receipt is None or file is None:
            continue
        planned, accepted = PlannedRows(directory, receipt, "candidates", plan, shard), 0
        for batch in shard_batches(directory, receipt, [*IDENTITY, "reason"], "candidates"):
            columns = (batch.column(name).to_pylist() for name in (*IDENTITY, "reason"))
            for *identity, reason in zip(*columns, strict=True):
                planned.refuse_other(*identity)
                if reason == ACCEPTED:
                    _, shift, label, _, index = identity
                    indices[shift, label] = indices.get((shift, label), 0) | 1 << index
                    accepted += 1
        images = receipt.file("data")
        rows = 0 if images is None else images.rows
        if accepted != rows:
            raise RunFailure(
                f"{directory / file.path} accepts {accepted} candidates, and {receipt.path} lists {rows} rows of data",
                remake_hint(directory, receipt.path),
            )
    return Tally(indices)
