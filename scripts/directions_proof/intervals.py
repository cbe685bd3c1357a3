"""Intervals over worlds, one function for all proofs: Student's t, within what is possible, from
five worlds on.

A bootstrap over k worlds covers 51 % at k = 2, 82 at 4 and 88 at 6 where it says 95.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    worlds: int
    low: float = np.nan
    high: float = np.nan

    def text(self, percent: bool = False) -> str:
        """Return `.72 (.65 to .80)`, or percent; without brackets if there is no interval."""
        return self._written(percent_of if percent else "{:.2f}".format)

    def points(self) -> str:
        """Return a difference of shares in points: `+3.8 (+2.5 to +5.4)`."""
        return self._written(lambda number: f"{100 * number:+.1f}")

    def _written(self, write: Callable[[float], str]) -> str:
        if not np.isfinite(self.value):
            return "–"
        if not np.isfinite([self.low, self.high]).all():
            return write(self.value)
        return f"{write(self.value)} ({write(self.low)} to {write(self.high)})"


def percent_of(share: float) -> str:
    """Return `72 %`."""
    return f"{100 * share:.0f} %"


def mean_percent(shares: Sequence[float]) -> str:
    """Return the mean of one share a world with its interval, in percent."""
    return mean_of(shares, SHARE).text(percent=True)


def share_percent(counts: Iterable[tuple[float, float]]) -> str:
    """Return the share of all counts with its interval, in percent, as `share_of` takes them."""
    return share_of(list(counts)).text(percent=True)


def mean_of(values: Sequence[float], possible: Range = DIFFERENCE) -> Estimate:
    """Return the mean of one value a world, each in what is `possible`, with Student's t interval.

    There is no interval if all worlds have one value, unless that is an end of what is possible: a
    share that is 1 in all of n worlds is shown as n of n are.
    """
    numbers = np.asarray(values, np.float64)
    if not len(numbers):
        return Estimate(np.nan, 0)
    value = float(numbers.mean())
    if possible == SHARE and value in SHARE:
        return share_of([(number, 1.0) for number in numbers.tolist()])
    deviation = float(numbers.std(ddof=1)) if len(numbers) >= FEWEST else 0.0
    if not deviation > 0:
        return Estimate(value, len(numbers))
    half = float(stats.t.ppf(0.975, len(numbers) - 1)) * deviation / np.sqrt(len(numbers))
    return Estimate(
        value, len(numbers), max(possible[0], value - half), min(possible[1], value + half)
    )


def share_of(counts: Sequence[tuple[float, float]]) -> Estimate:
    """Return the share of all counts: (of, among) of each world, summed, then divided; worlds are
    its units."""
    among = [(float(of), float(all_)) for of, all_ in counts if all_]
    if not among:
        return Estimate(np.nan, len(counts))
    part, whole = np.transpose(among)
    share = float(part.sum() / whole.sum())
    if len(among) < FEWEST:
        return Estimate(share, len(counts))
    return Estimate(share, len(counts), *clustered_interval(part, whole))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return Spearman's correlation of two values a world, with the interval of Bonett and Wright
    (2000) by Student's t."""
    if len(pairs) < 2:
        return Estimate(np.nan, len(pairs))
    value = float(stats.spearmanr(*np.transpose(pairs)).statistic)  # type: ignore[attr-defined]
    if len(pairs) < FEWEST or not abs(value) < 1:
        return Estimate(value, len(pairs))
    half = float(stats.t.ppf(0.975, len(pairs) - 2)) * np.sqrt(
        (1 + value**2 / 2) / (len(pairs) - 3)
    )
    low, high = np.tanh([np.arctanh(value) - half, np.arctanh(value) + half])
    return Estimate(value, len(pairs), float(low), float(high))
