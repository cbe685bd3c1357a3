"""Scenes of several garments, as the detector and the segmenter learn them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from counterfoil.lab.boxes import ROWS

WIDTHS = [32, 64, 96, 128]
BACKBONE: dict[str, Any] = {
    "embedding_size": WIDTHS[0],
    "hidden_sizes": WIDTHS,
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
SCENES = {"pretrain": 12000, "train": ROWS["train"]}
AT_ONCE = 50

Part = tuple[np.ndarray, Any]
"""The pictures of a split, and the truth of each."""


def labelled(classes: Sequence[str]) -> dict[str, Any]:
    """Return what a configuration of transformers says of its classes."""
    id2label = dict(enumerate(classes))
    return {"id2label": id2label, "label2id": {name: index for index, name in id2label.items()}}


def drawn(
    parts: Sequence[Part], count: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, Any, bool]]:
    """Yield pictures of all parts at random, half of them mirrored, with their truth as it was, and
    whether they are."""
    ends = np.cumsum([len(truths) for _, truths in parts])
    rows = rng.integers(0, ends[-1], count)
    for row, mirrored in zip(rows, rng.random(count) < 0.5, strict=True):
        part = int(np.searchsorted(ends, row, side="right"))
        pixels, truths = parts[part]
        index = int(row - (ends[part] - len(truths)))
        picture = pixels[index]
        yield picture[:, ::-1] if mirrored else picture, truths[index], mirrored
