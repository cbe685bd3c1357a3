"""The embedded input dataset `wardrobe`: biased scenes, rendered when they are read, always the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterfoil.lab.scenes import WARDROBE_ROWS, wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import render

SPLITS = tuple(WARDROBE_ROWS)
VERSION = "1"
"""Raised with every change of the world that changes a pixel or a label."""


def load_wardrobe(split: str) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Labels int64 [n], and a function from row to pixels (uint8 [64, 64, 3])."""
    count = WARDROBE_ROWS[split]
    labels = np.arange(count, dtype=np.int64) % len(CLASSES)

    def pixels(row: int) -> np.ndarray:
        if not 0 <= row < count:
            raise IndexError(f"row {row} of {count}")
        return render(wardrobe_scene(split, row))

    return labels, pixels
