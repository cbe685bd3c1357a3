"""Real images as a generator: a sample is a row of a pool, as it is or under a known corruption."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.corruptions import apply_gain, contrast_match, corrupt
from counterfoil.generate.finished_pixels import DrawnAhead
from counterfoil.recipe.prompts import SEVERITY

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe


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


class CorruptedRows(PoolRows):
    """Rows untouched, as the base, and under the corruption of each shift.

    An image depends on its row, the corruption, its severity and the sample's seed alone: one seed serves a row under
    every shift, so that two severities of one corruption share their noise.
    """

    def __init__(
        self,
        recipe: Recipe,
        image: Callable[[int], Image.Image],
        license: Callable[[int], str | None] | None,
        partner_of: Mapping[str, Callable[[int], Image.Image]] = MappingProxyType({}),
    ) -> None:
        """`partner_of` gives by the name of a shift that matches what each row is matched with."""
        super().__init__(image, license)
        self._partner_of = partner_of
        self._side = recipe.generator.size
        self._shifts = {shift.name: shift for shift in recipe.all_shifts()}

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """As for rows, and the severity."""
        told = super().values(samples)
        return [own | {SEVERITY: self._shifts[one.shift].severity} for own, one in zip(told, samples, strict=True)]

    def _pixels(self, sample: Sample) -> np.ndarray:
        """uint8 [height, width, 3]. RunFailure for a row that no longer decodes: each did when it was chosen."""
        assert sample.row is not None
        shift, partner = self._shifts[sample.shift], self._partner_of.get(sample.shift)
        try:
            pixels, *matched = (
                np.asarray(reduced(image(sample.row), self._side))
                for image in (self._image, partner)
                if image is not None
            )
        except UserError as error:
            raise RunFailure(error.problems, "Each row decoded when it was chosen: is the disk sound?") from error
        if matched:
            return apply_gain(pixels, *contrast_match(pixels, matched[0]))
        return pixels if shift.corruption is None else corrupt(pixels, shift.corruption, shift.severity, sample.seed)


def reduced(picture: Image.Image, side: int | None) -> Image.Image:
    """The picture with its shorter side at most so many pixels, and its shape as it was."""
    if side is None or min(picture.size) <= side:
        return picture
    from PIL import Image

    scale = side / min(picture.size)
    width, height = (max(side, round(each * scale)) for each in picture.size)
    return picture.resize((width, height), Image.Resampling.LANCZOS)
