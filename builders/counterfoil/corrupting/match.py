"""Give a picture the brightness and contrast of another one: the corruption `match`, a control for
a drawn shift."""

from __future__ import annotations

import numpy as np

from counterfoil.corrupting.corruption_kinds import luma


def contrast_match(base: np.ndarray, shifted: np.ndarray) -> tuple[float, float]:
    """Return the gain and offset that give the base the mean and standard deviation of the shifted
    picture's luma.

    Both pictures are uint8 [height, width, 3], and their sizes may differ. A base of one grey level
    gets gain 1.
    """
    base_luma = luma(base)
    shifted_luma = luma(shifted)
    deviation = float(base_luma.std())
    # In a picture of one grey level, rounding alone makes the luma differ from its mean.
    gain = float(shifted_luma.std()) / deviation if deviation > 1e-6 else 1.0
    return gain, float(shifted_luma.mean()) - gain * float(base_luma.mean())


def apply_gain(base: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """Multiply every level by the gain, add the offset, and clip the result to black and white."""
    levels = np.rint(np.clip(np.arange(256) * gain + offset, 0, 255)).astype(np.uint8)
    return levels[base]
