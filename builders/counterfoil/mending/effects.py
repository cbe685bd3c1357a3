"""Which drawn images a head would have had with fewer contexts a class, or fewer images a context (Figure 5). Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.sampling import rows_of_cells


def rows_within(
    ranks: NDArray[np.int64],
    shifts: NDArray[np.int64],
    *,
    k: int | None = None,
    images: int | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Rows of n drawn images, in order: of each class's first k contexts, at most so many images a context.

    ranks: (n,), 0 for the context that most failures of its class have. shifts: (n,), which context it is. None is all.
    Fewer are a part of more, so that a curve's points differ by what was added.
    """
    kept = np.arange(len(ranks)) if k is None else np.flatnonzero(ranks < k)
    if images is None:
        return kept
    return kept[rows_of_cells(shifts[kept], dict.fromkeys(np.unique(shifts).tolist(), images), seed)]
