"""Shares and means over classifiers, with an interval where there are enough of them to be drawn again."""

from __future__ import annotations

from collections.abc import Sequence

from directions_proof.intervals import Estimate, mean_of, share_of

# A bootstrap over fewer says nothing of how they differ.
FEWEST = 4


def share_text(counts: Sequence[tuple[float, float]]) -> str:
    """The share of all counts in percent: (of, among) of each classifier; a dash of none."""
    return _text(share_of([one for one in counts if one[1]]), percent=True)


def mean_text(values: Sequence[float], percent: bool = False) -> str:
    """The mean of one value a classifier."""
    return _text(mean_of(values), percent)


def _text(found: Estimate, percent: bool) -> str:
    if not found.worlds:
        return "–"
    if found.worlds < FEWEST:
        return f"{100 * found.value:.0f} %" if percent else f"{found.value:.2f}"
    return found.text(percent=percent)
