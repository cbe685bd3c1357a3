"""Balanced linear SVMs on one class's rows for any labels, C and fold: what does not depend on those is made once.

**Small C.** While no margin is reached, every row stands at its bound: the weights are C times the difference of the
balanced class means, whatever C is, and any intercept of an interval is as good as any other. libsvm takes the middle
of it, unless rounding has left a row a hair's breadth from its bound: then it takes an end, which predicts the same for
all rows. (Which of the two happens is chance, so that scores of small C jump between .5 and a sensible one;
scikit-learn's do, and these are scikit-learn's.) LinearSVC leaves the intercept at zero. So a product with the kernel
tells how high the scores of all small C can be, and permutations need no fit of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.directions.folds import Fold

# Rows so near the threshold, as a share of the range of decisions, are counted for whichever side scores more: libsvm
# keeps its kernel in single precision.
_NEAR = 1e-5
# Both ends of the interval of intercepts predict alike for all rows while decisions range over less than 1; a little
# less, for libsvm stops at a violation of .001.
_SMALL = 0.9


@dataclass(frozen=True, slots=True)
class SmallC:
    """What is known without a fit: for C below `limit` the score of this fold is at most `most`."""

    limit: float
    most: float


class Solver(Protocol):
    """SVMs of one class's rows; labels are given to each call, so that permuted ones share the work."""

    @property
    def name(self) -> Literal["kernel", "linear"]: ...

    @property
    def folds(self) -> Sequence[Fold]: ...

    def predicted(self, fold: int, right: NDArray[np.bool_], C: float) -> NDArray[np.bool_]:
        """Whether the fold's test rows are predicted right by an SVM of its training rows; right: (n,), all rows."""
        ...

    def small(self, fold: int, right: NDArray[np.bool_]) -> SmallC:
        """How high the fold's scores can be for small C."""
        ...

    def plane(self, right: NDArray[np.bool_], C: float) -> tuple[NDArray[np.float64], float]:
        """Weights (width,) and intercept of the SVM of all rows."""
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
    """What scikit-learn's "balanced" comes to, n / (2 · rows of a kind): to find it takes longer than a small fit."""
    rows, count = len(right), int(right.sum())
    return {0: rows / (2 * (rows - count)), 1: rows / (2 * count)}


def balanced_signs(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Duals at their bounds for C 1: the weight of each row, above zero for right rows and below for wrong ones."""
    weights = balanced_weights(right)
    return np.where(right, weights[1], -weights[0])


def _small_c(
    trained: NDArray[np.float64],
    tested: NDArray[np.float64],
    threshold: float,
    right: NDArray[np.bool_],
    least: float,
) -> SmallC:
    """From the decisions of C 1 with every dual at its bound; `least`: what another intercept may score."""
    lowest, highest = min(trained.min(), tested.min()), max(trained.max(), tested.max())
    # With the threshold at zero no decision may reach 1 itself.
    spread = max(highest - lowest, abs(highest), abs(lowest))
    near = _NEAR * spread
    hits = (tested[right] > threshold - near).mean() + (tested[~right] <= threshold + near).mean()
    return SmallC(_SMALL / spread if spread > 0 else 0.0, max(least, float(hits) / 2))
