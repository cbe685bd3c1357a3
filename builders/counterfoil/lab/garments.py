"""The embedded garment photographs: a subset of Fashion-MNIST in disjoint splits.

One lossless mosaic a split under `garments/`, with its labels and the garment ids (position in the
original files). Held out means held out: `heldout` and `audit` garments are seen by no model in training, and
`audit` garments by nothing else either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

SPLITS = ("pretrain", "train", "validation", "heldout", "audit")
SIDE = 28
FOLDER = Path(__file__).parent / "garments"


@dataclass(frozen=True, slots=True, eq=False)
class Garments:
    """Photographs of one split: `images` uint8 [n, 28, 28], `labels` int64 [n], `ids` strings such as `train-00017`."""

    images: np.ndarray
    labels: np.ndarray
    ids: tuple[str, ...]

    def of_class(self, label: int) -> np.ndarray:
        """Rows of one class, in order."""
        return np.flatnonzero(self.labels == label)


@cache
def load_garments(split: str) -> Garments:
    """Read a split's mosaic. Raises KeyError for a split that does not exist."""
    if split not in SPLITS:
        raise KeyError(f"no garment split {split!r}; there are {', '.join(SPLITS)}")
    index = json.loads((FOLDER / f"{split}.json").read_text())
    with Image.open(FOLDER / f"{split}.webp") as mosaic:
        pixels = np.asarray(mosaic.convert("L"))
    columns, count = index["columns"], len(index["labels"])
    rows = pixels.shape[0] // SIDE
    tiles = pixels.reshape(rows, SIDE, columns, SIDE).swapaxes(1, 2).reshape(-1, SIDE, SIDE)
    labels = np.asarray(index["labels"], dtype=np.int64)
    ids = tuple(f"{index['file']}-{number:05d}" for number in index["positions"])
    return Garments(np.ascontiguousarray(tiles[:count]), labels, ids)


def write_garments(split: str, images: np.ndarray, labels: np.ndarray, file: str, positions: np.ndarray) -> int:
    """Write a split's mosaic and index; returns the bytes written (scripts/pack_garments.py)."""
    columns = 120
    rows = -(-len(images) // columns)
    tiles = np.zeros((rows * columns, SIDE, SIDE), dtype=np.uint8)
    tiles[: len(images)] = images
    mosaic = tiles.reshape(rows, columns, SIDE, SIDE).swapaxes(1, 2).reshape(rows * SIDE, columns * SIDE)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{split}.webp"
    Image.fromarray(mosaic).save(path, lossless=True, quality=100, method=6)
    index = {
        "columns": columns,
        "file": file,
        "labels": [int(x) for x in labels],
        "positions": [int(x) for x in positions],
    }
    (FOLDER / f"{split}.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")
    return path.stat().st_size
