"""What images that all agree leave open, from counts alone: Wilson's intervals, put together over classes.

Of a class whose images are all right, or all wrong, a bootstrap draws the same share every time: it has no width there,
as if nothing were left open. What is left open is Wilson's interval of that share. The ends of a difference or a sum of
independent shares are found from the ends of each: distances of the ends add as standard errors do (Newcombe 1998,
Statistics in Medicine 17, 873, method 10; Zou and Donner 2008). Pairs of images that are right together and wrong
together have a difference without width too, which their correlation opens (Newcombe 1998, 17, 2635, method 10).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import NORMAL

# How far the lower and the upper end of an interval are from the value for what a bootstrap leaves out, (models,) each.
EndDistances: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]


def wilson_bounds(
    accuracy: NDArray[np.float64], total: NDArray[np.int64] | int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high end of the Wilson score interval of shares of `total` images, which may be averages of shares."""
    n = np.asarray(total, dtype=np.float64)
    square = NORMAL**2
    centre = (accuracy + square / (2 * n)) / (1 + square / n)
    spread = accuracy * (1 - accuracy) / n + square / (4 * n * n)
    half = NORMAL * np.sqrt(np.maximum(spread, 0.0)) / (1 + square / n)
    return np.clip(centre - half, 0.0, accuracy), np.clip(centre + half, accuracy, 1.0)


def distances_of_share(accuracy: NDArray[np.float64], total: int) -> EndDistances:
    """Those of shares (models,) of `total` images that all agree; 0 of others."""
    below, above = _distances(accuracy, total)
    agree = (accuracy == 0) | (accuracy == 1)
    return np.where(agree, below, 0.0), np.where(agree, above, 0.0)


def distances_of_difference(
    base: tuple[NDArray[np.float64], int],
    shift: tuple[NDArray[np.float64], int],
    base_correct: NDArray[np.bool_],
    shift_correct: NDArray[np.bool_],
) -> EndDistances:
    """Those of base accuracy minus accuracy, (models,), each given with its number of images.

    base_correct, shift_correct: (pairs, models), of the images that are paired; of none where none are.
    """
    base_below, base_above = distances_of_share(*base)
    shift_below, shift_above = distances_of_share(*shift)
    below, above = np.hypot(base_below, shift_above), np.hypot(base_above, shift_below)
    if len(base_correct) == base[1] == shift[1]:
        mixed = (base[0] > 0) & (base[0] < 1)
        same = mixed & (base_correct == shift_correct).all(axis=0)
        one_below, one_above = _distances(*base)
        # Equal shares: either end of the difference is as far.
        spread = one_below**2 + one_above**2 - 2 * _correlation(base_correct, shift_correct) * one_below * one_above
        open_ends = np.sqrt(np.maximum(spread, 0.0))
        below, above = np.where(same, open_ends, below), np.where(same, open_ends, above)
    return below, above


def _distances(accuracy: NDArray[np.float64], total: int) -> EndDistances:
    low, high = wilson_bounds(accuracy, total)
    return accuracy - low, high - accuracy


def _correlation(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The correlation of right answers to paired images, (models,), with Newcombe's correction for continuity."""
    pairs = len(first)
    both, only_first = (first & second).sum(axis=0), (first & ~second).sum(axis=0)
    only_second = (~first & second).sum(axis=0)
    neither = pairs - both - only_first - only_second
    product = both * neither - only_first * only_second
    product = np.where(product > 0, np.maximum(product - pairs / 2, 0.0), product)
    sides = (both + only_first, only_second + neither, both + only_second, only_first + neither)
    root = np.sqrt(np.prod(np.stack(sides).astype(np.float64), axis=0))
    return np.divide(product, root, out=np.zeros(first.shape[1]), where=root > 0)
