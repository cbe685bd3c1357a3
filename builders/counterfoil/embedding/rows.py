"""Features of encoded images, a batch after another; NaN where an image cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding.embedders import Embedder
from counterfoil.store.decoding import decoded_batches

if TYPE_CHECKING:
    from PIL.Image import Image


def embedded_batches(
    images: Iterable[bytes | None],
    embedder: Embedder,
    batch_size: int,
    device: str,
    decoded: Callable[[bytes | None], Image | None],
) -> Iterator[NDArray[np.float32]]:
    """Features [batch, width] of whole batches, computed on `device`; the last may be shorter."""
    for batch in decoded_batches(images, decoded, batch_size, device):
        yield _rows(embedder, batch, batch_size)


def _rows(embedder: Embedder, decoded: list[Image | None], batch_size: int) -> NDArray[np.float32]:
    readable = [place for place, image in enumerate(decoded) if image is not None]
    if not readable:  # the width is not known from here
        from PIL import Image as Pillow

        width = embedder.features([Pillow.new("RGB", (8, 8))], batch_size).shape[1]
        return np.full((len(decoded), width), np.nan, np.float32)
    features = embedder.features([image for image in decoded if image is not None], batch_size)
    rows = np.full((len(decoded), features.shape[1]), np.nan, np.float32)
    rows[readable] = features
    return rows
