"""Which images are the same picture, however they are encoded: a hash of the pixels of each, kept in the user's cache.

A set of rows stores a pool's images anew, so that the bytes of a file tell less than what is seen in it.
"""

from __future__ import annotations

import hashlib

from counterfoil.progress import report
from counterfoil.sources import LabelledImages
from counterfoil.store.atomic import make_folder, write_atomically
from counterfoil.store.decoding import pixels_sha256
from counterfoil.user_cache import user_cache

_DIGEST = hashlib.sha256().digest_size
_NO_IMAGE = bytes(_DIGEST)
_BETWEEN_STAGES = 1000


def pixels_of(images: LabelledImages) -> tuple[str | None, ...]:
    """For each image the sha256 of its size and its pixels as RGB; None where it cannot be decoded."""
    file = user_cache() / "pixels" / f"{images.content[:64]}.pixels"
    known = _kept(file, len(images))
    if known is None:
        found = []
        for _, encoded in images.images():
            found.append(_digest(images, encoded))
            if len(found) % _BETWEEN_STAGES == 0 or len(found) == len(images):
                report(f"{images.name}: pixels", len(found), len(images))
        known = b"".join(found)
        make_folder(file.parent)
        write_atomically(file, known)
    digests = (known[start : start + _DIGEST] for start in range(0, len(known), _DIGEST))
    return tuple(None if digest == _NO_IMAGE else digest.hex() for digest in digests)


def _digest(images: LabelledImages, encoded: bytes | None) -> bytes:
    picture = images.decoded(encoded)
    if picture is None:
        return _NO_IMAGE
    return bytes.fromhex(pixels_sha256(picture))


def _kept(file, rows: int) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return content if len(content) == _DIGEST * rows else None
