"""Estimate the level of a shift at which a model begins to fail, from trajectories.

A trajectory is one scene on the base and at each level of a shift. A level is in (0, 1]; 0 is the
base. K levels make K + 1 *cells*: cell k < K is (level k - 1, level k], and cell K is beyond the
top level. A failure is known to lie in a run of cells, from `first` to `last`. The run begins after
the last level with a right answer and ends at the first level with a wrong answer; a missing level
makes the run wider. The share of trajectories that have failed by each level is the nonparametric
maximum-likelihood estimate for such runs (Turnbull 1976), computed by self-consistency. All models
answer the same trajectories, so models are not compared by a log-rank test, which assumes
independence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are first used

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.resampled_stats import FEWEST_IMAGES, Units
from counterfoil.stats import Estimate, wilson_intervals

PERMUTATIONS = 10_000
_AT_ONCE = 1_000  # permutations held in memory at once
_REPLICATES = 400  # bootstrap replicates for the variance of a share
# Self-consistency stops when no share moves by more than this: for the estimate, and for a
# bootstrap replicate.
_STILL = 1e-8
_STILL_ENOUGH = 1e-5
_MOST_STEPS = 5_000
# A share may miss a mark by this much through rounding and still reach it: 0.9 - 0.8 counts as ten
# points.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Reached:
    """The level at which a rising curve first reaches a mark, with its 95 % interval; infinite if
    beyond the top."""

    value: float
    low: float
    high: float


def rising_reaches(
    curve: Sequence[Estimate],
    levels: Floats,
    weights: Floats,
    mark: float,
) -> Reached:
    """Return the level at which a curve of K estimates first reaches `mark` > 0.

    Isotonic regression with `weights` first makes the curve rise. The curve starts from 0 at level
    0 and is linear between levels. The ends of the interval are the levels at which the upper and
    lower bounds, made to rise in the same way, reach the mark. An unknown bound is replaced by the
    widest possible one.
    """
    values = []
    lows = []
    highs = []
    for point in curve:
        low, high = point.low, point.high
        values.append(point.value)
        lows.append(-1.0 if low is None else low)
        highs.append(1.0 if high is None else high)
    levels = np.append(0.0, levels)

    def first_level(heights: Sequence[float]) -> float:
        fit: Any = scipy.optimize.isotonic_regression(heights, weights=weights)
        risen = np.append(0.0, np.maximum(fit.x, 0.0))
        reached = risen >= mark - _ROUNDING
        if not reached[-1]:
            return math.inf
        index = int(reached.argmax())
        before = risen[index - 1]
        after = risen[index]
        start = levels[index - 1]
        way = min(1.0, (mark - before) / (after - before))
        return float(start + (levels[index] - start) * way)

    return Reached(
        value=first_level(values),
        low=first_level(highs),
        high=first_level(lows),
    )


# ---- Failure points


def failure_runs(
    present: Bools,
    right: Bools,
    *,
    lasting: bool = False,
) -> tuple[Ints, Ints]:
    """Return the first and the last cell of the run in which each of n trajectories fails, (n, m)
    each, for m models.

    All models are taken to be right at the base. present (n, K): which levels exist. right (n, K,
    m): ignored for missing levels. lasting: a failure is the level from which on all answers are
    wrong, rather than the first wrong answer.
    """
    exists = present[:, :, None]
    top = present.shape[1]
    levels = np.arange(top)[:, None]
    right_at = np.where(exists & right, levels, -1)
    wrong_at = np.where(exists & ~right, levels, top)
    if lasting:
        last_right = right_at.max(axis=1)
        after = wrong_at > last_right[:, None]
        wrong = np.where(after, wrong_at, top).min(axis=1)
    else:
        wrong = wrong_at.min(axis=1)
        before = right_at < wrong[:, None]
        last_right = np.where(before, right_at, -1).max(axis=1)
    return last_right + 1, wrong


def recovered(present: Bools, right: Bools) -> Bools:
    """Return (n, m) bool: whether a model is right again at a level above one at which it is
    wrong."""
    exists = present[:, :, None]
    wrong_before = np.logical_or.accumulate(exists & ~right, axis=1)
    right_again = exists & right & wrong_before
    return np.asarray(right_again.any(axis=1))


def failure_shares(
    counts: Floats | Ints,
    runs: Ints,
    cells: int,
    still: float = _STILL,
) -> Floats:
    """Return the share of trajectories that fail in each cell, (…, cells).

    runs: (runs, 2), the first and the last cell of each run. counts: (…, runs), the number of
    trajectories with each run; every row of counts needs a trajectory. If no run separates some
    cells, their share is spread evenly over them.
    """
    inside = _inside(runs, cells).astype(np.float64)
    weights = counts / counts.sum(axis=-1, keepdims=True)
    shape = (*counts.shape[:-1], cells)
    shares = np.full(shape, 1 / cells)
    for _ in range(_MOST_STEPS):
        of_runs = np.maximum(shares @ inside.T, 1e-300)
        after = shares * ((weights / of_runs) @ inside)
        moved = np.abs(after - shares).max()
        shares = after
        if moved < still:
            break
    return shares


def _inside(runs: Ints, cells: int) -> Bools:
    numbers = np.arange(cells)
    begun = runs[:, :1] <= numbers
    return begun & (numbers <= runs[:, 1:])


def failed_curve(
    first: Ints,
    last: Ints,
    levels: int,
    rng: np.random.Generator,
    units: Units | None = None,
) -> list[Estimate]:
    """Return the share of n trajectories that have failed by each level; empty if n = 0.

    first, last: (n,), the run of each trajectory. The interval is Wilson's. A bootstrap gives the
    variance of the share, and the interval uses the number of trajectories that would have this
    variance without missing levels. units: of trajectories, which are then drawn together. Few
    units give no interval.
    """
    n = len(first)
    if not n:
        return []
    runs, run, counts = _distinct(first, last)
    if units is None:
        # Trajectories with equal runs are interchangeable, so the draw is of their counts.
        drawn = rng.multinomial(n, counts / n, size=_REPLICATES)
    else:
        has_run = run[:, None] == np.arange(len(runs))
        drawn = units.drawn(_REPLICATES, rng) @ has_run.astype(np.float64)
    cells = levels + 1
    shares = failure_shares(counts, runs, cells)
    curve = shares.cumsum()[:levels]
    curve = curve.clip(0.0, 1.0)
    drawn_shares = failure_shares(drawn, runs, cells, _STILL_ENOUGH)
    drawn_curves = drawn_shares.cumsum(axis=-1)[:, :levels]
    variance = drawn_curves.var(axis=0)
    independent = n
    if units is not None:
        if units.count < FEWEST_IMAGES:
            return [Estimate(point) for point in curve.tolist()]
        variance = variance * units.count / (units.count - 1)
        independent = units.count
    worth = np.full(levels, float(independent))
    np.divide(curve * (1 - curve), variance, out=worth, where=variance > 0)
    low, high = wilson_intervals(curve, worth.clip(1.0, n))
    points = np.stack([curve, low, high], axis=1)
    return [Estimate(*point) for point in points.tolist()]


def _distinct(first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the distinct runs, (runs, 2), the run of each failure, and the failures of each
    run."""
    every = np.stack([first, last], axis=1)
    runs, run, counts = np.unique(every, axis=0, return_inverse=True, return_counts=True)
    return runs, run.ravel(), counts


# ---- Comparing models


def failure_scores(
    first: Ints,
    last: Ints,
    right_at_base: Bools,
    levels: Floats,
) -> Floats:
    """Return the expected level of each failure given its run, (n, m), at most the top level; NaN
    if wrong at the base.

    The expectation uses the shares of all models together. Swapping two models within a trajectory
    does not change these shares.
    """
    cells = len(levels) + 1
    ends = np.append(0.0, levels)
    middle = (ends[:-1] + ends[1:]) / 2
    middle = np.append(middle, levels[-1])
    scores = np.full(first.shape, np.nan)
    if not right_at_base.any():
        return scores
    runs, run, counts = _distinct(first[right_at_base], last[right_at_base])
    shares = failure_shares(counts, runs, cells)
    weights = _inside(runs, cells) * np.maximum(shares, 1e-12)
    expected = (weights @ middle) / weights.sum(axis=1)
    scores[right_at_base] = expected[run]
    return scores


def swap_test(
    differences: Floats, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> list[float]:
    """Return the two-sided p of k comparisons by random swaps of signs.

    differences: (n, k). Under the null hypothesis, either sign of a difference is equally likely.
    """
    seen = np.abs(differences.sum(axis=0))
    as_far = np.ones(len(seen), dtype=np.int64)
    for start in range(0, permutations, _AT_ONCE):
        block = min(_AT_ONCE, permutations - start)
        positive = rng.integers(0, 2, size=(block, len(differences)))
        signs = 2.0 * positive - 1.0
        sums = np.abs(signs @ differences)
        as_far += (sums >= seen - 1e-9).sum(axis=0)
    p = as_far / (1 + permutations)
    return p.tolist()


def model_ranks(low: Floats, high: Floats, values: Floats) -> Ints:
    """Return (m, 3): the rank of each of m models by `values` (m,), and its lowest and highest
    possible rank.

    Rank 1 is the best. low, high (m, m): bounds of the row's value minus the column's value. A
    model ranks below every model that is surely better and above every model that is surely worse.
    """
    ahead = values > values[:, None]
    ranks = [
        1 + ahead.sum(axis=1),
        1 + (high < 0).sum(axis=1),
        len(values) - (low > 0).sum(axis=1),
    ]
    return np.stack(ranks, axis=1)
