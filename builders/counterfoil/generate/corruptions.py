"""Corrupt photographs with the common corruptions, and with faults of cameras and of image pipelines.

Hendrycks and Dietterich (2019) defined the common corruptions. `recipe/corruptions.py` holds their published constants
for pictures of 224 pixels and of 32 pixels. A picture of another size gets one of these two tables unscaled. This code
rounds levels, while the published code cuts off the fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from counterfoil.generate import corruption_kinds
from counterfoil.recipe.corruptions import CORRUPTIONS
from counterfoil.report.words import counted

# Pictures whose shorter side is less than `SMALL_BELOW` get the constants for 32 pixels. The limit is the geometric
# mean of 32 and 224. Pictures of 64 pixels belong below the limit for two reasons. Their own published constants
# (Tiny-ImageNet-C) are nearer to the constants for 32 pixels. And the largest disk for 224 pixels would be a third as
# wide as such a picture.
SMALL_BELOW = 85
SMALLEST_SIDE = 8


def corrupt(pixels: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    """Return a corrupted copy of a picture, uint8 [height, width, 3] with sides of at least 8 pixels.

    The severity is 1 to 5. The same arguments give the same bytes with the same versions of the libraries. Raise
    KeyError for an unknown name, and ValueError for another severity or another form of picture.
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
    """Draw the random arrays of a corruption for a picture with levels from 0 to 1. Some corruptions have none."""
    draw = getattr(corruption_kinds, f"draw_{name}", None)
    return () if draw is None else draw(rng, picture, constants)


def corrupted_by(picture: np.ndarray, name: str, severity: int, *arrays: np.ndarray) -> np.ndarray:
    """Corrupt a picture with levels from 0 to 1 by its random arrays. Return a uint8 picture."""
    height, width = picture.shape[:2]
    corrupted = getattr(corruption_kinds, name)(picture, constants_of(name, severity, height, width), *arrays)
    return np.rint(np.clip(corrupted, 0, 1) * 255).astype(np.uint8)


def twice_compressed(sides: Sequence[int], of: str = "") -> list[str]:
    """Return a warning if small JPEG files would be compressed again by `jpeg_compression`.

    `sides` are the shorter sides of JPEG files, and `of` says of how many images, if not of all. Small pictures get the
    qualities of CIFAR-10-C. When photographs of CIFAR-10 were saved at quality 75 first, a ResNet-20 had accuracies of
    82, 76, 70, 64 and 70 % at severities 1 to 5.
    """
    small = sum(side < SMALL_BELOW for side in sides)
    if not small:
        return []
    return [
        f"{counted(small, 'image')}{of} {'is' if small == 1 else 'are'} JPEG already and under {SMALL_BELOW} pixels, so"
        " jpeg_compression takes less than from lossless ones, and a higher severity may take less than a lower one"
    ]


def constants_of(name: str, severity: int, height: int, width: int) -> Any:
    """Return the constants of a corruption at a severity for pictures of this size."""
    if severity not in range(1, 6):
        raise ValueError(f"severity is 1 to 5, not {severity}")
    corruption = CORRUPTIONS[name]
    return (corruption.small if min(height, width) < SMALL_BELOW else corruption.large)[severity - 1]


def contrast_match(base: np.ndarray, shifted: np.ndarray) -> tuple[float, float]:
    """Return the gain and offset that give the base the mean and standard deviation of the shifted picture's luma.

    Both pictures are uint8 [height, width, 3], and their sizes may differ. A base of one grey level gets gain 1.
    """
    base_luma, shifted_luma = (corruption_kinds.luma(picture) for picture in (base, shifted))
    deviation = float(base_luma.std())
    # In a picture of one grey level, rounding alone makes the luma differ from its mean.
    gain = float(shifted_luma.std()) / deviation if deviation > 1e-6 else 1.0
    return gain, float(shifted_luma.mean()) - gain * float(base_luma.mean())


def apply_gain(base: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """Multiply every level by the gain, add the offset, and clip the result to black and white."""
    levels = np.rint(np.clip(np.arange(256) * gain + offset, 0, 255)).astype(np.uint8)
    return levels[base]
