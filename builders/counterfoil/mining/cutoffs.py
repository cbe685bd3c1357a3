"""Where the set of a caption ends: a share of each class's rows, chosen on the discover half and then fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import FailureCount, count_failures, score_test

# Which side of a caption a set lies on: the images nearest to it, or those with the least of what it adds.
Role = Literal["hard", "far_from"]

# Shares of a class that a set may be. Below a tenth few rows are left to test; above a half the rest is the exception.
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def choose_cutoffs(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    failed: NDArray[np.bool_],
    units: NDArray[np.int64],
    classes: Sequence[int],
    role: Role,
    margin: float,
) -> tuple[tuple[float, ...], NDArray[np.bool_], tuple[FailureCount, FailureCount]]:
    """The cut-off of each class, the set (n,), and its and the rest's failures, for n rows of `classes`.

    cosines: (n,) with the caption. The same share of every class, so that a set is no choice among classes: the one
    whose set is least likely to fail as seldom as the rest and the margin allow; of equal ones the largest.
    """
    tried = []
    for share in SHARES:
        cutoffs = cutoffs_at(cosines, labels, classes, role, share)
        members = cut(cosines, labels, classes, cutoffs, role)
        counts = count_failures(failed, units, members)
        tried.append((score_test(*counts, margin), (cutoffs, members, counts)))
    return min(reversed(tried), key=lambda one: one[0])[1]


def cutoffs_at(
    cosines: NDArray[np.floating], labels: NDArray[np.int64], classes: Sequence[int], role: Role, share: float
) -> tuple[float, ...]:
    """The cosine that `share` of each class's rows reach (hard) or stay under (far_from)."""
    level = 1 - share if role == "hard" else share
    return tuple(float(np.quantile(cosines[labels == label], level)) for label in classes)


def cut(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    classes: Sequence[int],
    cutoffs: Sequence[float],
    role: Role,
) -> NDArray[np.bool_]:
    """(n,) which rows are in the set."""
    limits = np.full(int(labels.max(initial=-1)) + 1, np.nan)
    for label, cutoff in zip(classes, cutoffs, strict=True):
        if label < len(limits):
            limits[label] = cutoff
    with np.errstate(invalid="ignore"):  # rows of other classes have no limit, and are in no set
        return cosines >= limits[labels] if role == "hard" else cosines <= limits[labels]
