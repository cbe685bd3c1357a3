"""Which rows a head learns from: so many of each class, and arms of a comparison cut to equal numbers of each class.

What is drawn of a class depends on the seed, the class and its own rows alone. Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

# Chegini 2023, section 5.1: 30 training images a class of ImageNet.
MOST_PER_CLASS = 30


def train_rows(labels: NDArray[np.int64], most_per_class: int = MOST_PER_CLASS, seed: int = 0) -> NDArray[np.int64]:
    """Rows of n labels, in order: at most so many of each class, all of a class that has fewer.

    Fewer are a part of more: rows at 10 a class are among those at 30.
    """
    return rows_of_cells(labels, dict.fromkeys(np.unique(labels).tolist(), most_per_class), seed)


def equal_numbers(arms: Mapping[str, NDArray[np.int64]], seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """For arms by name, each with its images' labels (n_arm,), rows of each arm that leave all arms alike.

    Of each class every arm keeps as many as the arm that has the fewest; of a class that one arm lacks, none.
    """
    classes = sorted({label for labels in arms.values() for label in np.unique(labels).tolist()})
    fewest = {label: min(int((labels == label).sum()) for labels in arms.values()) for label in classes}
    return {name: rows_of_cells(labels, fewest, seed) for name, labels in arms.items()}


def rows_of_cells(cells: NDArray[np.int64], most: Mapping[int, int], seed: int) -> NDArray[np.int64]:
    """Rows of n cell numbers, in order: at most `most[cell]` of each cell, drawn without replacement.

    A cell's draw is the beginning of one shuffle, whatever the others and the numbers are.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for cell in np.unique(cells).tolist():
        rows = np.flatnonzero(cells == cell)
        shuffled = np.random.default_rng([seed, cell]).permutation(rows)
        chosen.append(shuffled[: most.get(cell, 0)])
    return np.sort(np.concatenate(chosen))
