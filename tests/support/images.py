"""Small images, encoded."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Picture = Image.Image | NDArray[np.uint8] | int | tuple[int, int, int]


def encoded(picture: Picture, format: str = "PNG", *, side: int = 8, **options: Any) -> bytes:
    """Return an image as a file of this format holds it; of one shade or colour it has `side`
    pixels a side."""
    if isinstance(picture, int | tuple):
        picture = Image.new("L" if isinstance(picture, int) else "RGB", (side, side), picture)
    elif not isinstance(picture, Image.Image):
        picture = Image.fromarray(picture)
    with io.BytesIO() as file:
        picture.save(file, format, **options)
        return file.getvalue()


def noise(seed: int, width: int = 20, height: int = 20) -> Image.Image:
    """Return random pixels that follow from the seed."""
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    )


def assert_same_images(images: Sequence[Any], expected: Sequence[Any]) -> None:
    for image, expected_image in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image, expected_image)
