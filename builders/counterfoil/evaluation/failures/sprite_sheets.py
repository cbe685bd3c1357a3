"""Small pictures of many images in sheets of some hundred, which a page loads as they are seen."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

COLUMNS = 12
IMAGES_A_SHEET = COLUMNS * COLUMNS
# The longer side of a picture in pixels; a smaller image keeps its own.
SIDE = 128


@dataclass(frozen=True)
class SpriteSheet:
    """The encoded WebP of a sheet: pictures in rows of `COLUMNS`, each in the middle of a square."""

    number: int
    encoded: bytes


def sprite_sheets(pictures: Iterable[Image | None]) -> Iterator[SpriteSheet]:
    """The sheets of pictures in their order; None leaves its square empty."""
    left = iter(pictures)
    for number in count():
        sheet = [None if one is None else _reduced(one) for one in islice(left, IMAGES_A_SHEET)]
        if not sheet:
            return
        yield _drawn(number, sheet)


def sheet_rows(total: int) -> list[int]:
    """How many rows of squares each sheet of `total` pictures has."""
    return [
        -(-min(IMAGES_A_SHEET, total - start) // COLUMNS) for start in range(0, total, IMAGES_A_SHEET)
    ]  # fmt: skip


def _reduced(picture: Image) -> Image:
    small = picture.copy()
    small.thumbnail((SIDE, SIDE), reducing_gap=2.0)
    return small


def _drawn(number: int, pictures: list[Image | None]) -> SpriteSheet:
    from PIL import Image

    side = max((max(one.size) for one in pictures if one is not None), default=1)
    rows = -(-len(pictures) // COLUMNS)
    sheet = Image.new("RGBA", (COLUMNS * side, rows * side))
    for place, picture in enumerate(pictures):
        if picture is not None:
            across, down = ((side - length) // 2 for length in picture.size)
            sheet.paste(picture, (place % COLUMNS * side + across, place // COLUMNS * side + down))
    buffer = io.BytesIO()
    sheet.save(buffer, "WEBP", quality=80, method=4)
    return SpriteSheet(number, buffer.getvalue())
