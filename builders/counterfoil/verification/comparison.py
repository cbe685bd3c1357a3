"""How two images differ: not at all, in their encoding alone, or in pixels, by PSNR and by the greatest difference."""

from __future__ import annotations

import numpy as np

from counterfoil.generate.pictures import decoded, psnr
from counterfoil.verification.results import Outcome

# Above 40 dB nobody sees a difference between two 8-bit images; below 30 dB most do. Another stack moves levels by one.
LEAST_PSNR = 30.0


def compare_images(stored: bytes, rendered: bytes) -> tuple[Outcome, float | None, int | None]:
    """The outcome, PSNR in dB and the greatest difference in levels of 255 of two encoded images that decode.

    The numbers are None for equal pixels, and PSNR and levels also where the sizes differ.
    """
    if stored == rendered:
        return "identical bytes", None, None
    one, other = decoded(stored), decoded(rendered)
    if one.shape != other.shape:
        return "different", None, None
    if np.array_equal(one, other):
        return "identical pixels", None, None
    return "different", psnr(one, other), greatest_difference(one, other)


def greatest_difference(one: np.ndarray, other: np.ndarray) -> int:
    """The greatest difference of two uint8 arrays, in levels."""
    return int(np.abs(one.astype(np.int16) - other.astype(np.int16)).max())
