"""Trajectories: one scene at its base and at each level of a shift, and the level at which a model begins to fail.

A level is in (0, 1]; 0 is the base. K levels make K + 1 *cells*: cell k < K is (level k - 1, level k], cell K is beyond
the top. A failure is located in a run of cells, `first` to `last`: after the last level seen right, up to the first
seen wrong; a missing level widens the run. The share that has failed by each level is the nonparametric maximum
likelihood estimate for such runs (Turnbull 1976), by self-consistency. Two models judge the same trajectories, so a
log-rank test, which assumes independence, is invalid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are first used
from numpy.typing import NDArray

from counterfoil.stats import Estimate, wilson_intervals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PERMUTATIONS = 10_000
_AT_ONCE = 1_000  # permutations
_REPLICATES = 400  # of the variance of a share
# Self-consistency stops when no share moves by more: exactly, and for a replicate.
_STILL, _STILL_ENOUGH = 1e-8, 1e-5
_MOST_STEPS = 5_000
# Rounding of sums and self-consistency when a share is compared with a mark: .9 minus .8 is ten points.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Reached:
    """The point at which a rising curve first reaches a mark, with its 95 % interval; infinite if beyond the top."""

    value: float
    low: float
    high: float


def rising_reaches(curve: Sequence[Estimate], levels: Floats, weights: Floats, mark: float) -> Reached:
    """Find where a curve of estimates (K), made to rise (isotonic regression with `weights`), first reaches `mark` > 0.

    It is linear between levels and from 0 at 0. The ends are where its upper and lower bounds, made to rise too, reach
    the mark; an unknown bound is taken as the worst.
    """
    return Reached(
        _first_reaches([point.value for point in curve], levels, weights, mark),
        _first_reaches([1.0 if point.high is None else point.high for point in curve], levels, weights, mark),
        _first_reaches([-1.0 if point.low is None else point.low for point in curve], levels, weights, mark),
    )


def _first_reaches(values: Sequence[float], levels: Floats, weights: Floats, mark: float) -> float:
    risen: Any = scipy.optimize.isotonic_regression(values, weights=weights)
    curve = np.concatenate([[0.0], np.maximum(risen.x, 0.0)])
    reached = curve >= mark - _ROUNDING
    if not reached[-1]:
        return math.inf
    index = int(reached.argmax())
    before, after = curve[index - 1], curve[index]
    start = levels[index - 2] if index > 1 else 0.0
    return float(start + (levels[index - 1] - start) * min(1.0, (mark - before) / (after - before)))


# ---- Failure points


def failure_runs(present: NDArray[np.bool_], right: NDArray[np.bool_], *, lasting: bool = False) -> tuple[Ints, Ints]:
    """Return the first and the last cell (n, m) in which each of n trajectories fails, of m models right at the base.

    present (n, K): which levels exist. right (n, K, m), ignored for missing levels. lasting: a failure is "wrong from
    there on" rather than the first wrong answer.
    """
    exists = present[:, :, None]
    levels = np.arange(present.shape[1])[None, :, None]
    seen_right, seen_wrong = exists & right, exists & ~right
    top = present.shape[1]
    if lasting:
        last_right = np.where(seen_right, levels, -1).max(axis=1)
        wrong = np.where(seen_wrong & (levels > last_right[:, None]), levels, top).min(axis=1)
    else:
        wrong = np.where(seen_wrong, levels, top).min(axis=1)
        last_right = np.where(seen_right & (levels < wrong[:, None]), levels, -1).max(axis=1)
    return last_right + 1, wrong


def recovered(present: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return (n, m) which trajectories are right again at a level above one where they are wrong."""
    exists = present[:, :, None]
    wrong_before = np.logical_or.accumulate(exists & ~right, axis=1)
    return np.asarray((exists & right & wrong_before).any(axis=1))


def failure_shares(counts: Floats, runs: Ints, cells: int, still: float = _STILL) -> Floats:
    """Return (…, cells) the share that fails in each cell, from `counts` (…, runs) of trajectories by run (runs, 2).

    Every row of counts needs a trajectory. Mass is spread evenly over cells that no run distinguishes.
    """
    inside = _inside(runs, cells).astype(np.float64)
    weights = counts / counts.sum(axis=-1, keepdims=True)
    shares = np.full((*counts.shape[:-1], cells), 1 / cells)
    for _ in range(_MOST_STEPS):
        after = shares * ((weights / np.maximum(shares @ inside.T, 1e-300)) @ inside)
        moved = np.abs(after - shares).max()
        shares = after
        if moved < still:
            break
    return shares


def _inside(runs: Ints, cells: int) -> NDArray[np.bool_]:
    return (runs[:, :1] <= np.arange(cells)) & (np.arange(cells) <= runs[:, 1:])


def failed_curve(first: Ints, last: Ints, levels: int, rng: np.random.Generator) -> list[Estimate]:
    """Return the share of n trajectories, runs `first` and `last` (n,), that has failed by each level; empty if n = 0.

    The interval is Wilson's, for as many trajectories as would vary alike without missing levels, by a bootstrap.
    """
    n = len(first)
    if not n:
        return []
    runs, counts = np.unique(np.stack([first, last], axis=1), axis=0, return_counts=True)
    # Trajectories of one run are drawn by number, which is the same distribution.
    drawn = rng.multinomial(n, counts / n, size=_REPLICATES).astype(np.float64)
    curve = failure_shares(counts.astype(np.float64), runs, levels + 1).cumsum()[:levels].clip(0.0, 1.0)
    curves = failure_shares(drawn, runs, levels + 1, _STILL_ENOUGH).cumsum(axis=-1)[:, :levels]
    variance = curves.var(axis=0)
    worth = np.divide(curve * (1 - curve), variance, out=np.full(levels, float(n)), where=variance > 0)
    low, high = wilson_intervals(curve, worth.clip(1.0, n))
    return [Estimate(*point) for point in zip(curve.tolist(), low.tolist(), high.tolist(), strict=True)]


# ---- Comparing models


def failure_scores(first: Ints, last: Ints, right_at_base: NDArray[np.bool_], levels: Floats) -> Floats:
    """Return (n, m) the expected level of each failure, up to the top level, given its run; NaN if wrong at the base.

    Expected under the shares of all models together, which no swap of two models within trajectories changes.
    """
    cells = len(levels) + 1
    ends = np.concatenate([[0.0], levels])
    middle = np.append((ends[:-1] + ends[1:]) / 2, levels[-1])
    if not right_at_base.any():
        return np.full(first.shape, np.nan)
    runs, run, counts = np.unique(
        np.stack([first[right_at_base], last[right_at_base]], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    shares = failure_shares(counts.astype(np.float64), runs, cells)
    weights = _inside(runs, cells) * np.maximum(shares, 1e-12)
    scores = np.full(first.shape, np.nan)
    scores[right_at_base] = ((weights @ middle) / weights.sum(axis=1))[run.ravel()]
    return scores


def swap_test(differences: Floats, rng: np.random.Generator, permutations: int = PERMUTATIONS) -> list[float]:
    """Return two-sided p of k comparisons, from differences (n, k) whose signs are fair coins under the null."""
    seen = np.abs(differences.sum(axis=0))
    as_far = np.zeros(differences.shape[1], dtype=np.int64)
    for start in range(0, permutations, _AT_ONCE):
        signs = 2.0 * rng.integers(0, 2, size=(min(_AT_ONCE, permutations - start), len(differences))) - 1.0
        as_far += (np.abs(signs @ differences) >= seen - 1e-9).sum(axis=0)
    return ((1 + as_far) / (1 + permutations)).tolist()


def ranks(low: Floats, high: Floats, values: Floats) -> Ints:
    """Return (m, 3): the rank of each of m models by `values` (m,), 1 for the best, and its least and greatest one.

    low, high (m, m): bounds of value minus value. A model ranks below all surely better ones, above all surely worse.
    """
    by_value = 1 + (values > values[:, None]).sum(axis=1)
    return np.stack([by_value, 1 + (high < 0).sum(axis=1), len(values) - (low > 0).sum(axis=1)], axis=1)
