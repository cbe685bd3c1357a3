"""Small pictures for a page: at most so many pixels a side, in a format that browsers show."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 128


def thumbnails(images: Mapping[str, bytes], decoded: Callable[[bytes], Image | None]) -> dict[str, bytes]:
    """Key → PNG of at most `SIDE` pixels a side, for those images that can be decoded."""
    found: dict[str, bytes] = {}
    for key, encoded in images.items():
        image = decoded(encoded)
        if image is None:
            continue
        image.thumbnail((SIDE, SIDE))
        stream = io.BytesIO()
        image.save(stream, "PNG")
        found[key] = stream.getvalue()
    return found
