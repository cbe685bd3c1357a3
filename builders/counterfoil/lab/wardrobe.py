"""The embedded input dataset `wardrobe`: biased scenes, rendered when they are read, always the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterfoil.lab.garments import load_garments
from counterfoil.lab.scenes import WARDROBE_ROWS, wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import render

SPLITS = tuple(WARDROBE_ROWS)
COLUMNS = ("image", "label", "garment")
VERSION = "1"
"""Raised with every change of the world that changes a pixel or a label of a split that there was before."""


def load_wardrobe(split: str) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Labels int64 [n], and a function from row to pixels (uint8 [64, 64, 3])."""
    count = WARDROBE_ROWS[split]
    labels = np.arange(count, dtype=np.int64) % len(CLASSES)

    def pixels(row: int) -> np.ndarray:
        if not 0 <= row < count:
            raise IndexError(f"row {row} of {count}")
        return render(wardrobe_scene(split, row))

    return labels, pixels


def wardrobe_garments(split: str) -> tuple[str, ...]:
    """The id of each row's garment photograph (`t10k-00412`): what rows of a split share, and no two splits."""
    ids = load_garments(split).ids
    return tuple(ids[wardrobe_scene(split, row).garment] for row in range(WARDROBE_ROWS[split]))
