"""Small pictures for pages and cards: WebP bytes of one set of settings, and addresses that hold
them."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image


def thumbnail(image: Image, side: int) -> Image:
    """Return a copy of an image, at most `side` pixels a side."""
    small = image.copy()
    small.thumbnail((side, side))
    return small


def encode_webp(image: Image, quality: int, side: int | None = None, method: int = 4) -> bytes:
    """Return an image as WebP, with a `side` at most so many pixels a side; the image is left as it
    is."""
    if side is not None:
        image = thumbnail(image, side)
    with io.BytesIO() as file:
        image.save(file, "WEBP", quality=quality, method=method)
        return file.getvalue()


def data_uri(encoded: bytes) -> str:
    """Return a WebP image as an address that holds it."""
    return f"data:image/webp;base64,{base64.b64encode(encoded).decode()}"
