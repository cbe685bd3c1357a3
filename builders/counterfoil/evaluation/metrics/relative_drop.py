"""The share of its base accuracy that a model loses under a shift."""

from __future__ import annotations

import numpy as np

from counterfoil.evaluation.metrics.measurement import ShiftMeasurement
from counterfoil.stats import Estimate, percentile_interval


def relative_drop(measured: ShiftMeasurement) -> Estimate | None:
    """Drop over base accuracy, with the percentile interval of the ratio; None for a base accuracy of 0.

    1 is a model that knows nothing any more. Of a base near chance it says little: its interval is wide, and there is
    none where the base accuracy of a draw is 0. What every draw gives the same is opened as the drop's interval is.
    """
    if measured.base_accuracy == 0:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        replicates = measured.drop_replicates / measured.base_replicates
    value = measured.drop / measured.base_accuracy
    if (measured.base_replicates == 0).any():
        return Estimate(value)
    below, above = (side / measured.base_accuracy for side in measured.agreed)
    return percentile_interval(value, replicates, (below, above), least=-np.inf)
