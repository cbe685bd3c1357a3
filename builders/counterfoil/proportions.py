"""Shares of counts: Wilson's interval, and the line over which an accuracy is more than chance. Plain numbers alone."""

from __future__ import annotations

import math

CONFIDENCE = 0.95
NORMAL = 1.959963984540054  # the normal quantile of CONFIDENCE, on both sides

# How much of the way from chance to certainty an accuracy must surely have come.
MARGIN = 0.1


def wilson_interval(part: float, whole: float) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927), from 0 to 1; all of it for a share of nothing.

    The share is in it. Counts need not be whole: weighted ones are worth a number of independent ones.
    """
    part, whole = float(part), float(whole)  # numpy's numbers would go on into documents
    if whole <= 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, part / whole))
    square = NORMAL**2
    middle = (share + square / (2 * whole)) / (1 + square / whole)
    half = NORMAL * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole)) / (1 + square / whole)
    # At none and at all an end is the share itself, but for rounding.
    low = 0.0 if share == 0 else min(share, max(0.0, middle - half))
    high = 1.0 if share == 1 else max(share, min(1.0, middle + half))
    return low, high


def chance_line(chance: float) -> float:
    """The accuracy that is more than guessing: `MARGIN` of the way up from chance."""
    return chance + MARGIN * (1 - chance)
