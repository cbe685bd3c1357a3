"""Which candidates were accepted, cell by cell, in a bit each: one pass over the candidates, little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from counterfoil.keep import ACCEPTED
from counterfoil.recipe.prompts import BASE
from counterfoil.store import read_batches


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


def tally_of(directory: Path) -> Tally:
    """Read every candidate's reason once, without images."""
    indices: dict[tuple[str, int], int] = {}
    for batch in read_batches(directory, ["shift", "label", "index", "reason"], what="candidates"):
        columns = (column.to_pylist() for column in batch.columns)
        for shift, label, index, reason in zip(*columns, strict=True):
            if reason == ACCEPTED:
                indices[shift, label] = indices.get((shift, label), 0) | 1 << index
    return Tally(indices)
