"""Make the fingerprint by which an encoded image is compared with others (`image_copies`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.image_copies import DIGEST, FINGERPRINT, SIDE
from counterfoil.store.decoding import UnreadableImage, load_image, open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A JPEG with longer sides is decoded at a half, a quarter or an eighth of its size, which takes a
# fraction of the time.
_LONGEST_DECODED = 1024


def file_digest(encoded: bytes) -> bytes:
    return hashlib.sha256(encoded).digest()[:DIGEST]


def fingerprint(encoded: bytes) -> NDArray[Any]:
    """Return the fingerprint of an encoded image, an array of one `FINGERPRINT`. One that cannot be
    read has its file alone."""
    from PIL import Image

    made = np.zeros(1, FINGERPRINT)
    made["file"] = np.void(file_digest(encoded))
    try:
        with open_image(encoded, photograph=True) as picture:
            size = picture.size
            if max(size) > _LONGEST_DECODED:
                picture.draft("RGB", (_LONGEST_DECODED // 2, _LONGEST_DECODED // 2))
            decoded = load_image(picture).convert("RGB")
    except (UnreadableImage, OSError, ValueError, MemoryError):
        return made
    pixels = hashlib.sha256(f"{size} {decoded.size} ".encode())
    pixels.update(decoded.tobytes())
    small = decoded.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    made["pixels"] = np.void(pixels.digest()[:DIGEST])
    made["grey"] = np.asarray(small)
    return made
