"""Small WebP pictures of a page, as data URIs: none has more than 8 kB, and none tells how large its image was."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.card.pictures import encoded_images, reduced
from counterfoil.errors import RunFailure
from counterfoil.reviewing.accepted_images import AcceptedImage
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from PIL.Image import Image

    from counterfoil.store import Receipt

SIDE = 160
_MOST_BYTES = 8_000
# Noise compresses badly: such pictures are made worse, then smaller, until they fit.
_WAYS = ((SIDE, 75), (SIDE, 50), (SIDE, 25), (SIDE // 2, 50), (SIDE // 2, 10))


def thumbnails(
    directory: Path, receipts: Sequence[Receipt], images: Sequence[AcceptedImage]
) -> Mapping[AcceptedImage, str]:
    """A picture of each image. RunFailure for one that is not there or does not open."""
    by_receipt: dict[int, dict[str, AcceptedImage]] = {}
    for image in images:
        by_receipt.setdefault(image.at, {})[image.key] = image
    found: dict[AcceptedImage, str] = {}
    for at, own in sorted(by_receipt.items()):
        receipt = receipts[at]
        file = receipt.file("data")
        assert file is not None  # its rows were read
        for key, encoded in encoded_images(directory / file.path, set(own)):
            found[own[key]] = thumbnail(reduced(encoded, f"{file.path}: {key}", SIDE))
        missing = [key for key, image in own.items() if image not in found]
        if missing:
            raise RunFailure(f"{directory / file.path} has no row {missing[0]}", remake_hint(directory, receipt.path))
    return found


def thumbnail(image: Image) -> str:
    """One picture, at most 160 pixels a side."""
    encoded = b""
    for side, quality in _WAYS:
        small = image.copy()
        small.thumbnail((side, side))
        with io.BytesIO() as file:
            small.save(file, "WEBP", quality=quality, method=4)
            encoded = file.getvalue()
        if len(encoded) <= _MOST_BYTES:
            break
    return f"data:image/webp;base64,{base64.b64encode(encoded).decode()}"
