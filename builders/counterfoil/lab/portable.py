"""Compute elementary functions and a blur with the same bits on every processor.

numpy's `sin`, `exp` and `power` differ in the last bit between processors. These functions use
operations that IEEE 754 rounds in one way: sums, products, quotients, square roots and powers of
two on float64. Their relative error is at most 2e-15; for sines and cosines, this is the absolute
error.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np

# computes by Horner's rule, from the highest power on
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike, NDArray

Pixels: TypeAlias = np.ndarray
"""Numbers of pixels: a picture, a mask, or a colour that pixels share."""

# π/2 and log 2 in parts; whole multiples of the first part, which has few bits, are exact (Cody and
# Waite 1980).
_QUARTER_TURN = (1.5707963109016418, 1.5893254712295857e-08, 6.123233995736766e-17)
_LOG_2 = (0.693147180369123816490, 1.90821492927058770002e-10)

_SINE = [1 / -6, 1 / 120, 1 / -5040, 1 / 362880, 1 / -39916800, 1 / 6227020800, 1 / -1307674368000]
_COSINE = [
    1 / -2,
    1 / 24,
    1 / -720,
    1 / 40320,
    1 / -3628800,
    1 / 479001600,
    1 / -87178291200,
    1 / 20922789888000,
]
_EXPONENTIAL = [1.0]
for _factor in range(1, 14):
    _EXPONENTIAL.append(_EXPONENTIAL[-1] / _factor)
_ARTANH = [1 / power for power in range(1, 24, 2)]


def sine(angle: ArrayLike) -> NDArray[np.float64]:
    """Return the sine of angles in radians, each below 100,000 in size."""
    return _sine(angle, 0)


def cosine(angle: ArrayLike) -> NDArray[np.float64]:
    """Return the cosine of angles in radians, each below 100,000 in size."""
    return _sine(angle, 1)


def _sine(angle: ArrayLike, quarters: int) -> NDArray[np.float64]:
    x = np.asarray(angle, np.float64)
    turns = np.rint(x * (2 / 3.141592653589793))
    for part in _QUARTER_TURN:
        x = x - turns * part
    square = x * x
    odd = x + x * square * polyval(square, _SINE)
    even = 1 + square * polyval(square, _COSINE)
    quadrant = (turns.astype(np.int64) + quarters) % 4
    size = np.where(quadrant % 2 == 0, odd, even)
    return size * np.where(quadrant < 2, 1.0, -1.0)


def exponential(x: ArrayLike) -> NDArray[np.float64]:
    """Return e to the power of x, for x of at most 700 in size."""
    x = np.asarray(x, np.float64)
    doublings = np.rint(x * (1 / 0.6931471805599453))
    for part in _LOG_2:
        x = x - doublings * part
    return np.ldexp(polyval(x, _EXPONENTIAL), doublings.astype(np.int32))


def power(base: ArrayLike, exponent: float) -> NDArray[np.float64]:
    """Return base to a positive power, for bases of 0 or more; of 0 it is 0."""
    base = np.asarray(base, np.float64)
    fraction, doublings = np.frexp(np.where(base > 0, base, 1.0))
    low = fraction < 0.7071067811865476
    fraction = np.where(low, 2 * fraction, fraction)
    doublings = doublings - low
    ratio = (fraction - 1) / (fraction + 1)
    log = 2 * ratio * polyval(ratio * ratio, _ARTANH)
    high, rest = _LOG_2
    logarithm = doublings * high + (doublings * rest + log)
    return np.where(base > 0, exponential(exponent * logarithm), 0.0)


@cache
def _gaussian(deviation: float) -> tuple[int, NDArray[np.float64]]:
    """Return how far a Gaussian reaches, in pixels, and its weights."""
    reach = int(4 * deviation + 0.5)
    taps = np.arange(-reach, reach + 1)
    weights = exponential(-0.5 / (deviation * deviation) * (taps * taps))
    return reach, weights / weights.sum()


def portable_blur(
    field: NDArray[np.floating],
    deviations: float | tuple[float, float],
    mode: Literal["wrap", "symmetric"],
) -> NDArray[np.float32]:
    """Blur a field [height, width] by a Gaussian with these deviations down and across, in pixels.

    The sums have the order of `scipy.ndimage.gaussian_filter`. `mode` is numpy's, for values
    outside.
    """
    blurred = field.astype(np.float64)
    for deviation in deviations if isinstance(deviations, tuple) else (deviations, deviations):
        reach, weights = _gaussian(deviation)
        padded = np.pad(blurred, ((reach, reach), (0, 0)), mode)
        side = len(blurred)
        total = blurred * weights[reach]
        for near in range(reach):
            far = 2 * reach - near
            pair = padded[near : near + side] + padded[far : far + side]
            total = total + pair * weights[near]
        # Transposed for the other direction. scipy rounds to the field's type between the
        # directions.
        blurred = np.ascontiguousarray(total.T).astype(np.float32).astype(np.float64)
    return blurred.astype(np.float32)


def uniform(
    rng: np.random.Generator, low: float, high: float, shape: int | tuple[int, ...] | None = None
) -> Any:
    """Return what `rng.uniform` does; some compilers fuse the product and sum of numpy's own
    function."""
    return low + (high - low) * rng.random(shape)
