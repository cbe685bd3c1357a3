"""Intervals over worlds, one function for all proofs: Student's t, within what is possible, from
five worlds on.

A bootstrap over k worlds covers 51 % at k = 2, 82 at 4 and 88 at 6 where it says 95.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from counterfoil.stats import clustered_interval

# Of fewer worlds no interval is given: at four Student's t is already half as wide again as the
# deviation known.
FEWEST = 5
Range = tuple[float, float]
SHARE = (0.0, 1.0)
DIFFERENCE = (-1.0, 1.0)
POSITIVE = (0.0, np.inf)
ANY = (-np.inf, np.inf)
"""What is possible: of a share, of a difference of two shares, of a ratio, of any number."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval over so many worlds; NaN where there is none."""

    value: float
    low: float
    high: float
    worlds: int

    def text(self, digits: int = 2, percent: bool = False) -> str:
        """Return `.72 (.65 to .80)`, or percent; without brackets if there is no interval."""
        ends = (
            f"{number:.0%}".replace("%", " %") if percent else f"{number:.{digits}f}"
            for number in self._numbers()
        )
        return _bracketed(*ends)

    def points(self) -> str:
        """Return a difference of shares in points: `+3.8 (+2.5 to +5.4)`."""
        return _bracketed(*(f"{100 * number:+.1f}" for number in self._numbers()))

    def _numbers(self) -> tuple[float, ...]:
        if not np.isfinite(self.value):
            return ()
        return (
            (self.value, self.low, self.high)
            if np.isfinite([self.low, self.high]).all()
            else (self.value,)
        )


def _bracketed(value: str = "–", *ends: str) -> str:
    return f"{value} ({' to '.join(ends)})" if ends else value


def mean_of(values: Sequence[float], possible: Range = DIFFERENCE) -> Estimate:
    """Return the mean of one value a world, each in what is `possible`, with Student's t interval.

    There is no interval if all worlds have one value, unless that is an end of what is possible: a
    share that is 1 in all of n worlds is shown as n of n are.
    """
    numbers = np.asarray(values, np.float64)
    if not len(numbers):
        return _without(float("nan"), 0)
    value = float(numbers.mean())
    if possible == SHARE and value in SHARE:
        return share_of([(number, 1.0) for number in numbers.tolist()])
    deviation = float(numbers.std(ddof=1)) if len(numbers) >= FEWEST else 0.0
    if not deviation > 0:
        return _without(value, len(numbers))
    half = float(stats.t.ppf(0.975, len(numbers) - 1)) * deviation / np.sqrt(len(numbers))
    return Estimate(
        value, max(possible[0], value - half), min(possible[1], value + half), len(numbers)
    )


def share_of(counts: Sequence[tuple[float, float]]) -> Estimate:
    """Return the share of all counts: (of, among) of each world, summed, then divided; worlds are
    its units."""
    among = [(float(of), float(all_)) for of, all_ in counts if all_]
    if not among:
        return _without(float("nan"), len(counts))
    part, whole = np.transpose(among)
    share = float(part.sum() / whole.sum())
    if len(among) < FEWEST:
        return _without(share, len(counts))
    return Estimate(share, *clustered_interval(part, whole), len(counts))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return Spearman's correlation of two values a world, with the interval of Bonett and Wright
    (2000) by Student's t."""
    if len(pairs) < 2:
        return _without(float("nan"), len(pairs))
    value = float(stats.spearmanr(*np.transpose(pairs)).statistic)  # type: ignore[attr-defined]
    if len(pairs) < FEWEST or not abs(value) < 1:
        return _without(value, len(pairs))
    half = float(stats.t.ppf(0.975, len(pairs) - 2)) * np.sqrt(
        (1 + value**2 / 2) / (len(pairs) - 3)
    )
    low, high = np.tanh([np.arctanh(value) - half, np.arctanh(value) + half])
    return Estimate(value, float(low), float(high), len(pairs))


def _without(value: float, worlds: int) -> Estimate:
    return Estimate(value, float("nan"), float("nan"), worlds)
