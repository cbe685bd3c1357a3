"""An imagefolder that a person might have: mugs, stars and ladders, drawn by Pillow on plain backgrounds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image, ImageDraw

SIDE = 64


def _mug(draw: ImageDraw.ImageDraw, x: float, y: float, r: float, colour: tuple[int, ...]) -> None:
    draw.rectangle((x - r, y - r, x + r / 2, y + r), fill=colour)
    draw.arc((x, y - r / 2, x + r, y + r / 2), -100, 100, fill=colour, width=4)


def _star(draw: ImageDraw.ImageDraw, x: float, y: float, r: float, colour: tuple[int, ...]) -> None:
    turns = [(r if point % 2 == 0 else r / 2.5, math.pi * (point / 5 - 0.5)) for point in range(10)]
    draw.polygon([(x + a * math.cos(t), y + a * math.sin(t)) for a, t in turns], fill=colour)


def _ladder(draw: ImageDraw.ImageDraw, x: float, y: float, r: float, colour: tuple[int, ...]) -> None:
    for side in (-0.5, 0.5):
        draw.line((x + side * r, y - r, x + side * r, y + r), fill=colour, width=4)
    for rung in (-0.7, -0.2, 0.3, 0.8):
        draw.line((x - r / 2, y + rung * r, x + r / 2, y + rung * r), fill=colour, width=3)


SHAPES: dict[str, Callable[..., None]] = {"ladder": _ladder, "mug": _mug, "star": _star}


def draw_shapes(folder: Path, splits: Mapping[str, int], names: Mapping[str, str] | None = None) -> Path:
    """So many images of each shape in each split; a split called "" is no folder. `names`: folder → shape."""
    chance = random.Random(7)
    for split, count in splits.items():
        for name, shape in (names or {shape: shape for shape in SHAPES}).items():
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                picture = Image.new("RGB", (SIDE, SIDE), tuple(chance.randrange(150, 256) for _ in range(3)))
                colour = tuple(chance.randrange(0, 120) for _ in range(3))
                x, y = chance.uniform(26, 38), chance.uniform(26, 38)
                SHAPES[shape](ImageDraw.Draw(picture), x, y, chance.uniform(14, 24), colour)
                picture.save(place / f"{number:02d}.png")
    return folder
