"""How alike models fail, and how much of its own mending's gain a model keeps when it is mended by another's images.

Chegini 2023, sections 5.2.2 and 5.3.2. Pure functions on arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def failure_overlap(failed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(m, m) intersection over union of the failures of m models on the same n rows, failed (m, n); NaN of none."""
    counted = failed.astype(np.float64)
    both = counted @ counted.T
    each = counted.sum(axis=1)
    either = each[:, None] + each[None, :] - both
    return np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0)


def kept_gain(own: float, other: float) -> float | None:
    """The gain by another's images as a share of the gain by its own; None where its own gained nothing to keep."""
    return other / own if own > 0 else None
