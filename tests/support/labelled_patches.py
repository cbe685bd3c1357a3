"""A folder of pictures with several labels each: coloured patches on noise, and a classifier that
sees the colours."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

LABELS = ("red", "green", "blue")
SIDE = 32
RECIPE = """
recipe: 1
name: patches
source:
  dataset: {folder}
  train_split: train
  validation_split: train
  conditions: {{columns: [red, green, blue]}}
generator: {{kind: corrupt, split: train}}
prompts:
  shifts:
    fog: {{corruption: fog, severity: 3}}
    jpeg: {{corruption: jpeg_compression, severity: 1}}
samples: {{candidates: {count}}}
output: {{image: {{format: png}}}}
evaluate: {{min_images_per_class: 2}}
"""


def patches_folder(
    folder: Path, count: int = 40, seed: int = 0, names: tuple[str, ...] = LABELS
) -> NDArray[np.bool_]:
    """Write `count` pictures and `metadata.csv` with a column of 0 and 1 for each label; return the
    labels."""
    rng = np.random.default_rng(seed)
    present = rng.random((count, len(LABELS))) < (0.5, 0.4, 0.3)
    folder.mkdir(parents=True)
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file_name", *names])
        for number, labels in enumerate(present):
            pixels = rng.integers(60, 120, (SIDE, SIDE, 3))
            for label in np.flatnonzero(labels):
                pixels[4:28, 2 + 10 * label : 10 + 10 * label, label] += rng.integers(10, 90)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:03d}.png")
            rows.writerow([f"{number:03d}.png", *labels.astype(int)])
    return present


def patches_recipe(path: Path, folder: Path, count: int = 40) -> Path:
    path.write_text(RECIPE.format(folder=folder, count=count))
    return path


def colour_classifier(batch: ArrayLike) -> NDArray[np.float64]:
    """Answer float32 [b, 3, height, width] with logits [b, labels]: how bright each colour is in
    its patch."""
    images = np.asarray(batch, np.float64)
    patches = [
        images[:, label, 4:8, 2 + 10 * label : 6 + 10 * label].mean(axis=(1, 2))
        for label in range(len(LABELS))
    ]
    return 20 * (np.stack(patches, axis=1) - 0.45)
