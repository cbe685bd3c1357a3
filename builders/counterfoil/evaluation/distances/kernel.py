"""The kernel distance (KID) of two sets of features: the unbiased MMD² with a cubic kernel, by subsets.

Pure functions on arrays. Binkowski 2018 (Demystifying MMD GANs), section 4: k(x, y) = (x·y / d + 1)³. The estimate has
no bias at any number of images, where FID has a large one with few. No kernel is larger than a subset's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.statistics import CONFIDENCE

# Binkowski 2018, section 4.
SUBSETS = 100
LARGEST_SUBSET = 1000
# Subsets are halves: of fewer images than this they say next to nothing.
FEWEST_IMAGES = 20


@dataclass(frozen=True)
class KernelDistance:
    """`value` is the mean over subsets, `low` and `high` the bounds that hold 95 % of their values.

    subset, other_subset: the most images of either side in one.
    """

    value: float
    low: float
    high: float
    subset: int
    other_subset: int


def kernel_distance(
    features: NDArray[np.floating],
    others: NDArray[np.floating],
    units: Sequence[object] | NDArray | None = None,
    other_units: Sequence[object] | NDArray | None = None,
    *,
    seed: int = 0,
) -> KernelDistance:
    """KID of features [n, d] and [m, d], from `SUBSETS` pairs of subsets drawn without replacement.

    A subset has half the images of its side, `LARGEST_SUBSET` at most. Values of halves spread as much around the whole
    sample's as that does around the truth (the delete-half jackknife), so their bounds are its interval; those of
    smaller parts spread more, so with over 2,000 images the interval is too wide. With replacement images would meet
    themselves, which lies about the distance.

    units [n], other_units [m]: what images share. Those of one unit are drawn together, and pairs within it left out of
    the estimate, as an image's pair with itself is. By default each stands for itself. ValueError for fewer than
    `FEWEST_IMAGES` units on a side, for widths that differ and for features that are not finite.
    """
    sides = []
    for rows, shared in ((features, units), (others, other_units)):
        named = np.arange(len(rows)) if shared is None else np.unique(np.asarray(shared), return_inverse=True)[1]
        if len(named) != len(rows) or len(np.unique(named)) < FEWEST_IMAGES:
            raise ValueError(f"{len(np.unique(named))} units of {len(rows)} images, expected {FEWEST_IMAGES} or more")
        if rows.ndim != 2 or rows.shape[1] != features.shape[1] or not np.isfinite(rows).all():
            raise ValueError("features of one width are expected, all of them numbers")
        sides.append((rows, named.reshape(-1), subset_size(len(rows))))
    draws = _draws(sides[0][1], sides[0][2], sides[1][1], sides[1][2], np.random.default_rng(seed))
    values = subset_values(features, others, draws, sides[0][1], sides[1][1])
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return KernelDistance(float(values.mean()), float(low), float(high), sides[0][2], sides[1][2])


def subset_size(images: int) -> int:
    """The most images of so many that a subset has."""
    return min(LARGEST_SUBSET, images // 2)


def subset_values(
    features: NDArray[np.floating],
    others: NDArray[np.floating],
    draws: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]],
    units: NDArray[np.int64] | None = None,
    other_units: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """The MMD² of each draw: rows of features [n, d] and rows of the others [m, d]."""
    own = np.arange(len(features)) if units is None else units
    their = np.arange(len(others)) if other_units is None else other_units
    return np.asarray([mmd2(features[a], others[b], own[a], their[b]) for a, b in draws], dtype=np.float64)


def mmd2(
    features: NDArray[np.floating],
    others: NDArray[np.floating],
    units: NDArray[np.int64],
    other_units: NDArray[np.int64],
) -> float:
    """The unbiased estimate of MMD² from features [n, d] and [m, d]; pairs of one unit are left out."""
    x, y = features.astype(np.float64), others.astype(np.float64)
    return _between_units(x, units) + _between_units(y, other_units) - 2 * float(_kernel(x, y).mean())


def _between_units(rows: NDArray[np.float64], units: NDArray[np.int64]) -> float:
    apart = units[:, None] != units[None, :]
    return float(_kernel(rows, rows).sum(where=apart) / apart.sum())


def _kernel(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    inner = x @ y.T / x.shape[1] + 1.0
    return inner * inner * inner  # a power of 3 takes NumPy ten times as long


def _draws(
    units: NDArray[np.int64], most: int, other_units: NDArray[np.int64], other_most: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for _ in range(SUBSETS):
        yield _drawn(units, most, rng), _drawn(other_units, other_most, rng)


def _drawn(units: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of whole units in a random order, as many as `most` holds, and of two units at least."""
    counts = np.bincount(units)
    order = rng.permutation(len(counts))
    taken = max(2, int(np.searchsorted(np.cumsum(counts[order]), most, side="right")))
    chosen = np.zeros(len(counts), dtype=bool)
    chosen[order[:taken]] = True
    return np.flatnonzero(chosen[units])
