"""Statistics of pairs: of images that share their noise, with tests that may stop at any time, and
of two models' scores of the same images.

A pair is an image of a description and an image of the base. The two images disagree if a model
fails on exactly one of them. Under the null hypothesis, either image of such a pair is equally
likely to be the failing one. The test is an e-value: whenever the test stops, its expectation under
the null hypothesis is at most 1. Under the null hypothesis, it therefore ever reaches 1 / α in at
most a share α of runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # its parts are loaded where they are first used
from numpy.typing import ArrayLike

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.sequential_stats import sequential_p
from counterfoil.stats import CONFIDENCE, POWER, Bounds, seeded_generator

# Tail probabilities below this are summed in logarithms. SciPy's own function is accurate down to
# about 1e-300.
_SMALLEST_TAIL = 1e-250
# Each bisection halves the interval. 60 bisections are more than the 53 binary digits of a float.
_BISECTIONS = 60
# The number of simulated runs, and of bisections, in `smallest_paired_difference`.
_RUNS = 4000
_STEPS = 12

# `sign_flip_test` tries every sign of so many sums or fewer, and otherwise so many draws of signs,
# of which so many values are in memory at once.
_MOST_SUMS_TO_LIST = 13
_SIGN_DRAWS = 9999
_MOST_SIGNS_AT_ONCE = 4_000_000
# Sums of equal size may differ by rounding.
_ROUNDING = 1e-12

# The decision about a test after each batch of pairs.
Decision = Literal["confirmed", "futile", "open"]


@dataclass(frozen=True, slots=True)
class PairCount:
    """Failures of n pairs."""

    pairs: int
    both: int
    """Pairs of which both images fail."""
    failing: int
    """Pairs of which the description's image alone fails."""
    rescued: int
    """Pairs of which the base's image alone fails."""

    @property
    def discordant(self) -> int:
        return self.failing + self.rescued

    @property
    def rate(self) -> float:
        return self._share(self.both + self.failing)

    @property
    def base_rate(self) -> float:
        return self._share(self.both + self.rescued)

    @property
    def difference(self) -> float:
        return self._share(self.failing - self.rescued)

    def _share(self, count: int) -> float:
        return count / self.pairs if self.pairs else math.nan

    def summary(self) -> dict[str, float]:
        """Return the number of pairs and both rates for JSON; there must be a pair."""
        return {
            "pairs": self.pairs,
            "rate": self.rate,
            "base_rate": self.base_rate,
        }

    def __add__(self, other: PairCount) -> PairCount:
        return PairCount(
            self.pairs + other.pairs,
            self.both + other.both,
            self.failing + other.failing,
            self.rescued + other.rescued,
        )


def count_pairs(failed: ArrayLike, base_failed: ArrayLike) -> PairCount:
    """Count the failures of n pairs, from booleans (n,) for the description's images and for the
    base's images."""
    described = np.asarray(failed, dtype=np.bool_)
    base = np.asarray(base_failed, dtype=np.bool_)
    both = int((described & base).sum())
    failing = int((described & ~base).sum())
    rescued = int((~described & base).sum())
    return PairCount(len(described), both, failing, rescued)


def tango_interval(count: PairCount, level: float = CONFIDENCE) -> Bounds:
    """Return Tango's score interval (1998) of the description's failure rate minus the base's; (-1,
    1) if empty."""
    tail = (1 - level) / 2
    low = -_tango_end(count.rescued, count.failing, count.pairs, tail)
    high = _tango_end(count.failing, count.rescued, count.pairs, tail)
    return float(low), float(high)


def tango_uppers(
    failing: ArrayLike,
    rescued: ArrayLike,
    pairs: ArrayLike,
    level: float,
) -> Floats:
    """Return the one-sided upper bounds that belong to `tango_interval`; 1 without pairs.

    The three arrays, of many tests at once, are broadcast against each other.
    """
    return _tango_end(failing, rescued, pairs, 1 - level)


def pairs_of_half_width(count: PairCount, half_width: float) -> int:
    """Return how many pairs give a normal 95 % interval of about ± `half_width`, from counted
    shares (Jeffreys)."""
    whole = count.pairs + 1.5
    failing = (count.failing + 0.5) / whole
    rescued = (count.rescued + 0.5) / whole
    variance = failing + rescued - (failing - rescued) ** 2
    tail = (1 - CONFIDENCE) / 2
    reach = float(scipy.stats.norm.isf(tail))
    return math.ceil((reach / half_width) ** 2 * variance)


def clustered_error(values: Floats, units: Ints) -> float:
    """Return the standard error of the mean of values (n,), from units (n,); NaN for one unit.

    Equal numbers mark a unit. The squared error is k / (k - 1) times the sum of the squared
    deviations of k units, over n² (Miller 2024, "Adding error bars to evals", section 2.2).
    """
    _, of_value = np.unique(units, return_inverse=True)
    centred = values - values.mean()
    deviations = np.bincount(of_value.ravel(), centred)
    count = len(deviations)
    if count < 2:
        return math.nan
    squares = float((deviations**2).sum())
    variance = squares * count / (count - 1)
    return math.sqrt(variance) / len(values)


def sign_flip_test(differences: Floats, units: Ints) -> float:
    """Return the two-sided p of "the first model scores no higher or lower than the second", from
    differences (n,).

    units: (n,), equal numbers mark a unit. Under the null hypothesis the two models may change
    places in any unit, so the sum of its differences may have either sign (Fisher 1935, section
    21). The test is exact. With more than 13 sums it draws signs, from a fixed seed. 1 if every sum
    is 0.
    """
    _, of_value = np.unique(units, return_inverse=True)
    sums = np.bincount(of_value.ravel(), differences)
    sums = sums[sums != 0]
    if not len(sums):
        return 1.0
    count = len(sums)
    total = sums.sum()
    rounding = _ROUNDING * np.abs(sums).sum()
    least = abs(total) - rounding

    def reaches(positive: Ints) -> Bools:
        """Return whether the sum with these signs, 1 or 0, is as far from 0 as the total."""
        flipped = 2 * (positive @ sums) - total
        return np.abs(flipped) >= least

    if count <= _MOST_SUMS_TO_LIST:
        every = np.arange(1 << count)
        bits = np.arange(count)
        positive = every[:, None] >> bits & 1
        return float(reaches(positive).mean())
    rng = seeded_generator(0, "signs")
    block = max(1, _MOST_SIGNS_AT_ONCE // count)
    block = min(block, _SIGN_DRAWS)

    def drawn() -> Iterator[bool]:
        while True:
            positive = rng.integers(0, 2, (block, count))
            yield from reaches(positive).tolist()

    return sequential_p(drawn(), _SIGN_DRAWS)


def _tango_end(
    failing: ArrayLike,
    rescued: ArrayLike,
    pairs: ArrayLike,
    tail: float,
) -> Floats:
    """Find by bisection the largest difference that a score test with this `tail` does not reject.
    The score falls with the difference."""
    reach = float(scipy.stats.norm.isf(tail))
    b, c, n = _broadcast(failing, rescued, pairs)
    low = np.ones(n.shape)
    np.divide(b - c, n, out=low, where=n > 0)
    high = np.ones(n.shape)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        variance = _tango_variance(b, c, n, middle)
        error = np.sqrt(n * variance)
        inside = b - c - n * middle + reach * error >= 0
        low = np.where(inside, middle, low)
        high = np.where(inside, high, middle)
    return np.minimum(high, 1.0)


def _broadcast(*counts: ArrayLike) -> tuple[Floats, ...]:
    arrays = [np.asarray(count, dtype=np.float64) for count in counts]
    return np.broadcast_arrays(*arrays)


def _tango_variance(b: Floats, c: Floats, n: Floats, difference: Floats) -> Floats:
    """Return the variance of one pair's difference, at the maximum-likelihood share of rescued
    pairs."""
    linear = (2 * n - b + c) * difference - b - c
    constant = -c * difference * (1 - difference)
    square = linear**2 - 8 * n * constant
    root = np.sqrt(np.maximum(square, 0.0))
    rescued = np.zeros(n.shape)
    np.divide(root - linear, 4 * n, out=rescued, where=n > 0)
    variance = 2 * rescued + difference * (1 - difference)
    return np.maximum(variance, 0.0)


def log_e_value(failing: int, discordant: int) -> float:
    """Return the natural logarithm of the e-value against "the description fails no more often than
    the base".

    failing: the number of the `discordant` pairs in which only the description fails. The
    probability that the description fails in a discordant pair is mixed over Beta(½, ½), *cut to
    (½, 1]*. Without the cut, the test would also confirm that the description fails less often than
    the base. 0 without discordant pairs.
    """
    return float(log_e_values(failing, discordant))


def log_e_values(failing: ArrayLike, discordant: ArrayLike) -> Floats:
    """Return `log_e_value` of many tests at once; the two arrays are broadcast against each
    other."""
    k, n = _broadcast(failing, discordant)
    a = 0.5 + k.ravel()
    b = 0.5 + (n - k).ravel()
    values = scipy.special.betaln(a, b) + _log_upper_tail(a, b)
    values -= np.log(np.pi)
    # Half of Beta(½, ½) is above ½, so the logarithm of its tail is log ½.
    values += (n.ravel() + 1) * np.log(2)
    values[n.ravel() == 0] = 0.0
    return values.reshape(n.shape)


def _log_upper_tail(a: Floats, b: Floats) -> Floats:
    """Return log P(X > ½) of X ~ Beta(a, b), even if the probability is too small for a float."""
    tail = scipy.special.betaincc(a, b, 0.5)
    small = np.flatnonzero(tail < _SMALLEST_TAIL)
    tail[small] = 1.0
    logarithms = np.log(tail)
    for index in small:
        logarithms[index] = _log_small_tail(float(a[index]), float(b[index]))
    return logarithms


def _log_small_tail(a: float, b: float) -> float:
    """Return `_log_upper_tail` by its hypergeometric series (DLMF 8.17.8). The terms decrease for b
    well above a."""
    ratio = (a + b) / (b + 1) / 2
    most = np.ceil(-40 / np.log(ratio))
    steps = np.arange(int(most) + 1)
    ratios = (a + b + steps) / (b + 1 + steps) / 2
    terms = np.cumsum(np.log(ratios))
    rest = scipy.special.logsumexp(terms)
    series = np.logaddexp(0.0, rest)
    scaled = series - (a + b) * np.log(2) - np.log(b)
    return float(scaled - scipy.special.betaln(a, b))


def decide_test(
    count: PairCount,
    log_e: float,
    threshold_log_e: float,
    margin: float,
) -> Decision:
    """Decide about a test after a batch of pairs.

    The test is `futile` if the one-sided upper bound of the difference is below `margin`, because
    such a difference is too small to matter. Otherwise it is `confirmed` if `log_e` reaches
    `threshold_log_e`, and else `open`. With a threshold of log(m / α), none of the other m - 1
    hypotheses can reverse the confirmation; e-BH over the whole run decides what is a finding.
    Repeated checks of the bound make no false findings but lose true ones: up to a quarter of those
    whose difference equals the margin, and about one in twenty of those with twice this difference
    (`scripts/bugs_proof/sequential.py`).
    """
    upper = tango_uppers(count.failing, count.rescued, count.pairs, CONFIDENCE)
    if upper < margin:
        return "futile"
    if log_e >= threshold_log_e:
        return "confirmed"
    return "open"


def most_pairs_to_decide(m: int, alpha: float) -> int:
    """Return how many discordant pairs reach an e-value of m / alpha if the description fails in
    all of them."""
    discordant = 1
    threshold = math.log(m / alpha)
    while log_e_value(discordant, discordant) < threshold:
        discordant += 1
    return discordant


def smallest_paired_difference(
    pairs: int,
    base_rate: float,
    tested: int,
    fdr: float,
) -> float | None:
    """Return the smallest difference that `pairs` pairs confirm with probability `POWER`.

    It assumes that none of the other `tested` hypotheses is confirmed. The result comes from a
    simulation with a fixed seed. The two images of a pair fail independently, and the base fails at
    `base_rate`. Noise that the images share makes a difference easier to detect. None if no
    difference is confirmed with this probability.
    """
    threshold = math.log(max(tested, 1) / fdr)

    def power(difference: float) -> float:
        described = base_rate + difference
        failing = described * (1 - base_rate)
        rescued = (1 - described) * base_rate
        shares = [failing, rescued, 1 - failing - rescued]
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(pairs, shares, _RUNS)
        discordant = drawn[:, 0] + drawn[:, 1]
        values = log_e_values(drawn[:, 0], discordant)
        return float((values >= threshold).mean())

    low = 0.0
    high = 1.0 - base_rate
    if pairs < 1 or high <= 0 or power(high) < POWER:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if power(middle) >= POWER:
            high = middle
        else:
            low = middle
    return high
