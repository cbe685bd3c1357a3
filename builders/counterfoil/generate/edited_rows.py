"""Real images under another circumstance: a sample is a row of the input dataset, drawn again under its prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import UserError
from counterfoil.generate.finished_pixels import DrawnAhead, as_pictures
from counterfoil.generate.inverted import InvertedRows, inversion_problems
from counterfoil.generate.render import Renderer

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe


class EditRenderer(Renderer):
    """Gives batches of samples their images, as a `Renderer` does, each from the row that it names.

    `image` decodes a row, `license` tells what its dataset says of it. The base goes the same way as every shift, so
    that it tells what the way itself costs. An image depends on its sample, its row and the batch size alone.
    """

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None = None,
    ) -> None:
        super().__init__(pipeline, recipe)
        self._image = image
        self._license = license
        if problems := list(inversion_problems(pipeline, recipe.generator)):
            raise UserError(problems)
        self._inverted = InvertedRows(self)

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """As `Renderer.ahead`; None for a row that cannot be decoded too. Raises as it does."""
        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        sources = self.sources(samples)
        there = [place for place, source in enumerate(sources) if source is not None]
        half = self.generator.batch_size // 2
        drawn: list[tuple[list[int], DrawnAhead]] = []
        for start in range(0, len(there), half):
            places = there[start : start + half]
            own = [source for place in places if (source := sources[place]) is not None]
            pixels = self._inverted.edited([samples[place] for place in places], own)
            drawn.append((places, as_pictures(pixels)))

        def pictures() -> list[np.ndarray | None]:
            found = {place: image for places, wait in drawn for place, image in zip(places, wait(), strict=True)}
            return [found.get(place) for place in range(count)]

        return pictures

    def sources(self, samples: Sequence[Sample]) -> list[Image.Image | None]:
        """The image of each sample's row as it is edited: its middle square, of the side that is drawn."""
        return [self._source(sample) for sample in samples]

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """What the columns of rows hold of each sample: its row, and its licence where the dataset tells one."""
        told: list[dict[str, Any]] = []
        for sample in samples:
            assert sample.row is not None  # the recipe edits rows
            licence = {} if self._license is None else {"license": self._license(sample.row)}
            told.append({**sample.of_pool, **licence})
        return told

    def _source(self, sample: Sample) -> Image.Image | None:
        from PIL import Image, ImageOps

        assert sample.row is not None
        try:
            image = self._image(sample.row)
        except UserError:  # counted and told as any image that failed
            return None
        if image.size == (self.side, self.side):
            return image
        return ImageOps.fit(image, (self.side, self.side), Image.Resampling.LANCZOS)
