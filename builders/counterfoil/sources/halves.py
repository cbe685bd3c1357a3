"""Deal labelled rows into a discover half and a confirm half that share nothing: no unit and no image.

What is found on one half is tested on the other, so rows that show the same garment, patient or photograph stay
together. Rows go with others of their unit, and with every row of the same image content, and with whatever those go
with: the *clusters* are dealt, whole.

Large clusters are dealt first, and clusters of one size in the order of a hash of seed and unit (content where there
are no units). Each goes to the half that has fewer rows of its classes so far, and where that is even, to the half
that its hash tells. So a class is dealt evenly to within its largest cluster and mostly to within one row, and the
result depends on the seed and on what the rows are, never on their order. A class of one cluster is in one half only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Halves:
    """Rows of each half, int64, ascending; together every row once."""

    discover: NDArray[np.int64]
    confirm: NDArray[np.int64]


def deal_halves(
    labels: NDArray[np.int64],
    seed: int,
    units: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
) -> Halves:
    """Halves of n rows: `labels` [n], and for each row what it shares: its unit, its image's content, or both.

    Rows of equal unit and rows of equal content are in the same half. ValueError where neither is given, or one is not
    of n rows.
    """
    given = [each for each in (units, contents) if each is not None]
    if not given or any(len(each) != len(labels) for each in given):
        raise ValueError(f"expected units, contents or both, one for each of {len(labels)} rows")
    clusters = _clusters([[(which, value) for value in each] for which, each in enumerate(given)])
    names, places = np.unique(labels, return_inverse=True)
    dealt = []
    for rows in clusters:
        # Clusters are apart in units where there are any, so the least name is theirs alone.
        name = min(given[0][row] for row in rows)
        digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
        dealt.append((-len(rows), digest, rows))
    surplus = np.zeros(len(names), dtype=np.int64)  # rows of each class that the discover half has more
    half = np.zeros(len(labels), dtype=bool)
    for _, digest, rows in sorted(dealt, key=lambda entry: entry[:2]):
        counts = np.bincount(places[rows], minlength=len(names))
        lean = int(surplus @ counts)
        discover = lean < 0 if lean else bool(digest[-1] & 1)
        half[rows] = discover
        surplus += counts if discover else -counts
    return Halves(np.flatnonzero(half), np.flatnonzero(~half))


def _clusters(shared: Sequence[Sequence[Hashable]]) -> list[list[int]]:
    """Rows that share a value of any sequence, directly or through others; each cluster's rows ascending."""
    parents = list(range(len(shared[0])))

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for values in shared:
        first: dict[Hashable, int] = {}
        for row, value in enumerate(values):
            parents[root(row)] = root(first.setdefault(value, row))
    clusters: dict[int, list[int]] = {}
    for row in range(len(parents)):
        clusters.setdefault(root(row), []).append(row)
    return list(clusters.values())
