"""Keep images that show something: a high shift score may reward darkness, and a black rectangle
shows no class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict, as_stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTRAST = "contrast"
BLACK = "black"
WHITE = "white"
# The highest luma of a black pixel and the lowest of a white one: 3 % of 255 at either end.
MOST_BLACK = 8
LEAST_WHITE = 247
_TAIL = 20  # one pixel in 20 is left out at either end of the range to compute the contrast
_LUMA = (19595, 38470, 7471)  # ITU-R BT.601 in 1/65536, as Pillow's mode L has it


class VisibleRule(KeepRule):
    """Keep images with enough contrast and not too much black or white. Without a setting, it only
    measures.

    `contrast` is the 95th minus the 5th percentile of the channel that varies most, because blue
    trousers on an equally dark wall have no contrast in luma. A small lamp in the dark can have the
    standard deviation of a faint picture, and the range of all pixels depends on only two pixels.
    """

    reasons = ("low_contrast", "too_black", "too_white")
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {
        CONTRAST: (0, 255),
        BLACK: (0, 1),
        WHITE: (0, 1),
    }

    contrast: float | None = Field(default=None, ge=0, le=255)
    """Lowest contrast: 95th minus 5th percentile of the channel that varies most, from 0 to 255."""
    black: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=f"Highest share of pixels with a luma of {MOST_BLACK} or less.",
    )
    white: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=f"Highest share of pixels with a luma of {LEAST_WHITE} or more.",
    )

    def scores(self) -> tuple[str, ...]:
        return (CONTRAST, BLACK, WHITE)

    def columns(self) -> dict[str, Column]:
        contrast = (
            "Contrast of the image: 95th minus 5th percentile of the channel that varies"
            " most, of 255."
        )
        return {
            CONTRAST: Column("float32", contrast),
            BLACK: Column("float32", f"Share of its pixels with a luma of {MOST_BLACK} or less."),
            WHITE: Column("float32", f"Share of its pixels with a luma of {LEAST_WHITE} or more."),
        }

    def measure(self, pixels: NDArray[Any]) -> dict[str, float]:
        return visibility(pixels)

    def reason_of(self, verdict: Verdict) -> str | None:
        contrast, black, white = map(verdict.scores.get, self.scores())
        if (
            self.contrast is not None
            and contrast is not None
            and contrast < as_stored(self.contrast)
        ):
            return "low_contrast"
        if self.black is not None and black is not None and black > as_stored(self.black):
            return "too_black"
        if self.white is not None and white is not None and white > as_stored(self.white):
            return "too_white"
        return None


def visibility(pixels: NDArray[Any]) -> dict[str, float]:
    """Return contrast, black and white of an image, uint8 (height, width, 3), as float32
    numbers."""
    import numpy as np

    pixels = pixels.reshape(-1, 3)
    luma = (pixels.astype(np.int64) @ np.array(_LUMA) + 0x8000) >> 16
    contrast = 0
    for levels in pixels.T:
        counts = np.bincount(levels, minlength=256)
        low = int(np.argmax(counts.cumsum() * _TAIL > levels.size))
        high = 255 - int(np.argmax(counts[::-1].cumsum() * _TAIL > levels.size))
        contrast = max(contrast, high - low)
    black = float((luma <= MOST_BLACK).mean())
    white = float((luma >= LEAST_WHITE).mean())
    return {CONTRAST: float(contrast), BLACK: as_stored(black), WHITE: as_stored(white)}
