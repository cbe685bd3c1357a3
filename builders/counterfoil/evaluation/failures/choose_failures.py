"""Which images the failure browser shows: those that a model gets wrong, each with its base image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# A page with more takes long to load, and its pictures fill some hundred megabytes.
MOST_FAILURES = 20_000
# Every image brings an answer and a confidence a model: about eight bytes of the page each.
MOST_ANSWERS = 800_000


@dataclass(frozen=True)
class ChosenFailures:
    """rows, partners: (f,) positions of the images in the dataset's order, and of their base images, -1 for none.

    found: how many images there are that a model gets wrong, shown or not.
    """

    rows: NDArray[np.int64]
    partners: NDArray[np.int64]
    found: int

    @property
    def images(self) -> NDArray[np.int64]:
        """Every position whose picture is needed, ascending, each once."""
        return np.union1d(self.rows, self.partners[self.partners >= 0])


def base_partners(
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    indices: NDArray[np.int64],
    readable: NDArray[np.bool_],
    shifts: Sequence[int],
) -> NDArray[np.int64]:
    """(n,) the base image (group 0) of the same class and index as each readable image of `shifts`; -1 without."""
    partners = np.full(len(labels), -1, dtype=np.int64)
    base = {
        (int(labels[row]), int(indices[row])): int(row) for row in np.flatnonzero((groups == 0) & readable)
    }  # fmt: skip
    for row in np.flatnonzero(np.isin(groups, np.asarray(shifts, dtype=np.int64)) & readable):
        partners[row] = base.get((int(labels[row]), int(indices[row])), -1)
    return partners


def choose_failures(
    correct: NDArray[np.bool_],
    readable: NDArray[np.bool_],
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    partners: NDArray[np.int64],
    most: int,
) -> ChosenFailures:
    """The readable images that at least one model gets wrong, in the dataset's order; correct: (n, models).

    Where there are more than `most`, every class under every shift gives as many as it has, up to one bound: first
    those that most models flip (right on the base image, wrong here), then those that most get wrong.
    """
    wrong = ~correct & readable[:, None]
    rows = np.flatnonzero(wrong.any(axis=1))
    found = len(rows)
    if found > most:
        paired = partners[rows] >= 0
        flips = (wrong[rows] & correct[partners[rows]]).sum(axis=1) * paired
        cells = groups[rows] * (int(labels.max()) + 1) + labels[rows]
        order = np.lexsort((rows, -wrong[rows].sum(axis=1), -flips, cells))
        _, starts = np.unique(cells[order], return_index=True)
        sizes = np.diff(np.append(starts, found))
        rank = np.empty(found, dtype=np.int64)
        rank[order] = np.arange(found) - np.repeat(starts, sizes)
        rows = np.sort(rows[np.lexsort((cells, rank))[:most]])
    return ChosenFailures(rows, partners[rows], found)
