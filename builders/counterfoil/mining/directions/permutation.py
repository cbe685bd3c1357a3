"""How often labels without meaning would reach a direction's strength: a permutation p over the whole grid of C.

Labels are permuted within each test fold, which keeps the folds, their counts of errors and their kernels. Where rows
share units, the labels of a whole unit move together, between units of as many rows: rows of a unit share their errors,
so that permuting rows alone would find significance in nothing. A unit whose size no other has in its fold keeps its
labels, which makes p larger, never smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.directions.folds import Fold
from counterfoil.mining.directions.solvers import Solver
from counterfoil.mining.directions.strength import balanced_accuracy
from counterfoil.stats import sequential_p

# Scores are means of shares: what differs by less is equal.
TIE = 1e-9


def permutation_p(
    solver: Solver,
    right: NDArray[np.bool_],
    units: NDArray[np.int64] | None,
    *,
    score: float,
    grid: Sequence[float],
    permutations: int,
    seed: int,
) -> float:
    """The p of `score`, the best mean balanced accuracy of the grid; see `sequential_p` for what it is exactly.

    Each permutation asks only whether its own best reaches the score, so that most need no more than two or three fits.
    """
    labels = permuted(right, units, solver.folds, seed)
    return sequential_p((reaches(solver, one, grid, score) for one in labels), permutations)


def permuted(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: Sequence[Fold], seed: int
) -> Iterator[NDArray[np.bool_]]:
    """Permuted labels without end, (n,) each."""
    rng = np.random.default_rng([seed, 1])  # 1: other draws than those of the folds
    blocks = [block for fold in folds for block in _blocks(fold.test, units)]
    while True:
        labels = right.copy()
        for block in blocks:
            labels[block] = right[rng.permutation(block, axis=0)]
        yield labels


def _blocks(rows: NDArray[np.int64], units: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """A fold's rows as (units, size) arrays, one for each size of unit."""
    if units is None:
        return [rows[:, None]]
    order = np.argsort(units[rows], kind="stable")
    _, starts, sizes = np.unique(units[rows][order], return_index=True, return_counts=True)
    of_unit = rows[order]
    alike = [(size, starts[sizes == size]) for size in np.unique(sizes)]
    return [of_unit[begin[:, None] + np.arange(size)] for size, begin in alike]


def reaches(solver: Solver, right: NDArray[np.bool_], grid: Sequence[float], score: float) -> bool:
    """Whether the best mean balanced accuracy over the grid is `score` or more.

    No fit is made whose outcome cannot matter: of small C, whose best is known (`Solver.small`), and of folds that
    could not reach the score any more if all their rows were right.
    """
    needed = (score - TIE) * len(solver.folds)
    small = [solver.small(fold, right) for fold in range(len(solver.folds))]
    for C in sorted(grid, reverse=True):
        most = [one.most if one.limit > C else 1.0 for one in small]
        for fold, rows in enumerate(solver.folds):
            if sum(most) < needed:
                break
            most[fold] = balanced_accuracy(right[rows.test], solver.predicted(fold, right, C))
        if sum(most) >= needed:
            return True
    return False
