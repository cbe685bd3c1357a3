"""Corrupt photographs: common corruptions (Hendrycks and Dietterich 2019), and those of cameras and pipelines.

Constants (`recipe/corruptions.py`) are the published ones, in pixels of pictures of 224 or 32. Other pictures get the
same constants. Levels are rounded, while the published code cuts them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from counterfoil.generate import corruption_kinds
from counterfoil.recipe.corruptions import CORRUPTIONS
from counterfoil.report.words import counted

# The geometric mean of 32 and 224 pixels. The published constants for 64 pixels (Tiny-ImageNet-C) are nearer to the
# small table too, and the largest disk of the large table would be a third as wide as such a picture.
SMALL_BELOW = 85
SMALLEST_SIDE = 8


def corrupt(pixels: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    """Return a corrupted copy of a picture, uint8 [height, width, 3] with sides of at least 8 pixels.

    Severity is 1 to 5. On one stack the arguments decide every byte. KeyError for another name, ValueError for another
    severity or picture.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or min(pixels.shape[:2]) < SMALLEST_SIDE:
        raise ValueError(
            f"a picture is uint8 [height, width, 3], {SMALLEST_SIDE} pixels or more, not {pixels.dtype} {pixels.shape}"
        )
    constants = constants_of(name, severity, *pixels.shape[:2])
    rng = np.random.Generator(np.random.PCG64(seed))
    picture = pixels / 255.0
    return corrupted_by(picture, name, severity, *random_arrays(name, rng, picture, constants))


def random_arrays(name: str, rng: np.random.Generator, picture: np.ndarray, constants: Any) -> tuple[np.ndarray, ...]:
    """Draw the random arrays of a corruption, if it has any, for a picture from 0 to 1."""
    draw = getattr(corruption_kinds, f"draw_{name}", None)
    return () if draw is None else draw(rng, picture, constants)


def corrupted_by(picture: np.ndarray, name: str, severity: int, *arrays: np.ndarray) -> np.ndarray:
    """Return the corrupted picture, uint8, of a picture from 0 to 1 and its random arrays."""
    height, width = picture.shape[:2]
    corrupted = getattr(corruption_kinds, name)(picture, constants_of(name, severity, height, width), *arrays)
    return np.rint(np.clip(corrupted, 0, 1) * 255).astype(np.uint8)


def twice_compressed(sides: Sequence[int]) -> list[str]:
    """Return a warning on `jpeg_compression` if JPEG files of these shorter sides get the qualities of CIFAR-10-C.

    Photographs of quality 75 gave accuracies of 82, 76, 70, 64 and 70 % by severity (ResNet-20, CIFAR-10).
    """
    small = sum(side < SMALL_BELOW for side in sides)
    if not small:
        return []
    return [
        f"{counted(small, 'image')} under {SMALL_BELOW} pixels {'is' if small == 1 else 'are'} JPEG already, so"
        " jpeg_compression takes less than from lossless ones, and a higher severity may take less than a lower one"
    ]


def constants_of(name: str, severity: int, height: int, width: int) -> Any:
    """Return the constants of a severity for pictures of this size."""
    if severity not in range(1, 6):
        raise ValueError(f"severity is 1 to 5, not {severity}")
    corruption = CORRUPTIONS[name]
    return (corruption.small if min(height, width) < SMALL_BELOW else corruption.large)[severity - 1]


def contrast_match(base: np.ndarray, shifted: np.ndarray) -> tuple[float, float]:
    """Return the gain and offset that give the base the mean and standard deviation of the shifted picture's luma.

    Pictures are uint8 [height, width, 3] of any two sizes. The gain of a flat base is 1.
    """
    base_luma, shifted_luma = (corruption_kinds.luma(picture) for picture in (base, shifted))
    deviation = float(base_luma.std())
    # A flat picture's luma differs from its mean by rounding alone.
    gain = float(shifted_luma.std()) / deviation if deviation > 1e-6 else 1.0
    return gain, float(shifted_luma.mean()) - gain * float(base_luma.mean())


def apply_gain(base: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """Multiply every level by the gain and add the offset; cut off at black and white."""
    levels = np.rint(np.clip(np.arange(256) * gain + offset, 0, 255)).astype(np.uint8)
    return levels[base]
