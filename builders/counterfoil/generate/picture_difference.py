"""How far two pictures of one sample are apart, in decibels."""

from __future__ import annotations

import io
import math

import numpy as np


def decoded(encoded: bytes) -> np.ndarray:
    """The 8-bit RGB pixels of an encoded image, uint8 [height, width, 3]. Raises what Pillow raises."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as picture:
        return np.asarray(picture.convert("RGB"))


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB of two uint8 arrays of one shape; infinite where they are equal."""
    error = float(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)
