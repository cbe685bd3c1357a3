"""A failure rate where images were drawn until a number of failures was found: Wiles 2022 stops at 20.

Stopping at a failure makes failures / images too high (5 % of the rate at 20 failures, 23 % at 5). Where the k-th
failure came n-th, (k - 1) / (n - 1) is unbiased (Haldane 1945). It estimates; it is no test, and enters no e-BH.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@dataclass(frozen=True, slots=True)
class StoppedRate:
    """A rate of n images. k: failures among them; n: images up to the k-th failure, or all where it was not reached.

    rate: (k - 1) / (n - 1) where it was reached, else k / n, NaN of no image. interval: low and high.
    """

    k: int
    n: int
    rate: float
    interval: tuple[float, float]
    reached: bool


def stopped_rate(failed: ArrayLike, k: int, level: float = 0.95) -> StoppedRate:
    """The rate of images in drawing order, `failed` (images,) boolean, up to the k-th failure.

    Images after it are left out: n is the position of the failure and not the end of its batch. Where a cap on images
    came first, the rate is failures / images. The interval is exact in both cases: whether the k-th failure comes by
    the n-th image is the same question as whether n images have k failures, Clopper and Pearson's. Raises ValueError
    where k is below 2, for one failure estimates nothing.
    """
    if k < 2:
        raise ValueError(f"a rate up to the k-th failure needs k of at least 2, not {k}")
    drawn = np.asarray(failed, dtype=np.bool_)
    if drawn.ndim != 1:
        raise ValueError(f"images in drawing order are one array, not one of shape {drawn.shape}")
    positions = np.flatnonzero(drawn)
    if len(positions) >= k:
        n = int(positions[k - 1]) + 1
        return StoppedRate(k, n, (k - 1) / (n - 1), _interval(k, n, level, reached=True), True)
    seen, n = len(positions), len(drawn)
    return StoppedRate(seen, n, seen / n if n else nan, _interval(seen, n, level, reached=False), False)


def _interval(k: int, n: int, level: float, *, reached: bool) -> tuple[float, float]:
    """A stop at the k-th failure had k - 1 failures in n - 1 images before it, which is what bounds the rate above."""
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, k, n - k + 1)) if k else 0.0
    if k == n:
        return low, 1.0
    return low, float(stats.beta.isf(tail, k if reached else k + 1, n - k))
