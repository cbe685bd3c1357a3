"""Make the fingerprint by which an encoded image is compared with others (`image_copies`)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.image_copies import DIGEST, FINGERPRINT, SIDE
from counterfoil.store.decoding import UnreadableImage, load_image, open_image

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

# A JPEG with longer sides is decoded at a half, a quarter or an eighth of its size, which takes a
# fraction of the time.
_LONGEST_DECODED = 1024
# Pictures of 8 bits, of which RGBA holds all. So a grey picture equals itself in colour.
_IN_RGBA = ("1", "L", "LA", "P", "PA", "RGB", "RGBA")
# Beginnings of modes with 16 or 32 bits a pixel.
_DEEP = ("I", "F")


def file_digest(encoded: bytes) -> bytes:
    return hashlib.sha256(encoded).digest()[:DIGEST]


def fingerprint(encoded: bytes) -> NDArray[Any]:
    """Return the fingerprint of an encoded image, an array of one `FINGERPRINT`. One that cannot be
    read has its file alone. A picture that is reduced while it is decoded has the digest of its file
    in place of its pixels."""
    made = np.zeros(1, FINGERPRINT)
    made["file"] = np.void(file_digest(encoded))
    try:
        with open_image(encoded, photograph=True) as picture:
            size = picture.size
            if max(size) > _LONGEST_DECODED:
                picture.draft("RGB", (_LONGEST_DECODED // 2, _LONGEST_DECODED // 2))
            decoded = load_image(picture)
            if decoded.mode in _IN_RGBA:
                decoded = decoded.convert("RGBA")
            pixels = decoded.tobytes() if decoded.size == size else encoded
            digest = hashlib.sha256(f"{decoded.mode} {decoded.size} ".encode())
            digest.update(pixels)
            made["grey"] = _small_grey(decoded)
    except (UnreadableImage, OSError, ValueError, MemoryError):
        return made
    made["pixels"] = np.void(digest.digest()[:DIGEST])
    return made


def _small_grey(picture: Image) -> NDArray[np.uint8]:
    """Return a picture in grey, [32, 32]. Of 16 or 32 bits, its darkest pixel becomes black and its
    brightest one white."""
    from PIL import Image

    if picture.mode.startswith(_DEEP):
        levels = np.asarray(picture).astype(np.float64)
        levels = np.nan_to_num(levels, posinf=0, neginf=0)
        levels -= levels.min()
        levels *= 255 / max(levels.max(), 1)
        picture = Image.fromarray(levels.astype(np.uint8))
    elif picture.mode == "RGBA":
        picture = picture.convert("RGB")
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(small)
