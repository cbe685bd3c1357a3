"""Conditions as problems of two classes each, over one array of features that none of them copies.

Condition k of K is label 2k for rows that have it and 2k + 1 for rows that do not. A row takes part in all K problems,
and a method sees one at a time, with the labels of its two classes only:

    for problem in binary_problems(features, present, failed, units):
        half = replace(half, labels=problem.labels, failed=problem.failed, answers=problem.answers)
        directions = fit_directions(problem.features, ~problem.failed, problem.labels, problem.classes, problem.units)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BinaryProblem:
    """One condition of n rows, told from those that lack it.

    classes: its labels, present and absent. features (n, width) and units (n,) are the arrays of all problems, not
    copies. labels: (n,) int64. failed: (n,) bool. answers: (n, 2) int32, the label that was answered, then the other.
    """

    classes: tuple[int, int]
    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    answers: NDArray[np.int32]
    units: NDArray[np.int64]


def binary_problems(
    features: NDArray[np.floating],
    present: NDArray[np.bool_],
    failed: NDArray[np.bool_],
    units: NDArray[np.int64],
) -> Iterator[BinaryProblem]:
    """The problem of each condition in order: features (n, width), present and failed (n, K), units (n,).

    ValueError for arrays that are not of n rows and K conditions.
    """
    n = len(features)
    if present.ndim != 2 or present.shape != failed.shape or len(present) != n or units.shape != (n,):
        shapes = ", ".join(str(each.shape) for each in (features, present, failed, units))
        raise ValueError(f"expected (n, width), (n, K), (n, K) and (n,), found {shapes}")
    for k in range(present.shape[1]):
        labels = np.where(present[:, k], 2 * k, 2 * k + 1).astype(np.int64)
        # Of two labels a wrong answer is the other one.
        answered = (labels ^ failed[:, k]).astype(np.int32)
        yield BinaryProblem(
            classes=(2 * k, 2 * k + 1),
            features=features,
            labels=labels,
            failed=failed[:, k],
            answers=np.stack([answered, answered ^ 1], axis=1),
            units=units,
        )


def row_labels(present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every row with each of its K labels: rows and labels, int64 [n * K], a row's labels one after the other."""
    n, k = present.shape
    rows = np.repeat(np.arange(n, dtype=np.int64), k)
    return rows, (2 * np.arange(k) + ~present).reshape(-1).astype(np.int64)
