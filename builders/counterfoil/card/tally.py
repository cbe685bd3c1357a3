"""Which candidates were accepted, cell by cell, in a bit each: one pass over the candidates, little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure
from counterfoil.keep import ACCEPTED
from counterfoil.keep.misclassified import RIGHT, judge_column
from counterfoil.recipe.prompts import BASE
from counterfoil.store.planned_rows import IDENTITY, PlannedRows
from counterfoil.store.reading import shard_batches
from counterfoil.store.receipts import remake_hint
from counterfoil.store.rows import TableForm

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.store import Receipt


@dataclass(frozen=True, slots=True)
class Tally:
    """(shift, label) → the accepted indices as the bits of a number; cells without any are absent.

    judged: (shift, class id) → accepted images that the second judge answered to, and those of them whose label it did
    not answer; empty where there is no such judge.
    """

    accepted: Mapping[tuple[str, int], int]
    judged: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

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
    """Read every candidate's reason, and what the second judge said of it, once, without images.

    RunFailure, with the file, for candidates that are no samples of the plan, and where another number of them is
    accepted than `data` has rows.
    """
    indices: dict[tuple[str, int], int] = {}
    judged: dict[tuple[str, str], tuple[int, int]] = {}
    judge, form = plan.recipe.screen.judge, TableForm.of(plan.recipe)
    names = [*IDENTITY, "reason", *([] if judge is None else [judge_column(judge, RIGHT)])]
    by_shard = {(receipt.group, receipt.shard): receipt for receipt in receipts}
    for shard in plan.shards:
        receipt = by_shard.get((shard.group, shard.number))
        file = None if receipt is None else receipt.file("candidates")
        if receipt is None or file is None:
            continue
        planned, accepted = PlannedRows(directory, receipt, "candidates", plan, shard), 0
        for batch in shard_batches(directory, receipt, names, "candidates", form):
            columns = [batch.column(name).to_pylist() for name in names]
            said = columns.pop() if judge is not None else [None] * batch.num_rows
            for *identity, reason, right in zip(*columns, said, strict=True):
                planned.refuse_other(*identity)
                if reason == ACCEPTED:
                    _, shift, label, class_id, index = identity
                    indices[shift, label] = indices.get((shift, label), 0) | 1 << index
                    accepted += 1
                    if right is not None:
                        images, disagreed = judged.get((shift, class_id), (0, 0))
                        judged[shift, class_id] = (images + 1, disagreed + (not right))
        images = receipt.file("data")
        rows = 0 if images is None else images.rows
        if accepted != rows:
            raise RunFailure(
                f"{directory / file.path} accepts {accepted} candidates, and {receipt.path} lists {rows} rows of data",
                remake_hint(directory, receipt.path),
            )
    return Tally(indices, judged)
