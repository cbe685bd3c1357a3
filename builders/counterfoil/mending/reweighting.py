"""Deep Feature Reweighting (Kirichenko 2023): the head fitted again on as many rows of every group as of the smallest.

Groups by truth are a bound of what mending could reach, groups by CLIP a rival that draws no image. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.fitting import Lesson
from counterfoil.mending.sampling import rows_of_cells

# A group with fewer rows does not set the number of all others.
FEWEST_ROWS = 5


def balanced_lesson(
    features: NDArray[np.floating],
    targets: NDArray[np.integer],
    classes: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    seed: int,
    fewest: int = FEWEST_ROWS,
) -> Lesson:
    """Of n rows of the discover half, a draw with equal numbers in every cell of class and group.

    features (n, d), targets, classes and groups (n,). Cells with fewer than `fewest` rows bring all of theirs; the
    number is that of the smallest of the others. UserError where no cell has so many rows.
    """
    _, cells, sizes = np.unique(np.stack([classes, groups]), axis=1, return_inverse=True, return_counts=True)
    cells = cells.ravel().astype(np.int64)
    large = sizes[sizes >= fewest]
    if not len(large):
        raise UserError(
            f"groups of {len(classes):,} rows: none has {fewest} rows of one class, so none can be drawn evenly",
            "Use fewer groups, or more images.",
        )
    most = dict.fromkeys(range(len(sizes)), int(large.min()))
    rows = rows_of_cells(cells, most, seed)
    return Lesson(features[rows], targets[rows])
