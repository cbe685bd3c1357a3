"""Real images under another circumstance: a sample is a row of the input dataset, drawn again under its prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import UserError
from counterfoil.generate.finished_pixels import DrawnAhead, as_pictures
from counterfoil.generate.inverted import InvertedRows
from counterfoil.generate.own_randomness import own_randomness
from counterfoil.generate.render import Renderer

if TYPE_CHECKING:
    import torch
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
        self.inverted = InvertedRows(self)

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """As `Renderer.ahead`; None for a row that cannot be decoded too. Raises as it does."""
        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        sources = self.sources(samples)
        there = {place: source for place, source in enumerate(sources) if source is not None}
        at_once = self.inverted.half if self.family.edits == "inversion" else 1
        drawn: list[tuple[list[int], DrawnAhead]] = []
        for start in range(0, len(there), at_once):
            places = list(there)[start : start + at_once]
            own = [samples[place] for place in places]
            drawn.append((places, as_pictures(self._edited(own, [there[place] for place in places]))))

        def pictures() -> list[np.ndarray | None]:
            found = {place: image for places, wait in drawn for place, image in zip(places, wait(), strict=True)}
            return [found.get(place) for place in range(count)]

        return pictures

    def sources(self, samples: Sequence[Sample]) -> list[Image.Image | None]:
        """The image of each sample's row as it is edited: its middle square, of the side that is drawn."""
        return [self._source(sample) for sample in samples]

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """What the columns of rows hold of each sample: its row, and its licence, None where nobody knows one."""
        told: list[dict[str, Any]] = []
        for sample in samples:
            assert sample.row is not None  # the recipe edits rows
            licence = None if self._license is None else self._license(sample.row)
            told.append({**sample.of_pool, "license": licence})
        return told

    def _edited(self, samples: Sequence[Sample], sources: Sequence[Image.Image]) -> torch.Tensor:
        """Pixels [n, 3, side, side] of what one way draws at once."""
        if self.family.edits == "inversion":
            return self.inverted.edited(samples, sources)
        (sample,), (source,) = samples, sources
        with own_randomness(sample.seed, self.pipeline._execution_device), self._ids_in_bounds():
            return self._called(self._plain(sample) | {"image": source}, [sample])

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
