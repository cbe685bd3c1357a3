"""How well a direction tells right from wrong: balanced accuracy over folds, and its interval, clustered by unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import clustered_interval


def balanced_accuracy(right: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """The mean of the share of right rows predicted right and that of wrong rows predicted wrong; both (n,)."""
    return float((np.mean(~predicted[~right]) + np.mean(predicted[right])) / 2)


def strength_interval(
    right: Sequence[NDArray[np.bool_]],
    predicted: Sequence[NDArray[np.bool_]],
    units: Sequence[NDArray[np.int64]] | None,
) -> tuple[float, float]:
    """The 95 % interval of the mean balanced accuracy of the folds; one array of rows a fold.

    The strength is a mean of recalls: of right and of wrong rows, in each fold. Each recall gets an interval
    (`stats.py`: Wilson's, or that of rows which share units), and their distances to the value add up as
    independent errors do (MOVER, Zou 2008): with ten errors of which all are seen a bootstrap would say that nothing
    can vary. One unit's recalls of right and of wrong rows go against each other, so that taking them as independent
    widens. The interval holds for the folds and for the C that was chosen: that the best of the grid is flattering is
    told by the permutation p, not by it.
    """
    below = above = value = 0.0
    weight = 1 / (2 * len(right))
    for place, (truth, answer) in enumerate(zip(right, predicted, strict=True)):
        for label in (True, False):
            rows = truth == label
            hits = answer[rows] == label
            share = float(hits.mean())
            low, high = clustered_interval(*_by_unit(hits, None if units is None else units[place][rows]))
            value += weight * share
            below += (weight * (share - low)) ** 2
            above += (weight * (high - share)) ** 2
    return float(max(0.0, value - below**0.5)), float(min(1.0, value + above**0.5))


def _by_unit(hits: NDArray[np.bool_], units: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(recalled rows, rows) of each unit, (k,) each."""
    if units is None:
        return hits.astype(np.int64), np.ones(len(hits), np.int64)
    _, place, sizes = np.unique(units, return_inverse=True, return_counts=True)
    return np.bincount(place.ravel()[hits], minlength=len(sizes)), sizes
