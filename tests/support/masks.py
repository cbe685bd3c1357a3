"""Folders of images with masks drawn by hand, and a segmenter that knows their colours."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterfoil.data.open_source import open_source
from counterfoil.data.pool import pool_of, truth_of
from counterfoil.recipe import Recipe

NAMES = ("ground", "box", "sign")
COLOURS = np.array([(90, 140, 90), (200, 60, 60), (60, 60, 200), (0, 0, 0)], np.uint8)
RECIPE = """
recipe: 1
name: patches-corrupt
source:
  dataset: {folder}
  masks: {{classes: [ground, box, sign]}}
  train_split: train
  validation_split: train
generator: {{kind: corrupt, split: train, size: 48}}
prompts:
  shifts:
    fog: {{corruption: fog, severity: {{levels: [0.4, 1.0]}}}}
    gaussian_noise: {{corruption: gaussian_noise, severity: 5}}
samples: {{candidates: 100}}
output: {{format: parquet, image: {{format: png, quality: null}}}}
"""


def drawn_mask(number: int, size: tuple[int, int] = (80, 60)) -> NDArray[np.uint8]:
    """Return a mask: ground, a box, a sign on every second one, and two unlabelled rows."""
    rng = np.random.default_rng(number)
    width, height = size
    mask = np.zeros((height, width), np.uint8)
    x, y = int(rng.integers(5, width // 2)), int(rng.integers(5, height // 2))
    mask[y : y + 20, x : x + 25] = 1
    if number % 2:
        mask[2:12, width - 20 : width - 4] = 2
    mask[:2] = 255
    return mask


def mask_folder(folder: Path, count: int = 14, split: str = "") -> list[NDArray[np.uint8]]:
    """Write images/ and masks/, every second mask with a palette; return the masks."""
    masks = [drawn_mask(number) for number in range(count)]
    folder = folder / split
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number, mask in enumerate(masks):
        noise = np.random.default_rng(number).normal(0, 12, (*mask.shape, 3))
        pixels = COLOURS[np.minimum(mask, 3)] + noise
        picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        picture.save(folder / "images" / f"{number:03d}.png")
        written = Image.fromarray(mask)
        if number % 2:
            written.putpalette(COLOURS.tobytes() + bytes(3 * 252))
        written.save(folder / "masks" / f"{number:03d}.png")
    return masks


def masks_read(recipe: Recipe, size: tuple[int, int]) -> list[NDArray[np.uint8]]:
    """Return the masks that a build of the recipe stores of images of this size."""
    rows = open_source(pool_of(recipe)).rows(recipe.generator.get("split"), labelled=False)
    truth = truth_of(recipe, rows)
    cells = [truth.columns(row, size, size)["mask"] for row in range(rows.count)]
    return [np.asarray(Image.open(io.BytesIO(cell))) for cell in cells]


class ColourSegmenter:
    """Gives each pixel the class of the nearest colour."""

    label_names = NAMES

    def __call__(self, images: list[Any]) -> list[NDArray[Any]]:
        return [self.scores(image).argmax(axis=0) for image in images]

    def scores(self, image: Image.Image) -> NDArray[np.float32]:
        """Return scores [classes, height, width]."""
        distance = np.asarray(image, np.float32)[None] - COLOURS[:3, None, None].astype(np.float32)
        return -np.square(distance).sum(axis=-1)
