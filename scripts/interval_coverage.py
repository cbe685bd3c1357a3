"""Counts of proofs of intervals: how often the intervals of drawn sets hold the truth, how wide
they are, and how far values are above it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

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


def percent(share: np.floating | float) -> str:
    """Return a share of sets in %, bold if it is below 93."""
    shown = f"{100 * float(share):.1f}"
    return f"**{shown}**" if 100 * share < 93 else shown
