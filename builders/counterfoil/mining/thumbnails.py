"""Small pictures for mining's page: made of images that can be decoded, bounded, and carried by the page itself."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 96
_QUALITY = 75
# Noise of this side takes half of it; a page never takes more than 24 × 24 pictures of it.
MOST_PICTURE_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class PictureShown:
    """A picture of the page; `uri` is None where there is no image to show."""

    uri: str | None
    wrong: bool
    below: str
    title: str


def thumbnail(image: Image) -> bytes:
    """An image as a small WebP, for the page. The image is left as it is."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    with io.BytesIO() as file:
        small.save(file, "WEBP", quality=_QUALITY, method=6)
        return file.getvalue()


def thumbnails(images: Mapping[str, bytes], decoded: Callable[[bytes], Image | None]) -> dict[str, bytes]:
    """Key → a picture that the page takes."""
    found = {key: decoded(encoded) for key, encoded in images.items()}
    return {key: thumbnail(image) for key, image in found.items() if image is not None}


def picture_uri(encoded: bytes | None) -> str | None:
    """A thumbnail as an address that holds it. ValueError for one that is too large, or neither PNG, WebP nor JPEG."""
    if encoded is None:
        return None
    kind = (
        "png"
        if encoded.startswith(b"\x89PNG\r\n\x1a\n")
        else "jpeg"
        if encoded.startswith(b"\xff\xd8\xff")
        else "webp"
        if encoded[:4] == b"RIFF" and encoded[8:12] == b"WEBP"
        else None
    )
    if kind is None or len(encoded) > MOST_PICTURE_BYTES:
        raise ValueError(
            f"a thumbnail of {len(encoded):,} bytes, which is no {'small ' if kind else ''}PNG, WebP or JPEG"
        )
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"
