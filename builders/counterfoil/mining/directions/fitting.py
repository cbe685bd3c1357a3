"""Directions of classes: a linear SVM of right against wrong rows, its strength by cross-validation, an interval, a p.

Jain 2023, section 2 and Appendix A, with what the paper leaves out as its code has it: embeddings are whitened by the
train split and L2-normalised, once (the released script does it twice, which costs a fourth of the strength); label 1
is *right*, so that a decision above 0 is easy; C goes by 2-fold balanced accuracy, ties to the smallest.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.engines import Doing, Finished, engine_for
from counterfoil.mining.directions.folds import deal_folds, why_not
from counterfoil.mining.directions.permutation import TIE, permutation_p
from counterfoil.mining.directions.solvers import KernelSolver, LinearSolver, Solver
from counterfoil.mining.directions.strength import balanced_accuracy, strength_interval
from counterfoil.progress import report

# Jain 2023, released code.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 2
PERMUTATIONS = 200
FEWEST_ERRORS = 10
MOST_KERNEL_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Direction:
    """Where a class is easy and where it is hard, in whitened and normalised space.

    weights: (width,). strength: mean balanced accuracy of the folds at `C`, with its 95 % `interval`; p: how often
    permuted labels reach it. rows, errors: what it was fitted on. solver: what fitted it.
    """

    weights: NDArray[np.float64]
    intercept: float
    C: float
    strength: float
    interval: tuple[float, float]
    p: float
    rows: int
    errors: int
    solver: Literal["kernel", "linear"]

    def decision(self, points: NDArray[np.floating]) -> NDArray[np.float64]:
        """(n,) decision values of (n, width) whitened and normalised points: above 0 easy, below 0 hard."""
        return np.asarray(points, np.float64) @ self.weights + self.intercept


@dataclass(frozen=True, slots=True)
class NoDirection:
    """Why a class has none, for people: `6 errors, at least 10 are needed`."""

    reason: str
    rows: int
    errors: int


def whiten(
    features: NDArray[np.floating], centre: NDArray[np.floating], spread: NDArray[np.floating]
) -> NDArray[np.float64]:
    """(x - centre) / spread, then of unit length: (n, width) from (n, width), (width,) and (width,).

    centre, spread: mean and standard deviation of the train split (ddof 1). A column without spread says nothing of
    the train split and is left out (0); a row that is the centre itself stays 0. ValueError for other shapes, for
    numbers that are not finite, and for a negative spread.
    """
    features, centre, spread = (np.asarray(array, np.float64) for array in (features, centre, spread))
    if features.ndim != 2 or {centre.shape, spread.shape} != {features.shape[1:]}:
        raise ValueError(
            f"features {features.shape}, centre {centre.shape} and spread {spread.shape} do not fit:"
            " expected (n, width), (width,) and (width,)"
        )
    _finite(features)
    if not (np.isfinite(centre).all() and np.isfinite(spread).all() and (spread >= 0).all()):
        raise ValueError("centre and spread: expected finite numbers, and no spread below 0")
    # Of a constant column rounding leaves about 1e-16 of its value.
    varied = spread > 1e-12 * np.maximum(1.0, np.abs(centre))
    points = np.where(varied, (features - centre) / np.where(varied, spread, 1.0), 0.0)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(lengths > 0, lengths, 1.0)


def fit_direction(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    units: NDArray[np.int64] | None = None,
    *,
    seed: int,
    grid: Sequence[float] = GRID,
    folds: int = FOLDS,
    permutations: int = PERMUTATIONS,
    fewest_errors: int = FEWEST_ERRORS,
    most_kernel_rows: int = MOST_KERNEL_ROWS,
) -> Direction | NoDirection:
    """The direction of one class, or why it has none.

    points: (n, width), whitened and normalised. right: (n,), whether the target is right. units: (n,), rows of equal
    number share a unit: they stand in one fold, and are permuted and counted together. The SVM is scikit-learn's
    `SVC(kernel="linear", class_weight="balanced")`; past `most_kernel_rows` rows its `LinearSVC`, and `solver` says so.
    ValueError for arrays that do not fit each other, points that are not finite, and settings out of range.
    """
    _check(points, right, units)
    if not grid or min(grid) <= 0 or folds < 2 or permutations < 0:
        raise ValueError("expected values of C above 0, 2 folds or more, and 0 permutations or more")
    points, right = np.ascontiguousarray(points, np.float64), np.asarray(right, np.bool_)
    rows, errors = len(right), int((~right).sum())
    reason = why_not(right, units, folds, fewest_errors)
    dealt = reason or deal_folds(right, units, folds, seed)
    if isinstance(dealt, str):
        return NoDirection(dealt, rows, errors)
    from sklearn import config_context

    with config_context(assume_finite=True, skip_parameter_validation=True):  # checked above, for thousands of fits
        solver: Solver = KernelSolver(points, dealt) if rows <= most_kernel_rows else LinearSolver(points, dealt, seed)
        truths = [right[fold.test] for fold in dealt]
        best = chosen = None
        strength, grid = 0.0, sorted(grid)
        for C in grid:
            predicted = [solver.predicted(fold, right, C) for fold in range(folds)]
            scores = [balanced_accuracy(truth, answer) for truth, answer in zip(truths, predicted, strict=True)]
            if best is None or np.mean(scores) > strength + TIE:
                best, chosen, strength = C, predicted, float(np.mean(scores))
        assert best is not None and chosen is not None
        weights, intercept = solver.plane(right, best)
        p = permutation_p(solver, right, units, score=strength, grid=grid, permutations=permutations, seed=seed)
    of_folds = None if units is None else [units[fold.test] for fold in dealt]
    interval = strength_interval(truths, chosen, of_folds)
    return Direction(weights, intercept, best, strength, interval, p, rows, errors, solver.name)


def fit_directions(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    labels: NDArray[np.int64],
    classes: int,
    units: NDArray[np.int64] | None = None,
    *,
    seed: int,
    workers: int | None = 1,
    grid: Sequence[float] = GRID,
    folds: int = FOLDS,
    permutations: int = PERMUTATIONS,
    fewest_errors: int = FEWEST_ERRORS,
    most_kernel_rows: int = MOST_KERNEL_ROWS,
) -> list[Direction | NoDirection]:
    """`fit_direction` of every class, in the order of the classes; tells how many are through.

    labels: (n,), 0 to classes - 1. workers: processes, None for one a core, each with one BLAS thread: the result is
    the same whatever their number. A worker holds three (rows, rows) arrays of doubles of its class, 600 MB for 5,000
    rows. ValueError as `fit_direction`, and for a label that is no class; UserError for fewer workers than one.
    """
    _check(points, right, units)
    if labels.shape != right.shape or (len(labels) and not 0 <= labels.min() <= labels.max() < classes):
        raise ValueError(f"labels: expected {len(right)} numbers from 0 to {classes - 1}")
    work = _Fitting(seed, tuple(grid), folds, permutations, fewest_errors, most_kernel_rows)
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(classes + 1))
    points, right, units = points[order], right[order], None if units is None else units[order]
    found: dict[int, Direction | NoDirection] = {}
    items = []
    for label, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        rows = slice(start, end)
        items.append(_ClassRows(label, points[rows], right[rows], None if units is None else units[rows]))
    items.sort(key=lambda item: -len(item.right))  # the longest first, so that no worker ends with it alone
    for event in engine_for(("cpu",), workers).run(work, items):
        if isinstance(event, Finished):
            found[event.item.label] = event.result
            report("directions", len(found), classes)
    return [found[label] for label in range(classes)]


@dataclass(frozen=True, slots=True, eq=False)
class _ClassRows:
    label: int
    points: NDArray[np.float64]
    right: NDArray[np.bool_]
    units: NDArray[np.int64] | None


@dataclass(frozen=True)
class _Fitting:
    """What a worker does (`engines.engine.Work`)."""

    seed: int
    grid: tuple[float, ...]
    folds: int
    permutations: int
    fewest_errors: int
    most_kernel_rows: int
    device: str = "none"  # workers need no torch

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "sklearn.svm", "sklearn.model_selection", "scipy.stats")

    def on(self, device: str) -> _Fitting:
        """The same: on whatever device a worker is, it fits with NumPy."""
        return self

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[_ClassRows], Doing[int, Direction | NoDirection]]]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):  # sums of other threads would round otherwise
            yield self._one

    def _one(self, item: _ClassRows) -> Doing[int, Direction | NoDirection]:
        yield from ()
        return fit_direction(
            item.points,
            item.right,
            item.units,
            seed=self.seed,
            grid=self.grid,
            folds=self.folds,
            permutations=self.permutations,
            fewest_errors=self.fewest_errors,
            most_kernel_rows=self.most_kernel_rows,
        )


def _check(points: NDArray[np.float64], right: NDArray[np.bool_], units: NDArray[np.int64] | None) -> None:
    if points.ndim != 2 or right.shape != points.shape[:1] or (units is not None and units.shape != right.shape):
        raise ValueError(
            f"points {points.shape}, right {right.shape} and units {None if units is None else units.shape} do not"
            " fit: expected (n, width), (n,) and (n,)"
        )
    _finite(points)


def _finite(points: NDArray[np.floating]) -> None:
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if len(bad):
        named = ", ".join(map(str, bad[:5])) + (", …" if len(bad) > 5 else "")
        raise ValueError(f"{len(bad)} of {len(points)} rows hold numbers that are not finite: {named}")
