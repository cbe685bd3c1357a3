"""An image folder of plain shapes (mugs, stars, ladders), drawn here: own classes, which the lab
does not know."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

SIDE = 96

# What is drawn in a box of width 1: the pencil, the box's corner and side in pixels, the colour.
Shape = Callable[[ImageDraw.ImageDraw, float, float, float, tuple[int, int, int]], None]


def _mug(
    pencil: ImageDraw.ImageDraw, x: float, y: float, side: float, colour: tuple[int, int, int]
) -> None:
    handle = (x + 0.5 * side, y + 0.3 * side, x + 0.95 * side, y + 0.75 * side)
    pencil.ellipse(handle, outline=colour, width=max(2, int(side / 11)))
    pencil.rounded_rectangle(
        (x + 0.1 * side, y + 0.15 * side, x + 0.7 * side, y + 0.9 * side), side / 12, fill=colour
    )


def _star(
    pencil: ImageDraw.ImageDraw, x: float, y: float, side: float, colour: tuple[int, int, int]
) -> None:
    middle = (x + side / 2, y + side / 2)
    corners = []
    for corner in range(10):
        radius = side * (0.5 if corner % 2 == 0 else 0.2)
        angle = math.pi * (corner / 5 - 0.5)
        corners.append((middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle)))
    pencil.polygon(corners, fill=colour)


def _ladder(
    pencil: ImageDraw.ImageDraw, x: float, y: float, side: float, colour: tuple[int, int, int]
) -> None:
    width = max(2, int(side / 14))
    for rail in (0.25, 0.75):
        pencil.line((x + rail * side, y, x + rail * side, y + side), fill=colour, width=width)
    for rung in range(5):
        height = y + side * (0.1 + 0.2 * rung)
        pencil.line((x + 0.25 * side, height, x + 0.75 * side, height), fill=colour, width=width)


SHAPES: dict[str, Shape] = {"ladder": _ladder, "mug": _mug, "star": _star}


def draw_folder(
    root: Path,
    classes: Sequence[str] = ("ladder", "mug", "star"),
    per_class: int = 12,
    seed: int = 0,
    splits: Sequence[str] = ("train", "validation"),
) -> Path:
    """Write `root`/SPLIT/CLASS/NUMBER.png, `per_class` images a class and split, and give `root`.

    A split called "" is no folder; a class that is no shape's name is drawn as a mug.
    Colours, places and sizes vary, so that no two images are the same; equal arguments draw equal
    files.
    """
    chance = random.Random(seed)
    for split in splits:
        for name in classes:
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(per_class):
                _picture(SHAPES.get(name, _mug), chance).save(folder / f"{number:03d}.png")
    return root


def _picture(shape: Shape, chance: random.Random) -> Image.Image:
    ground = tuple(chance.randint(150, 255) for _ in range(3))
    colour = chance.randint(0, 130), chance.randint(0, 130), chance.randint(0, 130)
    image = Image.new("RGB", (SIDE, SIDE), ground)
    side = SIDE * chance.uniform(0.55, 0.85)
    shape(
        ImageDraw.Draw(image),
        chance.uniform(0, SIDE - side),
        chance.uniform(0, SIDE - side),
        side,
        colour,
    )
    return image
