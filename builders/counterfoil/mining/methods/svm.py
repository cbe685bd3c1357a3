"""Fit failure directions (Jain 2023, sections 2 and A): a linear SVM of each class separates right
from wrong rows.

Embeddings are normalised once. The released script normalises them twice, which costs a quarter of
the strength.
"""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.engines import Doing, Finished, engine_for
from counterfoil.progress import report_progress
from counterfoil.report.words import format_count
from counterfoil.sequential_stats import sequential_p
from counterfoil.stats import balanced_accuracy_interval


def balanced_accuracy(right: Bools, predicted: Bools) -> float:
    """Return the mean of two shares of correct predictions: among right rows and among wrong rows.
    Arrays: (n,)."""
    of_right = np.mean(predicted[right])
    of_wrong = np.mean(~predicted[~right])
    return float((of_wrong + of_right) / 2)


@dataclass(frozen=True, slots=True)
class Fold:
    """The rows of a fold, each in ascending order."""

    train: Ints
    """The rows to train on."""
    test: Ints
    """The rows to score."""


def reason_against_direction(
    right: Bools,
    units: Ints | None,
    folds: int,
    fewest_errors: int,
) -> str | None:
    """Return why these rows cannot have a direction, in words for people, or None if they can.
    right, units: (n,)."""
    rows = len(right)
    rights = int(right.sum())
    errors = rows - rights
    if not rows:
        return "no rows"
    if not errors:
        return "no errors"
    if not rights:
        return "all wrong"
    fewest = max(fewest_errors, folds)  # each fold needs an error and a right row
    if errors < fewest:
        return f"{format_count(errors, 'error')}, at least {fewest} are needed"
    if rights < fewest:
        return f"{format_count(rights, 'right row')}, at least {fewest} are needed"
    if units is None:
        return None
    groups = {
        "all rows": units,
        "all errors": units[~right],
        "all right rows": units[right],
    }
    for words, of_group in groups.items():
        count = len(np.unique(of_group))
        if count < folds:
            return (
                f"{words} are of {format_count(count, 'unit')}, and a unit is not split between"
                f" {folds} folds"
            )
    return None


def deal_folds(
    right: Bools,
    units: Ints | None,
    folds: int,
    seed: int,
) -> tuple[Fold, ...] | str:
    """Return stratified, shuffled folds, or a text that says why there are none. Rows of one unit
    share a fold."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    unused = np.zeros(len(right))
    if units is None or len(np.unique(units)) == len(units):
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        splits = splitter.split(unused, right)
    else:
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        splits = splitter.split(unused, right, units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # folds without errors are checked below
        dealt = tuple(Fold(train, test) for train, test in splits)
    for fold in dealt:
        of_fold = right[fold.test]
        if of_fold.all() or not of_fold.any():
            return (
                f"its units are so unequal that one of {folds} folds has no errors or only errors"
            )
    return dealt


# Rows whose distance from the threshold is below this share of the range of decisions count for the
# side that gives the larger score, because libsvm keeps its kernel in single precision.
_NEAR = 1e-5
# If the decisions range over less than 1, each end of the interval of intercepts predicts one side
# for all rows. The constant is a little less than 1, because libsvm stops at a violation of .001.
_SMALL = 0.9


@dataclass(frozen=True, slots=True)
class SmallC:
    """A bound on the score of a fold that needs no fit. For C below `limit`, no row reaches the
    margin, the weights are proportional to C, and libsvm may choose any intercept in an interval.
    """

    limit: float
    most: float
    """The largest score for such C."""


class _FoldSolver:
    """Predicts the test rows of folds. A subclass fits an SVM; trains, tests: for each fold, what it
    reads of the rows."""

    reaches: ClassVar[Callable[[Floats, int], Bools]]
    """Whether decisions reach the threshold, as the library's `predict` has it."""
    folds: Sequence[Fold]
    trains: list[Floats]
    tests: list[Floats]

    def predicted(self, fold: int, right: Bools, C: float) -> Bools:
        """Predict the fold's test rows with an SVM that is fitted to its training rows. right:
        (n,), for all rows."""
        train_right = right[self.folds[fold].train]
        weights, intercept = self.fit(self.trains[fold], train_right, C)
        return self.reaches(self.tests[fold] @ weights + intercept, 0)

    def fit(self, rows: Floats, right: Bools, C: float) -> tuple[Floats, float]:
        """Return a weight for each column of `rows`, and the intercept."""
        raise NotImplementedError


class KernelSolver(_FoldSolver):
    """Solves SVMs with libsvm from inner products, (n, n) doubles. Copies for two folds need as
    much memory again."""

    name: Literal["kernel"] = "kernel"
    reaches = operator.ge

    def __init__(self, points: Floats, folds: Sequence[Fold]) -> None:
        from scipy.linalg import get_blas_funcs

        self.points = points
        self.folds = folds
        self.kernel = points @ points.T
        # libsvm breaks ties between rows by their squared lengths, which are all 1 except for
        # rounding. The lengths are rounded here as libsvm rounds them, because libsvm would choose
        # other rows if a matrix product rounded them.
        dot: Any = get_blas_funcs("dot", (points,))
        lengths = [dot(row, row) for row in points]
        np.fill_diagonal(self.kernel, lengths)
        # The arrays are contiguous, so that libsvm reads them without a copy.
        self.trains = [self.kernel[np.ix_(fold.train, fold.train)] for fold in folds]
        self.tests = [self.kernel[np.ix_(fold.test, fold.train)] for fold in folds]

    def small(self, fold: int, right: Bools) -> SmallC:
        rows = self.folds[fold]
        train_right = right[rows.train]
        duals = balanced_signs(train_right)
        trained = self.trains[fold] @ duals
        tested = self.tests[fold] @ duals
        highest = trained[train_right].max()
        lowest = trained[~train_right].min()
        middle = (highest + lowest) / 2
        # With an intercept at an end of the interval, all rows are predicted as one side, and the
        # score is one half.
        return _small_c(trained, tested, middle, right[rows.test], least=0.5)

    def plane(self, right: Bools, C: float) -> tuple[Floats, float]:
        """Return the weights (width,) and the intercept of the SVM that is fitted to all rows."""
        duals, intercept = self.fit(self.kernel, right, C)
        return duals @ self.points, intercept

    def fit(self, rows: Floats, right: Bools, C: float) -> tuple[Floats, float]:
        from sklearn.svm import SVC

        weights = balanced_weights(right)
        model = SVC(kernel="precomputed", class_weight=weights, C=C)
        model.fit(rows, right.astype(np.int64))
        duals = np.zeros(len(right))
        duals[model.support_] = model.dual_coef_[0]
        return duals, float(model.intercept_[0])


class LinearSolver(_FoldSolver):
    """Solves SVMs with liblinear, if a class has too many rows for a kernel. The intercept is
    penalised too."""

    name: Literal["linear"] = "linear"
    reaches = operator.gt

    def __init__(self, points: Floats, folds: Sequence[Fold], seed: int) -> None:
        self.points = points
        self.folds = folds
        self.seed = seed
        self.trains = [points[fold.train] for fold in folds]
        self.tests = [points[fold.test] for fold in folds]

    def small(self, fold: int, right: Bools) -> SmallC:
        rows = self.folds[fold]
        weights = balanced_signs(right[rows.train]) @ self.trains[fold]
        trained = self.trains[fold] @ weights
        tested = self.tests[fold] @ weights
        return _small_c(trained, tested, 0.0, right[rows.test], least=0.0)

    def plane(self, right: Bools, C: float) -> tuple[Floats, float]:
        return self.fit(self.points, right, C)

    def fit(self, rows: Floats, right: Bools, C: float) -> tuple[Floats, float]:
        from sklearn.svm import LinearSVC

        model: Any = LinearSVC(
            loss="hinge",
            dual=True,
            tol=1e-3,
            C=C,
            class_weight=balanced_weights(right),
            random_state=self.seed,
            max_iter=10_000,
        )
        model.fit(rows, right.astype(np.int64))
        weights = model.coef_[0].copy()
        return weights, float(model.intercept_[0])


Solver: TypeAlias = KernelSolver | LinearSolver


def balanced_weights(right: Bools) -> dict[int, float]:
    """Return scikit-learn's "balanced" class weights, faster than its own computation."""
    rows = len(right)
    count = int(right.sum())
    of_wrong = rows / (2 * (rows - count))
    of_right = rows / (2 * count)
    return {0: of_wrong, 1: of_right}


def balanced_signs(right: Bools) -> Floats:
    """Return the bounds of the dual variables for C = 1: each row's weight, negative for wrong
    rows."""
    weights = balanced_weights(right)
    return np.where(right, weights[1], -weights[0])


def _small_c(
    trained: Floats,
    tested: Floats,
    threshold: float,
    right: Bools,
    least: float,
) -> SmallC:
    """Bound scores for small C. trained, tested: decisions from `balanced_signs`. least: score of
    other intercepts."""
    lowest = min(trained.min(), tested.min())
    highest = max(trained.max(), tested.max())
    # For liblinear, whose intercept is then zero, no decision may reach 1 or -1.
    span = max(highest - lowest, abs(highest), abs(lowest))
    near = _NEAR * span
    right_hits = (tested[right] > threshold - near).mean()
    wrong_hits = (tested[~right] <= threshold + near).mean()
    limit = _SMALL / span if span > 0 else 0.0
    score = float(right_hits + wrong_hits) / 2
    return SmallC(limit, max(least, score))


# Scores that differ by less than this are equal.
TIE = 1e-9


def permuted_labels(
    right: Bools,
    units: Ints | None,
    folds: Sequence[Fold],
    seed: int,
) -> Iterator[Bools]:
    """Yield permuted labels (n,) without end. Within a test fold, units of equal size exchange
    their labels."""
    rng = np.random.default_rng([seed, 1])  # 1: other draws than those of the folds
    blocks: list[Ints] = []
    for fold in folds:
        blocks += _blocks(fold.test, units)
    while True:
        labels = right.copy()
        for block in blocks:
            permuted = rng.permutation(block, axis=0)
            labels[block] = right[permuted]
        yield labels


def _blocks(rows: Ints, units: Ints | None) -> list[Ints]:
    """Return the rows of a fold as arrays (units, size), one array for each size of unit."""
    if units is None:
        return [rows[:, None]]
    order = np.argsort(units[rows], kind="stable")
    of_unit = rows[order]
    _, starts, sizes = np.unique(units[of_unit], return_index=True, return_counts=True)
    blocks = []
    for size in np.unique(sizes):
        begin = starts[sizes == size]
        places = begin[:, None] + np.arange(size)
        blocks.append(of_unit[places])
    return blocks


def reaches_score(
    solver: Solver,
    right: Bools,
    grid: Sequence[float],
    score: float,
) -> bool:
    """Return whether the best mean score over the grid reaches `score`. Skip fits that cannot
    change the answer."""
    folds = len(solver.folds)
    needed = (score - TIE) * folds
    small = [solver.small(fold, right) for fold in range(folds)]
    for C in sorted(grid, reverse=True):
        most = [solution.most if solution.limit > C else 1.0 for solution in small]
        for fold, rows in enumerate(solver.folds):
            if sum(most) < needed:
                break
            predicted = solver.predicted(fold, right, C)
            most[fold] = balanced_accuracy(right[rows.test], predicted)
        if sum(most) >= needed:
            return True
    return False


# The values of C in the released code of Jain 2023.
GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FOLDS = 2
PERMUTATIONS = 200
FEWEST_ERRORS = 10
MOST_KERNEL_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Direction:
    """The direction of a class in whitened space."""

    weights: Floats
    """(width,)."""
    intercept: float
    C: float
    strength: float
    """The mean balanced accuracy over the folds, with its 95 % `interval`."""
    interval: tuple[float, float]
    p: float
    """The p-value of the strength under permuted labels."""
    rows: int
    errors: int
    solver: Literal["kernel", "linear"]

    def decision(self, points: AnyFloats) -> Floats:
        """Return decision values (n,) of points (n, width) from `whiten`: above 0 for easy, below 0
        for hard points."""
        doubles = np.asarray(points, np.float64)
        return doubles @ self.weights + self.intercept


def whiten(features: AnyFloats, centre: AnyFloats, deviation: AnyFloats) -> Floats:
    """Return (features - centre) / deviation with rows of unit length, (n, width). centre,
    deviation: (width,)."""
    centre = np.asarray(centre, np.float64)
    deviation = np.asarray(deviation, np.float64)
    centred = np.asarray(features, np.float64) - centre
    # The deviation of a constant column is about 1e-16 of its value, because of rounding.
    varied = deviation > 1e-12 * np.maximum(1.0, np.abs(centre))
    scaled = centred / np.where(varied, deviation, 1.0)
    return unit_rows(np.where(varied, scaled, 0.0))


def unit_rows(vectors: Floats) -> Floats:
    """Scale rows to length 1; a row of zeros stays unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def fit_direction(
    points: Floats,
    right: Bools,
    units: Ints | None = None,
    *,
    seed: int,
    grid: Sequence[float] = GRID,
    permutations: int = PERMUTATIONS,
    fewest_errors: int = FEWEST_ERRORS,
    most_kernel_rows: int = MOST_KERNEL_ROWS,
) -> Direction | str:
    """Return a class's direction (scikit-learn's SVC or LinearSVC, balanced), or a text that says
    why it has none.

    points: (n, width), whitened. right: (n,). units: (n,); rows of one unit share a fold and are
    permuted together.
    """
    points = np.ascontiguousarray(points, np.float64)
    right = np.asarray(right, np.bool_)
    reason = reason_against_direction(right, units, FOLDS, fewest_errors)
    if reason is not None:
        return reason
    folds = deal_folds(right, units, FOLDS, seed)
    if isinstance(folds, str):
        return folds
    from sklearn import config_context

    # for thousands of small fits
    with config_context(assume_finite=True, skip_parameter_validation=True):
        small = len(right) <= most_kernel_rows
        solver = KernelSolver(points, folds) if small else LinearSolver(points, folds, seed)
        truths = [right[fold.test] for fold in folds]
        grid = sorted(grid)
        best = grid[0]
        chosen: list[Bools] = []
        strength = 0.0
        for C in grid:
            predicted = [solver.predicted(fold, right, C) for fold in range(FOLDS)]
            of_folds = list(map(balanced_accuracy, truths, predicted))
            score = float(np.mean(of_folds))
            if not chosen or score > strength + TIE:
                best = C
                chosen = predicted
                strength = score
        weights, intercept = solver.plane(right, best)
        permuted = permuted_labels(right, units, folds, seed)
        reached = (reaches_score(solver, labels, grid, strength) for labels in permuted)
        p = sequential_p(reached, permutations)
    fold_units = None
    if units is not None:
        fold_units = [units[fold.test] for fold in folds]
    return Direction(
        weights,
        intercept,
        best,
        strength,
        interval=balanced_accuracy_interval(truths, chosen, fold_units),
        p=p,
        rows=len(right),
        errors=int((~right).sum()),
        solver=solver.name,
    )


def fit_directions(
    points: Floats,
    right: Bools,
    labels: Ints,
    classes: int,
    units: Ints | None,
    fit: DirectionFit,
    workers: int | None = 1,
) -> list[Direction | str]:
    """Return the result of `fit_direction` for every class. labels: (n,). workers: how many
    processes, without effect on results. Each needs up to 600 MB for a class of 5,000 rows.
    """
    items = []
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        of_class = None if units is None else units[rows]
        item = _ClassRows(label, points[rows], right[rows], of_class)
        items.append(item)
    # largest classes first, so that workers end together
    items.sort(key=lambda item: -len(item.right))
    by_label: dict[int, Direction | str] = {}
    for event in engine_for(("cpu",), workers).run(fit, items):
        if isinstance(event, Finished):
            by_label[event.item.label] = event.result
            report_progress("fitting directions", len(by_label), classes)
    return [by_label[label] for label in range(classes)]


@dataclass(frozen=True, slots=True, eq=False)
class _ClassRows:
    label: int
    points: Floats
    right: Bools
    units: Ints | None


@dataclass(frozen=True)
class DirectionFit:
    """The settings of fits, as an `engines.engine.Work` for workers."""

    seed: int
    permutations: int = PERMUTATIONS
    fewest_errors: int = FEWEST_ERRORS
    device: str = "none"  # workers need no torch

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "sklearn.svm", "sklearn.model_selection", "scipy.stats")

    def on(self, device: str) -> DirectionFit:
        """Return itself, because fits use NumPy on every device."""
        return self

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[_ClassRows], Doing[int, Direction | str]]]:
        from threadpoolctl import threadpool_limits

        def fit_class(item: _ClassRows) -> Doing[int, Direction | str]:
            yield from ()
            return fit_direction(
                item.points,
                item.right,
                item.units,
                seed=self.seed,
                permutations=self.permutations,
                fewest_errors=self.fewest_errors,
            )

        with threadpool_limits(1, "blas"):  # with more threads, sums would be rounded differently
            yield fit_class
