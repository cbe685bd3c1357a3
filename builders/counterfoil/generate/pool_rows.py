"""Real images as a generator: a sample is a row of a pool, taken as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import UserError
from counterfoil.generate.finished_pixels import DrawnAhead

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Sample


class PoolRows:
    """Gives batches of samples their images, as a `Renderer` does."""

    def __init__(self, image: Callable[[int], Image.Image], license: Callable[[int], str | None] | None) -> None:
        self._image = image
        self._license = license

    def render(self, samples: Sequence[Sample]) -> list[np.ndarray | None]:
        """uint8 [height, width, 3] of each sample's row; None for one that cannot be decoded."""
        return [self._pixels(sample) for sample in samples]

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """As `Renderer.ahead`: there is nothing to wait for."""
        images = self.render(samples)
        return lambda: images

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """What the columns of rows hold of each sample: its place in the pool, and its licence where that tells one."""
        told: list[dict[str, Any]] = []
        for sample in samples:
            assert sample.row is not None  # the recipe takes rows of a pool
            licence = {} if self._license is None else {"license": self._license(sample.row)}
            told.append({**sample.of_pool, **licence})
        return told

    def _pixels(self, sample: Sample) -> np.ndarray | None:
        assert sample.row is not None
        try:
            return np.asarray(self._image(sample.row))
        except UserError:  # counted and told as any image that failed
            return None
