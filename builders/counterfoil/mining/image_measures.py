"""Measures of an image, whatever it shows: light, colour, focus, size, compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.store.decoding import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

# Larger images are reduced to this size first, so that focus is measured as a model of usual input size sees it.
_LONGEST_SIDE = 256
# Of the luminance table of quality 50 (ITU-T T.81, table K.1), from which libjpeg scales those of all others.
_TABLE_SUM, _TABLE_LEAST, _CLIPPED = 3688, 10, 255
_LOSSLESS = 100


@dataclass(frozen=True, slots=True)
class ImageMeasure:
    """A measure of images. low, high: words for images with little and with much of it."""

    name: str
    low: str
    high: str
    unit: str = ""

    def words(self, *values: float) -> str:
        """Return a value, or the span of several: `62 of 255`, `41 to 80 of 255`."""
        ends = [f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}" for value in (min(values), max(values))]
        return " to ".join(dict.fromkeys(ends)) + self.unit


MEASURES = (
    ImageMeasure("brightness", "dark", "bright", " of 255"),
    ImageMeasure("contrast", "low in contrast", "rich in contrast", " of 255"),
    ImageMeasure("saturation", "pale", "colourful", " of 255"),
    ImageMeasure("red minus blue", "bluish", "reddish", " of 255"),
    ImageMeasure("variance of the Laplacian", "blurred", "sharp"),
    ImageMeasure("size", "small", "large", " pixels"),
    ImageMeasure("width divided by height", "tall", "wide"),
    ImageMeasure("JPEG quality", "strongly compressed", "lightly compressed", " of 100"),
)


def measure_image(image: Image, encoded: bytes) -> tuple[float, ...]:
    """Return the measures of an RGB image and of its file, in the order of `MEASURES`.

    brightness, contrast: the mean and the standard deviation of the luma (ITU-R BT.601). saturation: the mean of the
    saturation in HSV.
    """
    width, height = image.size
    if max(width, height) > _LONGEST_SIDE:
        image = image.copy()
        image.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    luma = np.asarray(image.convert("L"), dtype=np.float64)
    colour = np.asarray(image, dtype=np.float64).mean(axis=(0, 1))
    inner = luma[1:-1, 1:-1]
    laplacian = luma[:-2, 1:-1] + luma[2:, 1:-1] + luma[1:-1, :-2] + luma[1:-1, 2:] - 4 * inner
    return (
        float(luma.mean()),
        float(luma.std()),
        float(np.asarray(image.convert("HSV"))[..., 1].mean()),
        float(colour[0] - colour[2]),
        float(laplacian.var()) if laplacian.size else 0.0,
        float(width * height),
        width / height,
        jpeg_quality(encoded),
    )


def jpeg_quality(encoded: bytes) -> float:
    """Return the quality of a JPEG on libjpeg's scale, 1 to 100, computed from its luminance table. A file of another
    format has 100.
    """
    table = getattr(open_image(encoded, photograph=True), "quantization", {}).get(0)
    if table is None:
        return float(_LOSSLESS)
    # At low qualities, large entries of the table are clipped, but the smallest entry never is.
    percent = 100 * (sum(table) / _TABLE_SUM if max(table) < _CLIPPED else min(table) / _TABLE_LEAST)
    quality = 100 - percent / 2 if percent <= 100 else 5000 / percent
    return float(min(_LOSSLESS, max(1, round(quality))))
