"""Intervals over worlds: worlds are drawn again with replacement, whole, and a statistic is computed of each draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]
DRAWS = 4000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval over so many worlds; NaN where there is none."""

    value: float
    low: float
    high: float
    worlds: int

    def text(self, digits: int = 2, percent: bool = False) -> str:
        """`.72 (.65 to .80)`, or in percent."""
        if not np.isfinite(self.value):
            return "–"
        if percent:
            return f"{self.value:.0%} ({self.low:.0%} to {self.high:.0%})".replace("%", " %")
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def over_worlds(worlds: Sequence[Sequence[float]], statistic: Callable[[Floats], Floats], seed: int = 0) -> Estimate:
    """A statistic of n worlds of m values, and the percentiles 2.5 and 97.5 over draws of n worlds with replacement.

    statistic: (draws,) of (draws, n, m). Draws where it is NaN (nothing was reported in any world drawn) are left out.
    """
    values = np.asarray(worlds, np.float64)
    if not len(values):
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    rng = np.random.default_rng(seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = statistic(values[rng.integers(0, len(values), (DRAWS, len(values)))])
        whole = float(statistic(values[None])[0])
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.percentile(drawn, [2.5, 97.5]) if len(drawn) else (np.nan, np.nan)
    return Estimate(whole, float(low), float(high), len(values))


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of one value a world."""
    return over_worlds([[float(value)] for value in values], lambda drawn: drawn[:, :, 0].mean(axis=1))


def share_of(counts: Sequence[tuple[float, float]]) -> Estimate:
    """The share of all counts: (of, among) of each world, summed before they are divided."""
    return over_worlds(counts, lambda drawn: drawn[:, :, 0].sum(axis=1) / drawn[:, :, 1].sum(axis=1))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Spearman's, of two values a world."""

    def spearman(drawn: Floats) -> Floats:
        ranks = rankdata(drawn, axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        left, right = ranks[:, :, 0], ranks[:, :, 1]
        return (left * right).sum(axis=1) / np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))

    return over_worlds(pairs, spearman)
