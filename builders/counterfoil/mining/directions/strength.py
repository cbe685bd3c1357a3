"""How well a direction tells right from wrong: balanced accuracy over folds, and its interval, clustered by unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import clustered_interval, count_by_unit, mover


def balanced_accuracy(right: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """The mean of the share of right rows predicted right and that of wrong rows predicted wrong; both (n,)."""
    return float((np.mean(~predicted[~right]) + np.mean(predicted[right])) / 2)


def strength_interval(
    right: Sequence[NDArray[np.bool_]],
    predicted: Sequence[NDArray[np.bool_]],
    units: Sequence[NDArray[np.int64]] | None,
) -> tuple[float, float]:
    """The 95 % interval of the mean balanced accuracy of the folds; one array of rows a fold.

    The strength is a mean of recalls: of right and of wrong rows, in each fold. Each recall has its
    `clustered_interval`, and `mover` joins them: with ten errors of which all are seen a bootstrap would say that
    nothing can vary. One unit's recalls of right and of wrong rows go against each other, so that taking them as
    independent widens. The interval holds for the folds and for the C that was chosen: that the best of the grid is
    flattering is told by the permutation p, not by it.
    """
    value, ends = 0.0, []
    weight = 1 / (2 * len(right))
    for place, (truth, answer) in enumerate(zip(right, predicted, strict=True)):
        for label in (True, False):
            rows = truth == label
            hits = answer[rows] == label
            share = float(hits.mean())
            low, high = clustered_interval(*count_by_unit(hits, None if units is None else units[place][rows]))
            value += weight * share
            ends.append((weight * (share - low), weight * (high - share)))
    below, above = mover(*ends)
    return max(0.0, value - float(below)), min(1.0, value + float(above))
