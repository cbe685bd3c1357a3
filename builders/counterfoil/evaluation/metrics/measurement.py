"""What a metric is computed from: one model on the base and under one shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import Estimate


@dataclass(frozen=True)
class ShiftMeasurement:
    """One model under one shift. Accuracies are fractions, averaged over the classes that are measured.

    base_accuracy, drop: values. base_replicates, drop_replicates: (replicates,) of the bootstrap, drawn together; NaN
    where a draw has no image. class_base_accuracy, class_accuracy: (classes,), those that are measured. right: (n,)
    bool, every readable image of the shift, whatever its class. agreed: what classes whose images all agree, of which
    every draw gives the same, add below and above the drop.
    """

    base_accuracy: float
    drop: float
    base_replicates: NDArray[np.float64]
    drop_replicates: NDArray[np.float64]
    class_base_accuracy: NDArray[np.float64]
    class_accuracy: NDArray[np.float64]
    right: NDArray[np.bool_]
    agreed: tuple[float, float] = (0.0, 0.0)


# None where the number has no value, such as a share of nothing.
Metric = Callable[[ShiftMeasurement], Estimate | None]
