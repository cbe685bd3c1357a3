"""Common corruptions of photographs (Hendrycks and Dietterich 2019), and what cameras and pipelines do beside them.

`corrupt` is a pure function: picture, name, severity and seed decide every byte on one stack. Constants are the
published ones, those of ImageNet-C for large pictures and those of CIFAR-10-C for small ones. Lengths among them are
pixels and do not grow with a picture, so that severities compare with published results at 224 and at 32 pixels.
Levels are rounded where the published code cuts them off. That code knows squares of these two sides alone: what other
pictures get is the same definition read for their sides. What else differs is each corruption's `deviation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from counterfoil.generate import corruption_kinds as kinds
from counterfoil.report.words import counted

# Half-way between 32 and 224 pixels as ratios go: sqrt(32 * 224). What was published for 64 pixels (Tiny-ImageNet-C) is
# nearer to the small table too, and the largest disk of the large one would be a third as wide as such a picture.
SMALL_BELOW = 85
SMALLEST_SIDE = 8


def _no_chance(rng: np.random.Generator, picture: np.ndarray, constant: Any) -> tuple[np.ndarray, ...]:
    return ()


@dataclass(frozen=True)
class Corruption:
    """A corruption by its name.

    says: what it does, in one plain sentence. apply: (picture from 0 to 1, constants, *arrays) → a picture, not yet
    clipped; the arrays are what `draw` gives. large, small: the constants of severities 1 to 5 for large and small
    pictures. deviation: how it differs from the published definition; None where it is that definition.
    """

    name: str
    says: str
    apply: Callable[..., np.ndarray]
    large: tuple[Any, ...]
    small: tuple[Any, ...]
    draw: Callable[..., tuple[np.ndarray, ...]] = _no_chance
    deviation: str | None = None


def corrupt(pixels: np.ndarray, name: str, severity: int, seed: int) -> np.ndarray:
    """A corrupted copy of a picture, uint8 [height, width, 3] with sides of 8 pixels or more, in the same shape.

    Severity is 1 to 5. Raises KeyError for another name, ValueError for another severity or picture.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or min(pixels.shape[:2]) < SMALLEST_SIDE:
        raise ValueError(
            f"a picture is uint8 [height, width, 3], {SMALLEST_SIDE} pixels or more, not {pixels.dtype} {pixels.shape}"
        )
    constants = constants_of(name, severity, *pixels.shape[:2])
    rng = np.random.Generator(np.random.PCG64(seed))
    picture = pixels / 255.0
    return corrupted_by(picture, name, severity, *CORRUPTIONS[name].draw(rng, picture, constants))


def corrupted_by(picture: np.ndarray, name: str, severity: int, *arrays: np.ndarray) -> np.ndarray:
    """As `corrupt`, of a picture from 0 to 1 and with these arrays as all that is random."""
    height, width = picture.shape[:2]
    corrupted = CORRUPTIONS[name].apply(picture, constants_of(name, severity, height, width), *arrays)
    return np.rint(np.clip(corrupted, 0, 1) * 255).astype(np.uint8)


def twice_compressed(sides: Sequence[int]) -> list[str]:
    """Return a warning on `jpeg_compression` where JPEG files of these shorter sides get the qualities of CIFAR-10-C.

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
    """The constants of a severity for pictures of this size."""
    if severity not in range(1, 6):
        raise ValueError(f"severity is 1 to 5, not {severity}")
    corruption = CORRUPTIONS[name]
    return (corruption.small if min(height, width) < SMALL_BELOW else corruption.large)[severity - 1]


def contrast_match(base: np.ndarray, shifted: np.ndarray) -> tuple[float, float]:
    """Gain and offset in grey levels that give the base the mean and the standard deviation of the shifted picture.

    Both are of luma, over all pixels, so that nothing needs to be at the same place in the two. Where the base is flat
    the gain is 1. Pictures are uint8 [height, width, 3], of any two sizes.
    """
    base_luma, shifted_luma = (kinds.luma(picture) for picture in (base, shifted))
    deviation = float(base_luma.std())
    # A flat picture's luma differs from its mean by rounding alone.
    gain = float(shifted_luma.std()) / deviation if deviation > 1e-6 else 1.0
    return gain, float(shifted_luma.mean()) - gain * float(base_luma.mean())


def apply_gain(base: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """Every level times the gain, and the offset added; what goes beyond black or white is cut off."""
    levels = np.rint(np.clip(np.arange(256) * gain + offset, 0, 255)).astype(np.uint8)
    return levels[base]


OWN = "Not of the published set."

CORRUPTIONS: Mapping[str, Corruption] = {
    one.name: one
    for one in (
        Corruption(
            "gaussian_noise",
            "Adds normal noise to every channel of every pixel, as a sensor does in poor light.",
            lambda picture, deviation, normal: picture + deviation * normal,
            (0.08, 0.12, 0.18, 0.26, 0.38),
            (0.04, 0.06, 0.08, 0.09, 0.10),
            kinds.draw_normal,
        ),
        Corruption(
            "shot_noise",
            "Counts few photons in every pixel, so that brighter ones vary more.",
            lambda picture, full, photons: photons / full,
            (60, 25, 12, 5, 3),
            (500, 250, 100, 75, 50),
            # How many arrive in each pixel, where a white one gets so many on average.
            lambda rng, picture, full: (rng.poisson(picture * full),),
        ),
        Corruption(
            "impulse_noise",
            "Sets single channels of some pixels to black or white.",
            lambda picture, share, struck, salt: np.where(struck <= share, np.where(salt <= 0.5, 1.0, 0.0), picture),
            (0.03, 0.06, 0.09, 0.17, 0.27),
            (0.01, 0.02, 0.03, 0.05, 0.07),
            lambda rng, picture, _: (rng.random(picture.shape), rng.random(picture.shape)),
        ),
        Corruption(
            "speckle_noise",
            "Adds normal noise that grows with the level of a pixel.",
            lambda picture, deviation, normal: picture + picture * deviation * normal,
            (0.15, 0.2, 0.35, 0.45, 0.6),
            (0.06, 0.1, 0.12, 0.16, 0.2),
            kinds.draw_normal,
        ),
        Corruption(
            "defocus_blur",
            "Spreads every pixel over a disk, as a lens out of focus does.",
            kinds.defocused,
            ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
            ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ),
        Corruption(
            "glass_blur",
            "Lets near pixels take each other's colour between two slight blurs, as frosted glass does.",
            kinds.through_glass,
            ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
            ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
            kinds.draw_swaps,
        ),
        Corruption(
            "motion_blur",
            "Spreads every pixel along a line, as a camera that moves does.",
            kinds.moved,
            ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
            ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
            lambda rng, *_: (np.asarray(rng.uniform(-45, 45)),),  # degrees from the horizontal
        ),
        Corruption(
            "zoom_blur",
            "Averages the picture with its own middle at growing sizes, as a zoom during the exposure does.",
            kinds.zoomed_in_on,
            ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
            ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ),
        Corruption(
            "gaussian_blur",
            "Blurs by a Gaussian.",
            kinds.blurred,
            (1, 2, 3, 4, 6),
            (0.4, 0.6, 0.7, 0.8, 1),
        ),
        Corruption(
            "snow",
            "Whitens the picture and lets snow fall across it.",
            kinds.snowed,
            (
                (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            ),
            (
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ),
            kinds.draw_flakes,
        ),
        Corruption(
            "frost",
            "Lays ice crystals over the picture, as on a frozen window.",
            kinds.frosted,
            ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
            ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
            kinds.draw_ice,
            "The ice is drawn, not cut from photographs; it is mixed in by the published shares.",
        ),
        Corruption(
            "fog",
            "Lays uneven fog over the picture.",
            kinds.fogged,
            ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
            ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
            kinds.draw_fractal,
        ),
        Corruption(
            "spatter",
            "Splashes water on the lens, and mud at severities 4 and 5.",
            kinds.splashed,
            (
                (0.65, 0.3, 4, 0.69, 0.6, 0),
                (0.65, 0.3, 3, 0.68, 0.6, 0),
                (0.65, 0.3, 2, 0.68, 0.5, 0),
                (0.65, 0.3, 1, 0.65, 1.5, 1),
                (0.67, 0.4, 1, 0.65, 1.5, 1),
            ),
            (
                (0.62, 0.1, 0.7, 0.7, 0.5, 0),
                (0.65, 0.1, 0.8, 0.7, 0.5, 0),
                (0.65, 0.3, 1, 0.69, 0.5, 0),
                (0.65, 0.1, 0.7, 0.69, 0.6, 1),
                (0.65, 0.1, 0.5, 0.68, 0.6, 1),
            ),
            lambda rng, picture, _: (rng.standard_normal(picture.shape[:2]),),
        ),
        Corruption(
            "brightness",
            "Makes the picture brighter, the same step for every pixel.",
            kinds.brightened,
            (0.1, 0.2, 0.3, 0.4, 0.5),
            (0.05, 0.1, 0.15, 0.2, 0.3),
        ),
        Corruption(
            "contrast",
            "Draws every pixel towards the picture's mean colour.",
            kinds.less_contrast,
            (0.4, 0.3, 0.2, 0.1, 0.05),
            (0.75, 0.5, 0.4, 0.3, 0.15),
        ),
        Corruption(
            "elastic_transform",
            "Shears the picture and bends it in smooth waves.",
            kinds.bent,
            tuple(
                (244 * a, 244 * b, 244 * c, 224)
                for a, b, c in (
                    (2, 0.7, 0.1),
                    (2, 0.08, 0.2),
                    (0.05, 0.01, 0.02),
                    (0.07, 0.01, 0.02),
                    (0.12, 0.01, 0.02),
                )
            ),
            tuple(
                (32 * a, 32 * b, 32 * c, 32)
                for a, b, c in (
                    (0, 0, 0.08),
                    (0.05, 0.2, 0.07),
                    (0.08, 0.06, 0.06),
                    (0.1, 0.04, 0.05),
                    (0.1, 0.03, 0.03),
                )
            ),
            kinds.draw_bend,
            "Lengths grow with the shorter side, so that every size is bent in the same form.",
        ),
        Corruption(
            "pixelate",
            "Shows the picture in larger pixels.",
            partial(kinds.by_way_of, resampling=Image.Resampling.BOX),
            (0.6, 0.5, 0.4, 0.3, 0.25),
            (0.95, 0.9, 0.85, 0.75, 0.65),
        ),
        Corruption(
            "jpeg_compression",
            "Saves the picture as a JPEG of low quality.",
            kinds.jpeg,
            (25, 18, 15, 10, 7),
            (80, 65, 58, 50, 40),
        ),
        Corruption(
            "saturate",
            "Takes colour away at severities 1 and 2, and adds too much of it above.",
            kinds.saturated,
            ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
            ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ),
        Corruption(
            "darker",
            "Exposes the picture too little, by half a stop to three stops of light.",
            kinds.darker,
            (0.5, 1.0, 1.5, 2.25, 3.0),
            (0.5, 1.0, 1.5, 2.25, 3.0),
            deviation=OWN,
        ),
        Corruption(
            "colour_cast",
            "Balances white wrongly, so that the picture is too warm or too cold.",
            kinds.colour_cast,
            (0.4, 0.8, 1.2, 1.8, 2.5),
            (0.4, 0.8, 1.2, 1.8, 2.5),
            kinds.draw_sign,
            OWN,
        ),
        Corruption(
            "greyscale",
            "Takes colour away by fifths; at severity 5 the picture is grey.",
            lambda picture, share: picture + share * (kinds.luma(picture)[..., None] - picture),
            (0.2, 0.4, 0.6, 0.8, 1.0),
            (0.2, 0.4, 0.6, 0.8, 1.0),
            deviation=OWN,
        ),
        Corruption(
            "rotation",
            "Turns the picture by 5 to 45 degrees to either side and fills the corners with its mirror image.",
            kinds.turned,
            (5, 10, 20, 30, 45),
            (5, 10, 20, 30, 45),
            kinds.draw_sign,
            OWN,
        ),
        Corruption(
            "occlusion",
            "Covers 5 to 40 % of the picture with a grey rectangle.",
            kinds.occluded,
            (0.05, 0.1, 0.2, 0.3, 0.4),
            (0.05, 0.1, 0.2, 0.3, 0.4),
            lambda rng, *_: (rng.random(2),),
            OWN,
        ),
        Corruption(
            "low_resolution",
            "Shrinks the picture and enlarges it smoothly again.",
            partial(kinds.by_way_of, resampling=Image.Resampling.BICUBIC),
            (0.5, 0.35, 0.25, 0.18, 0.125),
            (0.8, 0.65, 0.5, 0.4, 0.3),
            deviation=OWN,
        ),
    )
}
