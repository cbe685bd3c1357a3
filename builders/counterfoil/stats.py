"""Shares of counts, of independent rows and of rows that share units, and the line over which one is more than chance.

Rows that share a unit (a garment, a patient, a caption) fail alike. Whoever makes an interval or a test of such rows
divides their counts by one *design effect*, 1 + (m - 1)·ρ, with ρ of `unit_correlation` and m the row-weighted mean
size of a unit (Kish 1965; Donner and Klar 2000, chapter 6), and takes `few_units_interval`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CONFIDENCE = 0.95
NORMAL = 1.959963984540054  # the normal quantile of CONFIDENCE, on both sides

# Values of a unit correlation that are weighed.
_GRID = 30

# How much of the way from chance to certainty an accuracy must surely have come.
MARGIN = 0.1


@dataclass(frozen=True)
class Estimate:
    """A number with its two-sided 95 % interval; the bounds are None where none can be given."""

    # A document that holds one is as strict about it as about itself.
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}
    value: float
    low: float | None = None
    high: float | None = None


def wilson_interval(part: float, whole: float, level: float = CONFIDENCE) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927), from 0 to 1; all of it for a share of nothing.

    The share is in it. Counts need not be whole: weighted ones are worth a number of independent ones.
    """
    part, whole = float(part), float(whole)  # numpy's numbers would go on into documents
    if whole <= 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, part / whole))
    normal = NORMAL if level == CONFIDENCE else NormalDist().inv_cdf(0.5 + level / 2)
    square = normal**2
    middle = (share + square / (2 * whole)) / (1 + square / whole)
    half = normal * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole)) / (1 + square / whole)
    # At none and at all an end is the share itself, but for rounding.
    low = 0.0 if share == 0 else min(share, max(0.0, middle - half))
    high = 1.0 if share == 1 else max(share, min(1.0, middle + half))
    return low, high


def unit_correlation(*parts: tuple[ArrayLike, ArrayLike]) -> float:
    """How alike rows of one unit are, from 0 to 1, told by parts that may have shares of their own.

    parts: (counts (k,), rows (k,)) by unit. Units' shares are taken as Beta-distributed around the part's own; the
    correlation is its posterior mean, where before its root may be anything from 0 to 1. Of few units the estimate of
    moments is often 0 where rows are alike, and an interval from it covers 77 to 87 % for 95. 0 where each row is its
    own unit.
    """
    import numpy as np
    from scipy.special import betaln

    # Denser near 0, where many small units tell a correlation finely.
    grid = ((np.arange(_GRID) + 0.5) / _GRID) ** 2
    spread = (1 - grid) / grid
    likelihood = np.zeros(_GRID)
    alone = True
    for counts, rows in parts:
        part, whole = np.asarray(counts, np.float64), np.asarray(rows, np.float64)
        total = whole.sum()
        alone = alone and bool((whole == 1).all())
        if not 0 < part.sum() < total:
            continue  # nothing varies
        # Units that have the same counts are weighed once.
        (own, of), times = np.unique(np.stack([part, whole]), axis=1, return_counts=True)
        a, b = part.sum() / total * spread, (1 - part.sum() / total) * spread
        each = betaln(a + own[:, None], b + (of - own)[:, None]) - betaln(a, b)
        likelihood += times @ each
    if alone:
        return 0.0
    weight = np.exp(likelihood - likelihood.max())
    return float(weight @ grid / weight.sum())


def effective_size(rows: ArrayLike, correlation: float) -> float:
    """How many independent rows those of units (k,) are worth."""
    import numpy as np

    whole = np.asarray(rows, np.float64)
    total = float(whole.sum())
    return total / (1 + (float((whole**2).sum()) / total - 1) * correlation) if total else 0.0


def few_units_interval(share: float, effective: float, units: int, level: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of a share of rows that are worth `effective` independent ones, of so many units.

    Clopper and Pearson's on the effective counts, which are no whole numbers and are fewer by the ratio of a normal to
    a t quantile, squared (Korn and Graubard 1998). t has twice the degrees of freedom of the units: with as many as
    units tell it covered too much in simulations (`scripts/prove_intervals.py`), with none too little. Where no row
    counts, or every one, nothing tells how alike units are: the bound is that of as many units.
    """
    from scipy import stats

    tail = (1 - level) / 2
    if units <= 0:
        return 0.0, 1.0
    if share in (0, 1):
        bound = tail ** (1 / units)
        return (0.0, 1 - bound) if share == 0 else (bound, 1.0)
    if units == 1:
        return 0.0, 1.0
    effective *= float(stats.norm.isf(tail) / stats.t.isf(tail, 2 * (units - 1))) ** 2
    part, rest = share * effective, (1 - share) * effective
    return float(stats.beta.ppf(tail, part, rest + 1)), float(stats.beta.isf(tail, part + 1, rest))


def clustered_interval(counts: ArrayLike, rows: ArrayLike, level: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the share of all rows, of counts (k,) and rows (k,) by unit; Wilson's where units are rows."""
    import numpy as np

    part, whole = np.asarray(counts, np.float64), np.asarray(rows, np.float64)
    if (whole == 1).all():
        return wilson_interval(float(part.sum()), float(whole.sum()), level)
    effective = effective_size(whole, unit_correlation((part, whole)))
    share = float(part.sum() / whole.sum()) if whole.sum() else 0.0
    return few_units_interval(share, effective, len(whole), level)


def chance_line(chance: float) -> float:
    """The accuracy that is more than guessing: `MARGIN` of the way up from chance."""
    return chance + MARGIN * (1 - chance)
