"""Shares and means over classifiers, with an interval where there are enough of them."""

from __future__ import annotations

from collections.abc import Sequence

from directions_proof.intervals import SHARE, mean_of, share_of


def share_text(counts: Sequence[tuple[float, float]]) -> str:
    """The share of all counts in percent: (of, among) of each classifier; a dash of none."""
    return share_of([one for one in counts if one[1]]).text(percent=True)


def mean_share_text(values: Sequence[float]) -> str:
    """The mean of one share a classifier, in percent."""
    return mean_of(values, SHARE).text(percent=True)
