"""Corrupt photographs with the common corruptions, and with faults of cameras and of image
pipelines.

Hendrycks and Dietterich (2019) defined the common corruptions. `corruptions.py` holds their
published constants for pictures of 224 pixels and of 32 pixels. A picture of another size gets one
of these two tables unscaled. This code rounds levels, while the published code cuts off the
fraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, overload

import numpy as np
from PIL import Image

from counterfoil.corrupting import corruption_kinds, held_out_kinds
from counterfoil.corrupting.corruption_kinds import luma
from counterfoil.corrupting.corruptions import CORRUPTIONS, SEVERITIES, SMALL_BELOW, Corruption

SMALLEST_SIDE = 8


@overload
def corrupt(image: np.ndarray, name: str, severity: int = 3, *, seed: int = 0) -> np.ndarray: ...
@overload
def corrupt(image: Image.Image, name: str, severity: int = 3, *, seed: int = 0) -> Image.Image: ...
def corrupt(
    image: np.ndarray | Image.Image,
    name: str,
    severity: int = 3,
    *,
    seed: int = 0,
) -> np.ndarray | Image.Image:
    """Return a corrupted copy of an image, or of each image of a batch.

    The same arguments give the same bytes, on every processor, with the same versions of numpy,
    scipy and Pillow. An image of a batch has the bytes that it has alone with the seed plus its
    index.

    Args:
        image: a PIL image of mode RGB or L, or uint8 levels [height, width, 3] or [batch, height,
            width, 3]. Sides of 8 pixels or more. Sides under 85 pixels get the constants of
            CIFAR-10-C, larger ones those of ImageNet-C.
        name: one of `counterfoil.corruptions()`.
        severity: 1 to 5.
        seed: of the random numbers, 0 or more. Two severities of one corruption share their noise
            at the same seed.

    Returns:
        The image in the form that it was given in.

    Raises:
        KeyError: there is no corruption of that name.
        ValueError: the image has another form, or the severity is another number.
    """
    if isinstance(image, Image.Image):
        if image.mode not in ("RGB", "L"):
            raise ValueError(f"an image has mode RGB or L, not {image.mode}: image.convert('RGB')")
        corrupted = corrupt(np.asarray(image.convert("RGB")), name, severity, seed=seed)
        return Image.fromarray(corrupted).convert(image.mode)
    if image.ndim == 4:
        if not len(image):
            return image.copy()
        corrupted = []
        for index, pixels in enumerate(image):
            corrupted.append(corrupt(pixels, name, severity, seed=seed + index))
        return np.stack(corrupted)
    is_picture = image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
    if not is_picture or min(image.shape[:2]) < SMALLEST_SIDE:
        raise ValueError(
            f"a picture is uint8 [height, width, 3], {SMALLEST_SIDE} pixels or more, not"
            f" {image.dtype} {image.shape}"
        )
    constants = constants_of(name, severity, *image.shape[:2])
    rng = np.random.Generator(np.random.PCG64(seed))
    picture = image / 255.0
    arrays = random_arrays(name, rng, picture, constants)
    return corrupted_by(picture, name, severity, *arrays)


def corruptions() -> Mapping[str, Corruption]:
    """Return all corruptions by name: what each does (`says`), and whether it moves pixels
    (`moves_pixels`).

    They include those of installed plugins.
    """
    return dict(CORRUPTIONS)


def random_arrays(
    name: str,
    rng: np.random.Generator,
    picture: np.ndarray,
    constants: Any,
) -> tuple[np.ndarray, ...]:
    """Draw the random arrays of a corruption for a picture with levels from 0 to 1. Some
    corruptions have none."""
    corruption = CORRUPTIONS[name]
    draw = corruption.draw
    if corruption.apply is None:
        draw = getattr(_functions(name), f"draw_{name}", None)
    return () if draw is None else draw(rng, picture, constants)


def _functions(name: str) -> ModuleType:
    """Return the module with the functions of a corruption of our own."""
    return held_out_kinds if hasattr(held_out_kinds, name) else corruption_kinds


def corrupted_by(picture: np.ndarray, name: str, severity: int, *arrays: np.ndarray) -> np.ndarray:
    """Corrupt a picture with levels from 0 to 1 by its random arrays. Return a uint8 picture."""
    apply = CORRUPTIONS[name].apply or getattr(_functions(name), name)
    constants = constants_of(name, severity, *picture.shape[:2])
    corrupted = apply(picture, constants, *arrays)
    return np.rint(np.clip(corrupted, 0, 1) * 255).astype(np.uint8)


def constants_of(name: str, severity: int, height: int, width: int) -> Any:
    """Return the constants of a corruption at a severity for pictures of this size."""
    if severity not in range(1, SEVERITIES + 1):
        raise ValueError(f"severity is 1 to {SEVERITIES}, not {severity}")
    corruption = CORRUPTIONS[name]
    constants = corruption.large
    if corruption.small and min(height, width) < SMALL_BELOW:
        constants = corruption.small
    return constants[severity - 1]


# The corruption `match`, a control for a drawn shift.


def contrast_match(base: np.ndarray, shifted: np.ndarray) -> tuple[float, float]:
    """Return the gain and offset that give the base the mean and standard deviation of the shifted
    picture's luma.

    Both pictures are uint8 [height, width, 3], and their sizes may differ. A base of one grey level
    gets gain 1.
    """
    base_luma = luma(base)
    shifted_luma = luma(shifted)
    deviation = float(base_luma.std())
    gain = 1.0
    # In a picture of one grey level, rounding alone makes the luma differ from its mean.
    if deviation > 1e-6:
        gain = float(shifted_luma.std()) / deviation
    return gain, float(shifted_luma.mean()) - gain * float(base_luma.mean())


def apply_gain(base: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """Multiply every level by the gain, add the offset, and clip the result to black and white."""
    levels = np.rint(np.clip(np.arange(256) * gain + offset, 0, 255)).astype(np.uint8)
    return levels[base]
