"""Features of encoded images, a batch after another, decoded one batch ahead; NaN where an image cannot be decoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding.embedders import Embedder

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST_DECODERS = 8


def embedded_batches(
    images: Iterable[bytes | None], embedder: Embedder, batch_size: int, decoded: Callable[[bytes | None], Image | None]
) -> Iterator[NDArray[np.float32]]:
    """Features [batch, width] of whole batches; the last may be shorter."""
    stream = iter(images)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with ThreadPoolExecutor(max(1, min(_MOST_DECODERS, cores))) as pool:
        ahead = [pool.submit(decoded, one) for one in islice(stream, batch_size)]
        while ahead:
            current, ahead = ahead, [pool.submit(decoded, one) for one in islice(stream, batch_size)]
            yield _rows(embedder, [future.result() for future in current], batch_size)


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
