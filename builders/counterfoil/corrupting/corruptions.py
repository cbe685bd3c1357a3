"""The corruptions of photographs by name: those of Hendrycks and Dietterich 2019, the held-out ones
of Mintun 2021, those of cameras and pipelines, and those of plugins.

`corruption_kinds.py`, or for held-out ones `held_out_kinds.py`, has a function of the same name for
each corruption of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from counterfoil.registry import Registry


@dataclass(frozen=True, slots=True)
class Corruption:
    """A corruption: the kind of its shifts, one sentence on its effect, and its constants.

    A plugin gives `apply`, and `draw` if the corruption is random. Both work on a picture, float64
    [height, width, 3] from 0 to 1, and must give the same numbers on every processor.
    """

    kind: str
    """One of `KINDS`. Reports group shifts by it."""
    says: str
    """One sentence on its effect."""
    large: tuple[Any, ...]
    """The constants of severities 1 to 5. Our published ones are those of ImageNet-C."""
    small: tuple[Any, ...] = ()
    """The constants for pictures whose shorter side is under 85 pixels, those of CIFAR-10-C. Empty:
    `large`."""
    deviation: str | None = None
    """The difference from the published definition, if there is one."""
    moves_pixels: bool = False
    """Whether it moves pixels, so that boxes and masks no longer fit."""
    apply: Callable[..., Any] | None = None
    """A function from the picture, the severity's constants and the random arrays to the corrupted
    picture, of the same shape. Levels outside 0 to 1 are clipped. None: the function of
    `corruption_kinds.py`."""
    draw: Callable[..., tuple[Any, ...]] | None = None
    """A function from a `numpy.random.Generator`, the picture and the constants to the random
    arrays."""


KINDS = ("noise", "blur", "weather", "digital", "camera")
SEVERITIES = 5
# Pictures whose shorter side is less than `SMALL_BELOW` get the constants for 32 pixels. The limit
# is the geometric mean of 32 and 224. Pictures of 64 pixels belong below the limit for two reasons.
# Their own published constants (Tiny-ImageNet-C) are nearer to the constants for 32 pixels. And the
# largest disk for 224 pixels would be a third as wide as such a picture.
SMALL_BELOW = 85
OWN = "Not of the published set."
HELD_OUT = "Of ImageNet-C-bar, not of ImageNet-C; constants are its severities."


def _own(
    says: str,
    large: tuple[float, ...],
    small: tuple[float, ...] = (),
    *,
    moves: bool = False,
) -> Corruption:
    return Corruption("camera", says, large, small or large, OWN, moves)


# The corruption "match" gives each base image of a built dataset the brightness and contrast of its
# shifted partner.
MATCH = "match"
# The published fifteen corruptions and their extra four come first, then the ten of ImageNet-C-bar
# and the corruptions by cameras and pipelines.
_OWN: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(
        "noise",
        "Adds normal noise to every channel of every pixel, as a sensor does in poor light.",
        (0.08, 0.12, 0.18, 0.26, 0.38),
        (0.04, 0.06, 0.08, 0.09, 0.10),
    ),
    "shot_noise": Corruption(
        "noise",
        "Counts few photons in every pixel, so that brighter ones vary more.",
        (60, 25, 12, 5, 3),
        (500, 250, 100, 75, 50),
    ),
    "impulse_noise": Corruption(
        "noise",
        "Sets single channels of some pixels to black or white.",
        (0.03, 0.06, 0.09, 0.17, 0.27),
        (0.01, 0.02, 0.03, 0.05, 0.07),
    ),
    "speckle_noise": Corruption(
        "noise",
        "Adds normal noise that grows with the level of a pixel.",
        (0.15, 0.2, 0.35, 0.45, 0.6),
        (0.06, 0.1, 0.12, 0.16, 0.2),
    ),
    "defocus_blur": Corruption(
        "blur",
        "Spreads every pixel over a disk, as a lens out of focus does.",
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    ),
    "glass_blur": Corruption(
        "blur",
        "Lets near pixels take each other's colour between two slight blurs, as frosted glass does.",
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    "motion_blur": Corruption(
        "blur",
        "Spreads every pixel along a line, as a camera that moves does.",
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    ),
    "zoom_blur": Corruption(
        "blur",
        "Averages the picture with its own middle at growing sizes, as a zoom during the exposure"
        " does.",
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        moves_pixels=True,
    ),
    "gaussian_blur": Corruption(
        "blur",
        "Blurs by a Gaussian.",
        (1, 2, 3, 4, 6),
        (0.4, 0.6, 0.7, 0.8, 1),
    ),
    "snow": Corruption(
        "weather",
        "Whitens the picture and lets snow fall across it.",
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
    ),
    "frost": Corruption(
        "weather",
        "Lays ice crystals over the picture, as on a frozen window.",
        ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        ((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
        "The ice is drawn, not cut from photographs; it is mixed in by the published shares.",
    ),
    "fog": Corruption(
        "weather",
        "Lays uneven fog over the picture.",
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ),
    "brightness": Corruption(
        "weather",
        "Makes the picture brighter, the same step for every pixel.",
        (0.1, 0.2, 0.3, 0.4, 0.5),
        (0.05, 0.1, 0.15, 0.2, 0.3),
    ),
    "spatter": Corruption(
        "weather",
        "Splashes water on the lens, and mud at severities 4 and 5.",
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
    ),
    "contrast": Corruption(
        "digital",
        "Draws every pixel towards the picture's mean colour.",
        (0.4, 0.3, 0.2, 0.1, 0.05),
        (0.75, 0.5, 0.4, 0.3, 0.15),
    ),
    "elastic_transform": Corruption(
        "digital",
        "Shears the picture and bends it in smooth waves.",
        # The published constants are multiples of 244, although pictures have 224 pixels.
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
        "Lengths grow with the shorter side, so that every size is bent in the same form.",
        moves_pixels=True,
    ),
    "pixelate": Corruption(
        "digital",
        "Shows the picture in larger pixels.",
        (0.6, 0.5, 0.4, 0.3, 0.25),
        (0.95, 0.9, 0.85, 0.75, 0.65),
    ),
    "jpeg_compression": Corruption(
        "digital",
        "Saves the picture as a JPEG of low quality.",
        (25, 18, 15, 10, 7),
        (80, 65, 58, 50, 40),
    ),
    "saturate": Corruption(
        "digital",
        "Takes colour away at severities 1 and 2, and adds too much of it above.",
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    ),
    "blue_noise_sample": Corruption(
        "noise",
        "Blackens pixels, spread evenly.",
        (0.8, 1.6, 2.4, 4.0, 5.6),
        (0.7, 1.4, 2.1, 3.5, 4.2),
        HELD_OUT,
    ),
    "brownish_noise": Corruption(
        "noise",
        "Adds noise of soft, large blotches to every channel.",
        (1, 2, 3, 4, 5),
        (2.5, 4.0, 5.5, 6.5, 7.0),
        HELD_OUT,
    ),
    "perlin_noise": Corruption(
        "noise",
        "Mixes in grey clouds of Perlin noise.",
        (4.6, 5.2, 5.8, 7.6, 8.8),
        (),
        HELD_OUT,
    ),
    "plasma_noise": Corruption(
        "noise",
        "Mixes in a coloured, folded pattern.",
        (4.75, 7.0, 8.5, 9.25, 10.0),
        (),
        HELD_OUT,
    ),
    "single_frequency_greyscale": Corruption(
        "noise",
        "Adds stripes of one frequency.",
        (1.0, 1.5, 2.0, 4.5, 5.0),
        (),
        HELD_OUT,
    ),
    "cocentric_sine_waves": Corruption(
        "noise",
        "Adds rings around a point, with wavy edges.",
        (3.0, 5.0, 8.0, 9.0, 10.0),
        (),
        HELD_OUT,
    ),
    "caustic_refraction": Corruption(
        "weather",
        "Bends and lights the picture as rippled water does.",
        (2.35, 3.2, 4.9, 6.6, 9.15),
        (),
        HELD_OUT,
        moves_pixels=True,
    ),
    "checkerboard_cutout": Corruption(
        "digital",
        "Covers some squares of a turned checkerboard with grey.",
        (2, 3, 4, 5, 6),
        (1, 2, 3, 4, 5),
        HELD_OUT,
    ),
    "sparkles": Corruption(
        "digital",
        "Adds five white sparkles.",
        (1, 2, 3, 5, 6),
        (0.7, 3.5, 5.6, 6.3, 7.0),
        HELD_OUT,
    ),
    "inverse_sparkles": Corruption(
        "digital",
        "Whitens the picture outside of one sparkle.",
        (1, 2, 4, 9, 10),
        (1.0, 1.5, 2.5, 4.5, 5.0),
        HELD_OUT,
    ),
    "darker": _own(
        "Exposes the picture too little, by half a stop to three stops of light.",
        (0.5, 1.0, 1.5, 2.25, 3.0),
    ),
    "colour_cast": _own(
        "Balances white wrongly, so that the picture is too warm or too cold.",
        (0.4, 0.8, 1.2, 1.8, 2.5),
    ),
    "greyscale": _own(
        "Takes colour away by fifths; at severity 5 the picture is grey.", (0.2, 0.4, 0.6, 0.8, 1.0)
    ),
    "rotation": _own(
        "Turns the picture by 5 to 45 degrees to either side and fills the corners with its mirror"
        " image.",
        (5, 10, 20, 30, 45),
        moves=True,
    ),
    "occlusion": _own(
        "Covers 5 to 40 % of the picture with a grey rectangle.", (0.05, 0.1, 0.2, 0.3, 0.4)
    ),
    "low_resolution": _own(
        "Shrinks the picture and enlarges it smoothly again.",
        (0.5, 0.35, 0.25, 0.18, 0.125),
        (0.8, 0.65, 0.5, 0.4, 0.3),
    ),
}


def _problem(registered: Any) -> str | None:
    if not isinstance(registered, Corruption):
        return "no `Corruption`"
    if registered.kind not in KINDS:
        return f"of kind '{registered.kind}', not one of {', '.join(KINDS)}"
    if len(registered.large) != SEVERITIES or len(registered.small) not in (0, SEVERITIES):
        return f"without constants for {SEVERITIES} severities"
    return None if registered.apply is not None else "without a function `apply`"


# Of our own and of installed plugins.
CORRUPTIONS: Registry[Corruption] = Registry("counterfoil.corruptions", _OWN, _problem)
