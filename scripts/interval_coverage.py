"""Counts of proofs of intervals: how often the intervals of drawn sets hold the truth, how wide
they are, and how far values are above it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from counterfoil.resampled_stats import Drawn, simultaneous_intervals, weighted_sum
from counterfoil.stats import Estimate


class Coverage:
    """The intervals and values of drawn sets, by the key of each number or of several at once."""

    def __init__(self) -> None:
        self._sets: dict[Hashable, list[tuple[bool, float, float]]] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yield the keys that a set has counted for, in the order in which they came."""
        return iter(self._sets)

    def add(self, key: Hashable, estimates: Sequence[Estimate], truths: Sequence[float]) -> None:
        """Add a set, unless one of its intervals is missing; it counts where all hold their
        truth."""
        inside = True
        widths = []
        above = []
        for estimate, truth in zip(estimates, truths, strict=True):
            if estimate.low is None or estimate.high is None:
                return
            inside &= estimate.low - 1e-12 <= truth <= estimate.high + 1e-12
            widths.append(estimate.high - estimate.low)
            above.append(estimate.value - truth)
        of_set = inside, float(np.mean(widths)), float(np.mean(above))
        self._sets.setdefault(key, []).append(of_set)

    def cell(self, key: Hashable, fewest: float = 1) -> str:
        """Return coverage in % and the median width in points, or a dash for fewer sets."""
        sets = self._sets.get(key, [])
        if len(sets) < fewest:
            return "–"
        inside, widths, _ = np.array(sets, np.float64).T
        return f"{percent(inside.mean())} ({100 * np.median(widths):.1f})"

    def above(self, key: Hashable, fewest: float = 1) -> str:
        """Return how far values are above the truth on average, in points, or a dash."""
        sets = self._sets.get(key, [])
        if len(sets) < fewest:
            return "–"
        return f"{100 * np.mean([above for _, _, above in sets]):+.1f}"


def coverage_rows(
    covered: Mapping[int, Coverage],
    fewest: Mapping[int, float],
) -> Iterator[list[Any]]:
    """Yield each key with its coverage in sets of each size, and how far values are above the truth
    in the smallest sets.

    covered: by the size of sets. fewest: with how many sets of a size a cell has a number.
    """
    for key in dict.fromkeys(chain(*covered.values())):
        cells = [of_size.cell(key, fewest[size]) for size, of_size in covered.items()]
        smallest = min(covered)
        yield [key, *cells, covered[smallest].above(key, fewest[smallest])]


def intervals_of(numbers: Sequence[Drawn]) -> list[Estimate]:
    """Return the interval of a number, or those of several, which hold at once."""
    if len(numbers) > 1:
        return simultaneous_intervals(numbers)
    return [number.interval() for number in numbers]


def less(number: Drawn, other: Drawn) -> Drawn:
    """Return a number less another of the same images."""
    return weighted_sum([(1.0, number), (-1.0, other)])


def percent(share: np.floating | float) -> str:
    """Return a share of sets in %, bold if it is below 93."""
    shown = f"{100 * float(share):.1f}"
    return f"**{shown}**" if 100 * share < 93 else shown
