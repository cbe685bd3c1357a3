"""Directions of classes: a linear SVM of right against wrong rows, its strength by cross-validation, an interval, a p.

Jain 2023, section 2 and Appendix A, with what the paper leaves out as its code has it: embeddings are whitened by the
train split and L2-normalised, once (the released script does it twice, which costs a fourth of the strength); label 1
is *right*, so that a decision above 0 is easy; C goes by 2-fold balanced accuracy, ties to the smallest.

**Small C.** While no margin is reached, every row stands at its bound: the weights are C times the difference of the
balanced class means, whatever C is, and any intercept of an interval is as good as any other. libsvm takes the middle
of it, unless rounding has left a row a hair's breadth from its bound: then it takes an end, which predicts the same for
all rows. (Which of the two happens is chance, so that scores of small C jump between .5 and a sensible one;
scikit-learn's do, and these are scikit-learn's.) LinearSVC leaves the intercept at zero. So a product with the kernel
tells how high the scores of all small C can be, and permutations need no fit of them.

**Permutations** stay within each test fold, which keeps the folds, their counts of errors and their kernels. Where rows
share units, the labels of a whole unit move together, between units of as many rows: rows of a unit share their errors,
so that permuting rows alone would find significance in nothing. A unit whose size no other has in its fold keeps its
labels, which makes p larger, never smaller.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from counterfoil.engines import Doing, Finished, engine_for
from counterfoil.progress import report
from counterfoil.report.words import counted
from counterfoil.stats import balanced_accuracy_interval, sequential_p


def balanced_accuracy(right: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """Return the mean of the share of right rows predicted right and that of wrong rows predicted wrong; both (n,)."""
    return float((np.mean(~predicted[~right]) + np.mean(predicted[right])) / 2)


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows that are trained on and rows that are scored, both ascending as scikit-learn gives them."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def reason_against_direction(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: int, fewest_errors: int
) -> str | None:
    """Return why these rows have no direction, for people; None if they may have one.

    right: (n,), whether the target's answer is right. units: (n,), rows of equal number share a unit.
    """
    rows, errors = len(right), int((~right).sum())
    if not rows:
        return "no rows"
    if not errors:
        return "no errors"
    if errors == rows:
        return "all wrong"
    fewest = max(fewest_errors, folds)  # a fold without an error, or with nothing else, trains and scores nothing
    if errors < fewest:
        return f"{counted(errors, 'error')}, at least {fewest} are needed"
    if rows - errors < fewest:
        return f"{counted(rows - errors, 'right row')}, at least {fewest} are needed"
    if units is not None:
        for words, chosen in (("all rows", right | ~right), ("all errors", ~right), ("all right rows", right)):
            unit_count = len(np.unique(units[chosen]))
            if unit_count < folds:
                return f"{words} are of {counted(unit_count, 'unit')}, and a unit is not split between {folds} folds"
    return None


def deal_folds(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: int, seed: int
) -> tuple[Fold, ...] | str:
    """Return stratified folds, shuffled with the seed; where rows share units, each unit's rows in one fold.

    As scikit-learn's `StratifiedKFold` and `StratifiedGroupKFold`. A few units of unequal errors may leave a fold
    without an error, or with nothing else: then return the reason, for people.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    if units is None or len(np.unique(units)) == len(units):
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(right)), right)
    else:
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        splits = splitter.split(np.zeros(len(right)), right, units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few errors: what that comes to is asked below
        dealt = tuple(Fold(train, test) for train, test in splits)
    if all(0 < right[fold.test].sum() < len(fold.test) for fold in dealt):
        return dealt
    return f"its units are so unequal that one of {folds} folds has no errors or only errors"


# Rows so near the threshold, as a share of the range of decisions, are counted for whichever side scores more: libsvm
# keeps its kernel in single precision.
_NEAR = 1e-5
# Both ends of the interval of intercepts predict alike for all rows while decisions range over less than 1; a little
# less, for libsvm stops at a violation of .001.
_SMALL = 0.9


@dataclass(frozen=True, slots=True)
class SmallC:
    """A bound without a fit: for C below `limit` the score of this fold is at most `most`."""

    limit: float
    most: float


class Solver(Protocol):
    """SVMs of one class's rows; labels are given to each call, so that permuted ones share the work."""

    @property
    def name(self) -> Literal["kernel", "linear"]: ...

    @property
    def folds(self) -> Sequence[Fold]: ...

    def predicted(self, fold: int, right: NDArray[np.bool_], C: float) -> NDArray[np.bool_]:
        """Predict the fold's test rows by an SVM of its training rows; right: (n,), all rows."""
        ...

    def small(self, fold: int, right: NDArray[np.bool_]) -> SmallC:
        """Bound the fold's scores for small C."""
        ...

    def plane(self, right: NDArray[np.bool_], C: float) -> tuple[NDArray[np.float64], float]:
        """Return weights (width,) and intercept of the SVM of all rows."""
        ...


class KernelSolver:
    """libsvm on inner products that are computed once: (n, n) doubles, and once more for the folds' blocks."""

    name: Literal["kernel"] = "kernel"

    def __init__(self, points: NDArray[np.float64], folds: Sequence[Fold]) -> None:
        from scipy.linalg import get_blas_funcs

        self.points, self.folds = points, folds
        self.kernel = points @ points.T
        # libsvm breaks ties between rows by squared lengths, which all are 1 but for rounding: with those of a matrix
        # product it would choose others, and end elsewhere within its tolerance. So they are rounded as it does.
        dot: Any = get_blas_funcs("dot", (points,))
        np.fill_diagonal(self.kernel, [dot(row, row) for row in points])
        # Contiguous, as libsvm reads them without a copy.
        self.trains = [self.kernel[np.ix_(fold.train, fold.train)] for fold in folds]
        self.tests = [self.kernel[np.ix_(fold.test, fold.train)] for fold in folds]

    def predicted(self, fold: int, right: NDArray[np.bool_], C: float) -> NDArray[np.bool_]:
        duals, intercept = self._fit(self.trains[fold], right[self.folds[fold].train], C)
        return self.tests[fold] @ duals + intercept >= 0  # as `SVC.predict` has it

    def small(self, fold: int, right: NDArray[np.bool_]) -> SmallC:
        train, test = self.folds[fold].train, self.folds[fold].test
        duals = balanced_signs(right[train])
        trained, tested = self.trains[fold] @ duals, self.tests[fold] @ duals
        middle = (trained[right[train]].max() + trained[~right[train]].min()) / 2
        # An end of the interval predicts one thing for all rows, which is worth one half.
        return _small_c(trained, tested, middle, right[test], least=0.5)

    def plane(self, right: NDArray[np.bool_], C: float) -> tuple[NDArray[np.float64], float]:
        duals, intercept = self._fit(self.kernel, right, C)
        return duals @ self.points, intercept

    def _fit(
        self, kernel: NDArray[np.float64], right: NDArray[np.bool_], C: float
    ) -> tuple[NDArray[np.float64], float]:
        from sklearn.svm import SVC

        model = SVC(kernel="precomputed", class_weight=balanced_weights(right), C=C).fit(kernel, right.astype(np.int64))
        duals = np.zeros(len(right))
        duals[model.support_] = model.dual_coef_[0]
        return duals, float(model.intercept_[0])


class LinearSolver:
    """liblinear on the rows themselves, where a kernel would not fit in memory.

    The same loss and class weights, but the intercept is penalised with the weights, as liblinear does: the direction
    is the same up to a cosine of about .999, and the intercept of whitened rows is small.
    """

    name: Literal["linear"] = "linear"

    def __init__(self, points: NDArray[np.float64], folds: Sequence[Fold], seed: int) -> None:
        self.points, self.folds, self.seed = points, folds, seed
        self.trains = [points[fold.train] for fold in folds]
        self.tests = [points[fold.test] for fold in folds]

    def predicted(self, fold: int, right: NDArray[np.bool_], C: float) -> NDArray[np.bool_]:
        weights, intercept = self._fit(self.trains[fold], right[self.folds[fold].train], C)
        return self.tests[fold] @ weights + intercept > 0

    def small(self, fold: int, right: NDArray[np.bool_]) -> SmallC:
        train, test = self.folds[fold].train, self.folds[fold].test
        weights = balanced_signs(right[train]) @ self.trains[fold]
        return _small_c(self.trains[fold] @ weights, self.tests[fold] @ weights, 0.0, right[test], least=0.0)

    def plane(self, right: NDArray[np.bool_], C: float) -> tuple[NDArray[np.float64], float]:
        return self._fit(self.points, right, C)

    def _fit(
        self, points: NDArray[np.float64], right: NDArray[np.bool_], C: float
    ) -> tuple[NDArray[np.float64], float]:
        from sklearn.svm import LinearSVC

        settings: Any = {"dual": True, "tol": 1e-3, "max_iter": 10_000, "random_state": self.seed}
        model: Any = LinearSVC(loss="hinge", class_weight=balanced_weights(right), C=C, **settings)
        model.fit(points, right.astype(np.int64))
        return model.coef_[0].copy(), float(model.intercept_[0])


def balanced_weights(right: NDArray[np.bool_]) -> dict[int, float]:
    """Return scikit-learn's "balanced", n / (2 · rows of a kind): to find it takes longer than a small fit."""
    rows, count = len(right), int(right.sum())
    return {0: rows / (2 * (rows - count)), 1: rows / (2 * count)}


def balanced_signs(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return duals at their bounds for C 1: each row's weight, above zero for right rows and below for wrong ones."""
    weights = balanced_weights(right)
    return np.where(right, weights[1], -weights[0])


def _small_c(
    trained: NDArray[np.float64], tested: NDArray[np.float64], threshold: float, right: NDArray[np.bool_], least: float
) -> SmallC:
    """Bound scores by the decisions of C 1 with every dual at its bound; `least`: what another intercept may score."""
    lowest, highest = min(trained.min(), tested.min()), max(trained.max(), tested.max())
    # With the threshold at zero no decision may reach 1 itself.
    span = max(highest - lowest, abs(highest), abs(lowest))
    near = _NEAR * span
    hits = (tested[right] > threshold - near).mean() + (tested[~right] <= threshold + near).mean()
    return SmallC(_SMALL / span if span > 0 else 0.0, max(least, float(hits) / 2))


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
    """Return the p of `score`, the best mean balanced accuracy of the grid; see `sequential_p`.

    Each permutation asks only whether its own best reaches the score, so that most need no more than two or three fits.
    """
    labels = permuted_labels(right, units, solver.folds, seed)
    return sequential_p((reaches_score(solver, label, grid, score) for label in labels), permutations)


def permuted_labels(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: Sequence[Fold], seed: int
) -> Iterator[NDArray[np.bool_]]:
    """Yield permuted labels without end, (n,) each."""
    rng = np.random.default_rng([seed, 1])  # 1: other draws than those of the folds
    blocks = [block for fold in folds for block in _blocks(fold.test, units)]
    while True:
        labels = right.copy()
        for block in blocks:
            labels[block] = right[rng.permutation(block, axis=0)]
        yield labels


def _blocks(rows: NDArray[np.int64], units: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """Return a fold's rows as (units, size) arrays, one for each size of unit."""
    if units is None:
        return [rows[:, None]]
    order = np.argsort(units[rows], kind="stable")
    _, starts, sizes = np.unique(units[rows][order], return_index=True, return_counts=True)
    of_unit = rows[order]
    alike = [(size, starts[sizes == size]) for size in np.unique(sizes)]
    return [of_unit[begin[:, None] + np.arange(size)] for size, begin in alike]


def reaches_score(solver: Solver, right: NDArray[np.bool_], grid: Sequence[float], score: float) -> bool:
    """Check whether the best mean balanced accuracy over the grid is `score` or more.

    No fit is made whose outcome cannot matter: of small C, whose best is known (`Solver.small`), and of folds that
    could not reach the score any more if all their rows were right.
    """
    needed = (score - TIE) * len(solver.folds)
    small = [solver.small(fold, right) for fold in range(len(solver.folds))]
    for C in sorted(grid, reverse=True):
        most = [solution.most if solution.limit > C else 1.0 for solution in small]
        for fold, rows in enumerate(solver.folds):
            if sum(most) < needed:
                break
            most[fold] = balanced_accuracy(right[rows.test], solver.predicted(fold, right, C))
        if sum(most) >= needed:
            return True
    return False


# Jain 2023, released code.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 2
PERMUTATIONS = 200
FEWEST_ERRORS = 10
MOST_KERNEL_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Direction:
    """The direction of a class in whitened and normalised space.

    weights: (width,). strength: mean balanced accuracy of the folds at `C`, with its 95 % `interval`; p: how often
    permuted labels reach it. rows, errors: of the fit.
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
        """Return (n,) decision values of (n, width) whitened and normalised points: above 0 easy, below 0 hard."""
        return np.asarray(points, np.float64) @ self.weights + self.intercept


def whiten(
    features: NDArray[np.floating], centre: NDArray[np.floating], deviation: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return (x - centre) / deviation, then of unit length: (n, width) from (n, width), (width,) and (width,).

    centre, deviation: mean and standard deviation of the train split (ddof 1). A column without any is left out (0); a
    row that is the centre itself stays 0. ValueError for other shapes, for numbers that are not finite, and for a
    negative deviation.
    """
    features, centre, deviation = (np.asarray(array, np.float64) for array in (features, centre, deviation))
    if features.ndim != 2 or {centre.shape, deviation.shape} != {features.shape[1:]}:
        raise ValueError(
            f"features {features.shape}, centre {centre.shape} and spread {deviation.shape} do not fit:"
            " expected (n, width), (width,) and (width,)"
        )
    _finite(features)
    if not (np.isfinite(centre).all() and np.isfinite(deviation).all() and (deviation >= 0).all()):
        raise ValueError("centre and spread: expected finite numbers, and no spread below 0")
    # Of a constant column rounding leaves about 1e-16 of its value.
    varied = deviation > 1e-12 * np.maximum(1.0, np.abs(centre))
    points = np.where(varied, (features - centre) / np.where(varied, deviation, 1.0), 0.0)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(lengths > 0, lengths, 1.0)


def fit_direction(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    units: NDArray[np.int64] | None = None,
    *,
    seed: int,
    grid: Sequence[float] = GRID,
    permutations: int = PERMUTATIONS,
    fewest_errors: int = FEWEST_ERRORS,
    most_kernel_rows: int = MOST_KERNEL_ROWS,
) -> Direction | str:
    """Return the direction of one class, or why it has none, for people: `6 errors, at least 10 are needed`.

    points: (n, width), whitened and normalised. right: (n,), whether the target is right. units: (n,), rows of equal
    number share a unit: they are in one fold, and are permuted and counted together. The SVM is scikit-learn's
    `SVC(kernel="linear", class_weight="balanced")`; past `most_kernel_rows` rows its `LinearSVC`. ValueError for arrays
    that do not fit each other, points that are not finite, and settings out of range.
    """
    _check(points, right, units)
    if not grid or min(grid) <= 0 or permutations < 0:
        raise ValueError("expected values of C above 0, and 0 permutations or more")
    points, right = np.ascontiguousarray(points, np.float64), np.asarray(right, np.bool_)
    rows, errors = len(right), int((~right).sum())
    dealt = reason_against_direction(right, units, FOLDS, fewest_errors) or deal_folds(right, units, FOLDS, seed)
    if isinstance(dealt, str):
        return dealt
    from sklearn import config_context

    with config_context(assume_finite=True, skip_parameter_validation=True):  # checked above, for thousands of fits
        solver: Solver = KernelSolver(points, dealt) if rows <= most_kernel_rows else LinearSolver(points, dealt, seed)
        truths = [right[fold.test] for fold in dealt]
        best = chosen = None
        strength, grid = 0.0, sorted(grid)
        for C in grid:
            predicted = [solver.predicted(fold, right, C) for fold in range(FOLDS)]
            scores = [balanced_accuracy(truth, answer) for truth, answer in zip(truths, predicted, strict=True)]
            if best is None or np.mean(scores) > strength + TIE:
                best, chosen, strength = C, predicted, float(np.mean(scores))
        assert best is not None and chosen is not None
        weights, intercept = solver.plane(right, best)
        p = permutation_p(solver, right, units, score=strength, grid=grid, permutations=permutations, seed=seed)
    of_folds = None if units is None else [units[fold.test] for fold in dealt]
    interval = balanced_accuracy_interval(truths, chosen, of_folds)
    return Direction(weights, intercept, best, strength, interval, p, rows, errors, solver.name)


def fit_directions(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    labels: NDArray[np.int64],
    classes: int,
    units: NDArray[np.int64] | None,
    fit: DirectionFit,
    workers: int | None = 1,
) -> list[Direction | str]:
    """Return `fit_direction` of every class, in the order of the classes; report how many are through.

    labels: (n,), 0 to classes - 1. workers: processes, None for one a core; their number changes no result. A worker
    holds three (rows, rows) arrays of doubles of its class, 600 MB for 5,000 rows. ValueError as `fit_direction`, and
    for a label that is no class; UserError for fewer workers than one.
    """
    _check(points, right, units)
    if labels.shape != right.shape or (len(labels) and not 0 <= labels.min() <= labels.max() < classes):
        raise ValueError(f"labels: expected {len(right)} numbers from 0 to {classes - 1}")
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(classes + 1))
    points, right, units = points[order], right[order], None if units is None else units[order]
    by_label: dict[int, Direction | str] = {}
    items = []
    for label, (start, end) in enumerate(itertools.pairwise(bounds.tolist())):
        rows = slice(start, end)
        items.append(_ClassRows(label, points[rows], right[rows], None if units is None else units[rows]))
    items.sort(key=lambda item: -len(item.right))  # the longest first, so that no worker ends with it alone
    for event in engine_for(("cpu",), workers).run(fit, items):
        if isinstance(event, Finished):
            by_label[event.item.label] = event.result
            report("fitting directions", len(by_label), classes)
    return [by_label[label] for label in range(classes)]


@dataclass(frozen=True, slots=True, eq=False)
class _ClassRows:
    label: int
    points: NDArray[np.float64]
    right: NDArray[np.bool_]
    units: NDArray[np.int64] | None


@dataclass(frozen=True)
class DirectionFit:
    """How directions are fitted. It is a worker's task (`engines.engine.Work`)."""

    seed: int
    permutations: int = PERMUTATIONS
    fewest_errors: int = FEWEST_ERRORS
    device: str = "none"  # workers need no torch

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "sklearn.svm", "sklearn.model_selection", "scipy.stats")

    def on(self, device: str) -> DirectionFit:
        """Return the same: on whatever device a worker is, it fits with NumPy."""
        return self

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[_ClassRows], Doing[int, Direction | str]]]:
        from threadpoolctl import threadpool_limits

        def fit_class(item: _ClassRows) -> Doing[int, Direction | str]:
            yield from ()
            settings = {"permutations": self.permutations, "fewest_errors": self.fewest_errors}
            return fit_direction(item.points, item.right, item.units, seed=self.seed, **settings)

        with threadpool_limits(1, "blas"):  # sums of other threads would round otherwise
            yield fit_class


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
