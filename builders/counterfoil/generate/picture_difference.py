"""How far two pictures of one sample are apart, in decibels."""

from __future__ import annotations

import math

import numpy as np

from counterfoil.store.decoding import rgb_image


def decoded(encoded: bytes) -> np.ndarray:
    """The 8-bit RGB pixels of an encoded image, uint8 [height, width, 3]. UnreadableImage for what is none."""
    return np.asarray(rgb_image(encoded))


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two uint8 arrays of one shape; infinite where they are equal."""
    error = float(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)
