"""Labelled images from encoded pictures, with the keys k0, k1 and so on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterfoil.data.labelled_images import LabelledImages


def labelled(
    pictures: Sequence[bytes | None], labels: Sequence[int] | None = None, content: str = "one"
) -> LabelledImages:
    """Return the pictures in one group; without `labels` they are all of class 0."""
    pictures_by_key = {f"k{index}": picture for index, picture in enumerate(pictures)}

    def read(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for key, picture in pictures_by_key.items():
            if keys is None or key in keys:
                yield key, picture

    zeros = np.zeros(len(pictures), dtype=np.int64)
    numbers = zeros if labels is None else np.array(labels, dtype=np.int64)
    return LabelledImages(
        "pictures", content, tuple(pictures_by_key), numbers, zeros, ("all",), read
    )
