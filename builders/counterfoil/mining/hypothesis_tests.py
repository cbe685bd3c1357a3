"""Whether a set of images fails more often than the rest of its class: tests, intervals and q-values, on numbers alone.

Rows that share a unit (a garment, a patient) are not independent: every count is divided by the design effect of
`stats.py`, with one correlation for the set and the rest. A unit with rows in the set and in the rest makes the
two alike, which is left out of account and makes the test stricter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from counterfoil.stats import CONFIDENCE, effective_size, few_units_interval, unit_correlation, wilson_interval

# Sets and rests that are smaller are not tested: no rate of so few says anything.
FEWEST_ROWS = 5
# Nor of so few units: how alike rows of one unit fail is told by other units alone.
FEWEST_UNITS = 5
POWER = 0.8


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Failures among rows. effective_rows: how many independent rows they are worth, at most `rows`."""

    rows: int
    units: int
    failures: int
    effective_rows: float

    @property
    def rate(self) -> float:
        """The failure rate; NaN of no rows."""
        return self.failures / self.rows if self.rows else float("nan")

    @property
    def effective_failures(self) -> float:
        return self.rate * self.effective_rows


def count_failures(
    failed: NDArray[np.bool_], units: NDArray[np.int64], in_set: NDArray[np.bool_]
) -> tuple[FailureCount, FailureCount]:
    """(the set, the rest) of n rows: `failed` (n,), `units` (n,) where equal numbers share a unit, `in_set` (n,)."""
    parts = [_by_unit(failed[part], units[part]) for part in (in_set, ~in_set)]
    correlation = unit_correlation(*parts)
    inside, outside = (
        FailureCount(int(rows.sum()), len(rows), int(failures.sum()), effective_size(rows, correlation))
        for failures, rows in parts
    )
    return inside, outside


def _by_unit(failed: NDArray[np.bool_], units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(failures, rows) of each unit that has a row, (k,) each."""
    _, place, rows = np.unique(units, return_inverse=True, return_counts=True)
    return np.bincount(place.ravel()[failed], minlength=len(rows)), rows


def p_value(in_set: FailureCount, rest: FailureCount, margin: float) -> float:
    """One-sided p of H0 "the set's rate is at most the rest's plus `margin`" (0 ≤ margin < 1).

    The score test of Farrington and Manning (1990), which takes the variance where H0 just holds, so that no rate of 0
    or 1 makes it vanish. 1 where either part has fewer than `FEWEST_ROWS` rows or `FEWEST_UNITS` units.
    """
    if _too_few(in_set, rest):
        return 1.0
    difference = in_set.rate - rest.rate - margin
    if difference <= 0 and margin == 0 and in_set.failures + rest.failures == 0:
        return 1.0
    low = _rate_under_margin(in_set, rest, margin)
    high = low + margin
    variance = high * (1 - high) / in_set.effective_rows + low * (1 - low) / rest.effective_rows
    if variance <= 0:
        return 1.0
    # Miettinen and Nurminen's factor for small counts.
    total = in_set.effective_rows + rest.effective_rows
    return float(stats.t.sf(difference / np.sqrt(variance * total / (total - 1)), _degrees(in_set, rest, high, low)))


def _degrees(in_set: FailureCount, rest: FailureCount, high: float, low: float) -> float:
    """Degrees of freedom of a difference of these rates, by Welch and Satterthwaite; infinite where rows are units."""
    variances, squares = 0.0, 0.0
    for part, rate in ((in_set, high), (rest, low)):
        variance = rate * (1 - rate) / part.effective_rows
        variances += variance
        if part.units < part.rows:
            squares += variance**2 / (part.units - 1)
    return variances**2 / squares if squares > 0 else float("inf")


def _too_few(in_set: FailureCount, rest: FailureCount) -> bool:
    return min(in_set.rows, rest.rows) < FEWEST_ROWS or min(in_set.units, rest.units) < FEWEST_UNITS


def _rate_under_margin(in_set: FailureCount, rest: FailureCount, margin: float) -> float:
    """The rest's rate that makes the counts likeliest where the set's is exactly `margin` higher."""

    def loss(low: float) -> float:
        parts = ((in_set, low + margin), (rest, low))
        return -sum(
            _xlogy(part.effective_failures, rate) + _xlogy(part.effective_rows - part.effective_failures, 1 - rate)
            for part, rate in parts
        )

    found = optimize.minimize_scalar(loss, bounds=(0.0, 1.0 - margin), method="bounded", options={"xatol": 1e-9})
    return float(found.x)


def _xlogy(count: float, rate: float) -> float:
    return 0.0 if count <= 0 else count * float(np.log(max(rate, 1e-300)))


def rate_interval(count: FailureCount, level: float = CONFIDENCE) -> tuple[float, float] | None:
    """The interval of a failure rate by the rule of `stats.py`; None of no rows."""
    if not count.rows:
        return None
    if count.units == count.rows:
        return wilson_interval(count.failures, count.rows, level)
    return few_units_interval(count.rate, count.effective_rows, count.units, level)


def difference_interval(
    in_set: FailureCount, rest: FailureCount, level: float = CONFIDENCE
) -> tuple[float, float] | None:
    """The interval of the set's rate less the rest's, from both (Newcombe 1998, method 10); None of no rows."""
    one, other = rate_interval(in_set, level), rate_interval(rest, level)
    if one is None or other is None:
        return None
    difference = in_set.rate - rest.rate
    below = np.hypot(in_set.rate - one[0], other[1] - rest.rate)
    above = np.hypot(one[1] - in_set.rate, rest.rate - other[0])
    return float(difference - below), float(difference + above)


def q_values(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's, over all hypotheses that were carried to the test."""
    return [float(one) for one in stats.false_discovery_control(np.asarray(p, dtype=np.float64))] if len(p) else []


def selected_level(reported: int, tested: int, fdr: float) -> float:
    """The level of intervals of *reported* findings, so that of them a share `fdr` misses at most on average (FCR).

    1 - fdr · reported / tested (Benjamini and Yekutieli 2005).
    """
    return 1 - fdr * reported / tested if tested else 1 - fdr


def smallest_difference(
    in_set: FailureCount, rest: FailureCount, margin: float, fdr: float, tested: int
) -> float | None:
    """The smallest true difference that a test of these sizes would have shown four times in five.

    At the level of a single discovery among `tested`, fdr / tested, by the same approximation with the rest's rate as
    measured. None where no difference would have.
    """
    if _too_few(in_set, rest):
        return None
    alpha = fdr / max(tested, 1)
    low = (rest.effective_failures + 0.5) / (rest.effective_rows + 1)

    def short(difference: float) -> float:
        high = min(low + difference, 1.0)
        variance = high * (1 - high) / in_set.effective_rows + low * (1 - low) / rest.effective_rows
        degrees = _degrees(in_set, rest, high, low)
        reach = stats.t.isf(alpha, degrees) + stats.t.ppf(POWER, degrees)
        return float(difference - margin - reach * np.sqrt(variance))

    most = 1 - low
    if short(most) < 0:
        return None
    if short(margin) >= 0:
        return margin
    found: Any = optimize.brentq(short, margin, most)
    return float(found)
