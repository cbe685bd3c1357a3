"""Statistics of draws that stop early: a rate of images that are drawn until enough fail, a
permutation test that ends once its answer is clear, and tests by e-values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from counterfoil.stats import Bounds, clopper_pearson


@dataclass(frozen=True, slots=True)
class StoppedRate:
    """A rate of n images with k failures: (k - 1) / (n - 1) if the k-th was `reached`, else k / n;
    NaN if n is 0."""

    k: int
    n: int
    rate: float
    interval: Bounds
    reached: bool


def stopped_rate(failed: ArrayLike, k: int) -> StoppedRate:
    """Return the failure rate of images that are drawn until the k-th failure.

    failed: (images,) boolean, in drawing order. k: 2 or more. Wiles 2022 stops at 20 failures.
    Because drawing stops at a failure, failures / images is too high (by 5 % of the rate for 20
    failures, by 23 % for 5). If the n-th image is the k-th failure, (k - 1) / (n - 1) is unbiased
    (Haldane 1945); later images are ignored. If the images end before the k-th failure, the rate is
    failures / images. The interval is exact in both cases: the k-th failure comes by the n-th image
    if and only if n images have at least k failures, and Clopper and Pearson's interval is about
    that count.
    """
    drawn = np.asarray(failed, dtype=np.bool_)
    positions = np.flatnonzero(drawn)
    seen = len(positions)
    if seen < k:
        n = len(drawn)
        rate = seen / n if n else math.nan
        interval = clopper_pearson(seen, n - seen)
        return StoppedRate(seen, n, rate, interval, False)
    n = int(positions[k - 1]) + 1
    rate = (k - 1) / (n - 1)
    low, _ = clopper_pearson(k, n - k)
    # The upper bound uses the k - 1 failures among the n - 1 images before the k-th failure.
    _, high = clopper_pearson(k - 1, n - k)
    return StoppedRate(k, n, rate, (low, high), True)


def sequential_p(reached: Iterable[bool], permutations: int) -> float:
    """Return the p of a permutation test: (1 + hits) / (1 + permutations).

    reached: whether each permutation reaches the observed statistic. Drawing stops once a tenth of
    `permutations` have reached it; p is then this number of hits over the number drawn (Besag and
    Clifford 1991). P(p <= a) <= a holds for every a.
    """
    enough = math.ceil(permutations / 10)
    count = 0
    for drawn, hit in enumerate(reached, start=1):
        count += hit
        if drawn == permutations:
            break
        if count >= enough:
            return count / drawn
    return (1 + count) / (1 + permutations)


def e_q_values(log_e: Sequence[float]) -> list[float]:
    """Return the smallest α, at most 1, at which e-BH rejects each hypothesis. log_e: logarithms of
    the e-values.

    For the k-th largest of m e-values, it is the minimum of m / (j·e₍ⱼ₎) over j ≥ k.
    """
    m = len(log_e)
    q_values = [1.0] * m
    least = math.inf
    ranked = sorted(range(m), key=lambda index: -log_e[index])
    for rank in range(m, 0, -1):
        index = ranked[rank - 1]
        log_q = math.log(m) - math.log(rank) - log_e[index]
        least = min(least, log_q)
        q_values[index] = math.exp(min(least, 0.0))
    return q_values


def e_bh(log_e: Sequence[float], alpha: float) -> list[bool]:
    """Return which hypotheses e-BH rejects at the false discovery rate `alpha` (Wang and Ramdas
    2022).

    The e-values may depend on each other in any way, and their tests may stop at any time.
    """
    return [q <= alpha for q in e_q_values(log_e)]
