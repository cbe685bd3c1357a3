"""The content of each of some images, as sha256 of their bytes, kept in an array on disk beside their features."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure
from counterfoil.progress import track
from counterfoil.recipe import sha256_json
from counterfoil.store.atomic import write_atomically

if TYPE_CHECKING:
    from counterfoil.sources import LabelledImages

_BYTES = 32
_TOLD_EVERY = 1000


def contents_of(images: LabelledImages, folder: Path) -> NDArray[np.uint8]:
    """(n, 32) bytes of the sha256 of n encoded images; zeros where a row has none. Found again in `folder`.

    Yields how many images are read. RunFailure when the disk refuses, or where fewer images come than there are keys.
    """
    path = folder / f"contents-{sha256_json([images.content, 'contents'])[:24]}.npy"
    known = _known(path, len(images))
    if known is not None:
        return known
    found = np.zeros((len(images), _BYTES), dtype=np.uint8)
    done = 0
    for _, image in track(images.images(), f"{images.name}: contents", len(images), _TOLD_EVERY):
        if image is not None:
            found[done] = np.frombuffer(hashlib.sha256(image).digest(), dtype=np.uint8)
        done += 1
    if done != len(images):
        raise RunFailure(f"{images.name}: {len(images)} images were expected and {done} were read")
    stream = io.BytesIO()
    np.save(stream, found)
    write_atomically(path, stream.getvalue())
    return found


def first_of_content(contents: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(n,) whether no earlier row of (n, 32) has the same content."""
    first = np.zeros(len(contents), dtype=bool)
    whole = np.ascontiguousarray(contents).view(f"V{contents.shape[1]}").reshape(len(contents))
    first[np.unique(whole, return_index=True)[1]] = True
    return first


def _known(path: Path, rows: int) -> NDArray[np.uint8] | None:
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == (rows, _BYTES) and array.dtype == np.uint8 else None
