"""Draw scenes of several garments in the wardrobe world's style, and the exact boxes and masks of
what is seen of them.

A pixel on an outline shows several things. A box is the tightest around the pixels of which a garment
covers more than half. A mask gives each pixel the class that covers most of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from counterfoil.lab import scenery
from counterfoil.lab.portable import Pixels, portable_blur
from counterfoil.lab.scenes import OUTDOORS, neutral_background, one_of
from counterfoil.lab.vocabulary import CLASSES, COLOURS, PATTERNS
from counterfoil.lab.world import cut_out, dress, load_garments, put_on

SIDE = 96
ROWS = {"train": 8000, "validation": 1000, "audit": 3000}
"""Rows of the dataset's splits, which share no garment."""
VERSION = "1"
"""Raise it with every change of a pixel, a box or a mask."""
MASK_CLASSES = ("background", *CLASSES)
"""The classes of masks, by number."""

FEWEST = 2
MOST = 4
_SMALLEST = 24
_LARGEST = 44
# A garment that covers more than _MOST_COVERED of another square is placed again. After _TRIES
# tries it is left out.
_MOST_COVERED = 0.2
_TRIES = 30
# The first number of this world's seeds. No other world's seeds start with it.
_SEED = 96


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGarment:
    """One garment of a scene: row and label of its photograph, its cloth, and the square in which
    it is drawn."""

    garment: int
    label: int
    colour: str
    pattern: str
    side: int
    left: int
    top: int
    flip: bool
    phase: np.ndarray

    @property
    def window(self) -> tuple[slice, slice]:
        return slice(self.top, self.top + self.side), slice(self.left, self.left + self.side)

    def square_covered(self, other: PlacedGarment) -> float:
        """Return the share of the smaller of two squares that the other covers."""
        across = min(self.left + self.side, other.left + other.side) - max(self.left, other.left)
        down = min(self.top + self.side, other.top + other.side) - max(self.top, other.top)
        return max(across, 0) * max(down, 0) / min(self.side, other.side) ** 2


@dataclass(frozen=True, slots=True)
class BoxScene:
    """Everything that decides one picture. Later pieces are drawn over earlier ones."""

    split: str
    background: str
    variant: int
    flip: bool
    pieces: tuple[PlacedGarment, ...]


def boxes_scene(split: str, number: int) -> BoxScene:
    """Return scene `number` of a split of garments. Any number from 0 on is valid."""
    rng = np.random.default_rng([_SEED, *split.encode(), number])
    background = neutral_background(rng) if rng.random() < 0.5 else one_of(rng, OUTDOORS)
    variant = int(rng.integers(scenery.VARIANTS))
    flip = bool(rng.random() < 0.5)
    pieces: list[PlacedGarment] = []
    for _ in range(int(rng.integers(FEWEST, MOST + 1))):
        piece = _placed(split, rng, pieces)
        if piece is not None:
            pieces.append(piece)
    return BoxScene(split, background, variant, flip, tuple(pieces))


def _placed(
    split: str, rng: np.random.Generator, others: list[PlacedGarment]
) -> PlacedGarment | None:
    """Draw a garment and a place for it; None if every place tried is taken."""
    garments = load_garments(split)
    garment = int(rng.integers(len(garments.labels)))
    label = int(garments.labels[garment])
    colour = one_of(rng, COLOURS)
    side = int(rng.integers(_SMALLEST, _LARGEST + 1))
    pattern = "plain" if rng.random() < 0.8 else one_of(rng, PATTERNS[1:])
    flip = bool(rng.random() < 0.5)
    phase = rng.random(2)
    for left, top in rng.integers(0, SIDE - side + 1, (_TRIES, 2)).tolist():
        piece = PlacedGarment(garment, label, colour, pattern, side, left, top, flip, phase)
        if all(piece.square_covered(other) <= _MOST_COVERED for other in others):
            return piece
    return None


def render_boxes(scene: BoxScene) -> Pixels:
    background = scenery.backgrounds(scene.background)[scene.variant]
    if scene.flip:
        background = background[:, ::-1]
    small = Image.fromarray((background * 255 + 0.5).astype(np.uint8))
    enlarged = small.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    image = np.asarray(enlarged, np.float32) / 255
    for piece in scene.pieces:
        brightness, coverage = _on_canvas(scene.split, piece)
        cloth = np.zeros((SIDE, SIDE, 3), np.float32)
        cloth[piece.window] = dress(piece.colour, piece.pattern, brightness, piece.phase)
        shadow = np.zeros_like(coverage)  # it falls to the lower right
        shadow[2:, 1:] = portable_blur(coverage, 1.6, "symmetric")[:-2, :-1]
        image = image * (1 - 0.38 * shadow[..., None] * (1 - coverage[..., None]))
        image = put_on(image, cloth, coverage)
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)


def objects_in(scene: BoxScene) -> dict[str, list[Any]]:
    """List `id`, `bbox` (x, y, width, height), `category`, `area` (pixels) and `iscrowd` of what is
    seen."""
    objects: dict[str, list[Any]] = {
        "id": [],
        "bbox": [],
        "category": [],
        "area": [],
        "iscrowd": [],
    }
    _, *garments = _shares_seen(scene)
    for piece, share in zip(scene.pieces, garments, strict=True):
        rows, columns = np.nonzero(share > 0.5)
        if not len(rows):
            continue
        left = columns.min()
        top = rows.min()
        width = columns.max() + 1 - left
        height = rows.max() + 1 - top
        objects["id"].append(len(objects["id"]))
        objects["bbox"].append([float(left), float(top), float(width), float(height)])
        objects["category"].append(piece.label)
        objects["area"].append(float(len(rows)))
        objects["iscrowd"].append(False)
    return objects


def class_mask(scene: BoxScene) -> Pixels:
    """Return the number of each pixel's class, uint8 [96, 96]: the class that covers most of it."""
    background, *garments = _shares_seen(scene)
    shares = np.zeros((len(MASK_CLASSES), SIDE, SIDE), np.float32)
    shares[0] = background
    for piece, share in zip(scene.pieces, garments, strict=True):
        shares[1 + piece.label] += share
    return shares.argmax(axis=0).astype(np.uint8)


def _shares_seen(scene: BoxScene) -> list[Pixels]:
    """Return how much of each pixel shows the background, and then each garment: float32 [96, 96]
    in 0…1, together 1."""
    seen: list[Pixels] = []
    open_share = np.ones((SIDE, SIDE), np.float32)
    for piece in reversed(scene.pieces):
        _, coverage = _on_canvas(scene.split, piece)
        seen.append(coverage * open_share)
        open_share *= 1 - coverage
    return [open_share, *reversed(seen)]


@cache
def split_objects(split: str) -> tuple[dict[str, list[Any]], ...]:
    return tuple(objects_in(boxes_scene(split, row)) for row in range(ROWS[split]))


def split_pixels(split: str, row: int) -> Pixels:
    return render_boxes(_scene_of(split, row))


def split_mask(split: str, row: int) -> Pixels:
    return class_mask(_scene_of(split, row))


def _scene_of(split: str, row: int) -> BoxScene:
    if not 0 <= row < ROWS[split]:
        raise IndexError(f"row {row} of {ROWS[split]}")
    return boxes_scene(split, row)


def _on_canvas(split: str, piece: PlacedGarment) -> tuple[Pixels, Pixels]:
    """Return the brightness of a garment in its square, and its coverage of the canvas [96, 96]."""
    photograph = load_garments(split).images[piece.garment]
    coverage = np.zeros((SIDE, SIDE), np.float32)
    brightness, coverage[piece.window] = cut_out(photograph, piece.side, piece.flip)
    return brightness, coverage
