"""Small pictures for mining's page, of those images that can be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from counterfoil.mining.report import thumbnail

if TYPE_CHECKING:
    from PIL.Image import Image


def thumbnails(images: Mapping[str, bytes], decoded: Callable[[bytes], Image | None]) -> dict[str, bytes]:
    """Key → a picture that the page takes."""
    found = {key: decoded(encoded) for key, encoded in images.items()}
    return {key: thumbnail(image) for key, image in found.items() if image is not None}
