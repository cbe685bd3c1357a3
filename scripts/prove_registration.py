"""Prove how well edits are registered with their rows: known translations and zooms under other
looks.

    python scripts/prove_registration.py --data DATA --write  # the table, into RESULTS.md
    python scripts/prove_registration.py --data DATA --settings  # confidence on other pictures

DATA holds cifar10-test-even.zip (photos/CLASS/NNNN.jpg); nothing of it is copied into the project.
The look of a lab scene is that of the lab's own shifts, which redraw it with every object in place;
that of a photograph is a corruption, inverted colours or a mixture of its channels. A second picture
is moved by up to 20 % of a side in each direction and zoomed by .8 to 1.25, after its look, so that
fog and snow move with it as with an editor. What comes in at the edges are mirror images, or, for
large photographs, what is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.random import Generator, default_rng
from PIL import Image, ImageOps

import proving
import results_page
from counterfoil.corrupting.corrupt import corrupt
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.registration import LEAST_CONFIDENCE, register
from prove_copies import photographs

PARTS = ("registration",)
_TITLE = "Registration of edits"
_OPENING = [
    "A second picture is moved by up to 20 % of a side in each direction, zoomed by .8 to 1.25 and"
    " given another look; `register` then measures both against the first. *Known*: its confidence"
    f" is {LEAST_CONFIDENCE} or more. Errors are those of known registrations: of the translation,"
    " the larger of both directions, in % of a side; of the zoom, in %. *Wrong*: known, with an"
    " error above 3 % of a side or 5 % of the zoom. *Another scene*: the two pictures have nothing"
    " in common, so each known registration is wrong.",
]
_WRONG = (0.03, 0.05)
LOOKS = (
    "unchanged",
    "fog",
    "snow",
    "brightness",
    "contrast",
    "darker",
    "greyscale",
    "negative",
    "channels",
)
OF_THE_LAB = (
    "base",
    "at_night",
    "in_the_snow",
    "in_the_fog",
    "in_the_rain",
    "in_the_forest",
    "red",
    "oil_painting",
    "pencil_sketch",
)
# A picture twice, with its first and its other look, and larger than what is seen of it.
Pair: TypeAlias = tuple[Image.Image, Image.Image]
Draw: TypeAlias = Callable[[Generator, str], Pair]


def with_look(
    picture: Image.Image,
    look: str,
    chance: Generator,
) -> Image.Image:
    if look in ("unchanged", "base"):
        return picture
    if look == "negative":
        return ImageOps.invert(picture)
    if look == "channels":
        mixed = np.asarray(picture, np.float64) @ chance.uniform(-0.5, 1, (3, 3))
        levels = 255 * (mixed - mixed.min()) / max(float(np.ptp(mixed)), 1)
        return Image.fromarray(levels.astype(np.uint8))
    return corrupt(picture, look, 4, seed=int(chance.integers(2**31)))


def mirrored(picture: Image.Image) -> Image.Image:
    """Return a picture with its mirror images around it, three times its sides."""
    pixels = np.asarray(picture)
    high, wide = pixels.shape[:2]
    return Image.fromarray(np.pad(pixels, ((high, high), (wide, wide), (0, 0)), mode="reflect"))


def seen(
    picture: Image.Image,
    side: int,
    right: float = 0,
    down: float = 0,
    zoom: float = 1,
) -> np.ndarray:
    """Return the pixels of the middle third, zoomed about its middle and then moved."""
    extent = picture.width / 3
    x = picture.width / 2 - right * extent / zoom
    y = picture.height / 2 - down * extent / zoom
    half = extent / 2 / zoom
    box = (x - half, y - half, x + half, y + half)
    size = (side, side)
    bicubic = Image.Resampling.BICUBIC
    return np.asarray(picture.transform(size, Image.Transform.EXTENT, box, bicubic))


def lab_scenes(split: str) -> Draw:
    def draw(chance: Generator, look: str) -> Pair:
        scene = wardrobe_scene(split, int(chance.integers(2000)))
        pictures = [Image.fromarray(render(scene.shifted(shift))) for shift in ("base", look)]
        return mirrored(pictures[0]), mirrored(pictures[1])

    return draw


def small_photographs(data: Path, first: int) -> Draw:
    """Draw every second photograph of CIFAR-10, 32 pixels a side, from `first` on."""
    pictures = photographs(data, first)

    def draw(chance: Generator, look: str) -> Pair:
        picture = pictures[int(chance.integers(len(pictures)))]
        return mirrored(picture), mirrored(with_look(picture, look, chance))

    return draw


def large_photographs(names: Sequence[str]) -> Draw:
    """Draw cuts of photographs of scikit-learn, of which the middle third has 140 pixels a side."""
    from sklearn.datasets import load_sample_image

    pictures = [Image.fromarray(load_sample_image(name)) for name in names]

    def draw(chance: Generator, look: str) -> Pair:
        picture = pictures[int(chance.integers(len(pictures)))]
        left = int(chance.integers(picture.width - 420 + 1))
        top = int(chance.integers(picture.height - 420 + 1))
        cut = picture.crop((left, top, left + 420, top + 420))
        return cut, with_look(cut, look, chance)

    return draw


def measured(
    draw: Draw,
    side: int,
    look: str,
    count: int,
    seed: int,
) -> np.ndarray:
    """Return errors of translation and zoom, and the confidence, of pairs, [count, 3]."""
    chance = default_rng(seed)
    rows = []
    for _ in range(count):
        first, other = draw(chance, look)
        right, down = chance.uniform(-0.2, 0.2, 2)
        zoom = float(np.exp(chance.uniform(np.log(0.8), np.log(1.25))))
        edit = seen(other, side, right, down, zoom)
        registration = register(edit, seen(first, side))
        moved = max(abs(registration.right - right), abs(registration.down - down))
        rows.append((moved, abs(registration.zoom / zoom - 1), registration.confidence))
    return np.array(rows)


def of_other_scenes(
    draw: Draw,
    draw_other: Draw,
    side: int,
    count: int,
    seed: int,
) -> np.ndarray:
    """Return the confidence of pairs of pictures of two scenes."""
    chance = default_rng(seed)
    confidence = []
    for _ in range(count):
        first, _ = draw(chance, "base")
        other, _ = draw_other(chance, "base")
        registration = register(seen(other, side), seen(first, side))
        confidence.append(registration.confidence)
    return np.array(confidence)


def rows_of(
    name: str,
    draw: Draw,
    draw_other: Draw,
    side: int,
    looks: Sequence[str],
    count: int,
    seed: int,
) -> Iterator[list[str]]:
    for number, look in enumerate(looks):
        errors = measured(draw, side, look, count, seed + number)
        known = errors[errors[:, 2] >= LEAST_CONFIDENCE]
        wrong = (known[:, :2] > _WRONG).any(axis=1).sum()
        cells = [name, look.replace("_", " "), str(count), f"{len(known) / count:.0%}"]
        for column in (0, 1):
            for share in (0.5, 0.95):
                cells.append(
                    f"{100 * np.quantile(known[:, column], share):.1f}" if len(known) else "–"
                )
        yield [*cells, str(wrong)]
    confidence = of_other_scenes(draw, draw_other, side, 2 * count, seed + 100)
    known = int((confidence >= LEAST_CONFIDENCE).sum())
    share = f"{known / len(confidence):.0%}"
    errors_of_none = ["–"] * 4
    yield [
        name,
        "another scene",
        str(len(confidence)),
        share,
        *errors_of_none,
        str(known),
    ]


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "print what the least confidence was chosen by")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=40, help="pairs a look")
    options = parser.parse_args()
    if options.settings:
        worlds = {
            "lab": (
                lab_scenes("train"),
                64,
                ["base", "at_night", "in_the_snow"],
            ),
            "CIFAR-10": (
                small_photographs(options.data, 0),
                32,
                LOOKS[:3],
            ),
        }
        for name, (draw, side, looks) in worlds.items():
            others = of_other_scenes(draw, draw, side, options.pairs, 5)
            shown = ", ".join(f"{value:.3f}" for value in np.quantile(others, (0.5, 0.9, 0.97, 1)))
            print(f"{name}: another scene, quantiles .5 .9 .97 1: {shown}")
            for look in looks:
                errors = measured(draw, side, look, options.pairs // 3, 6)
                right = (errors[:, :2] <= _WRONG).all(axis=1)
                low = ", ".join(f"{value:.3f}" for value in np.sort(errors[right, 2])[:3])
                high = ", ".join(f"{value:.3f}" for value in np.sort(errors[~right, 2])[-3:])
                print(f"  {look}: lowest of right {low}; highest of wrong {high}", flush=True)
        return
    titles = [
        "Pictures",
        "Look",
        "Pairs",
        "Known",
        "Translation: median",
        "95 %",
        "Zoom: median",
        "95 %",
        "Wrong",
    ]
    rows: list[list[str]] = []
    worlds = {
        "the lab, 64 pixels": (
            lab_scenes("audit"),
            64,
            OF_THE_LAB,
            1000,
        ),
        "CIFAR-10, 32 pixels": (
            small_photographs(options.data, 1),
            32,
            LOOKS,
            2000,
        ),
        "cuts of a photograph, 140 pixels": (
            large_photographs(["china.jpg"]),
            140,
            LOOKS,
            3000,
        ),
    }
    for name, (draw, side, looks, seed) in worlds.items():
        # Two cuts of one photograph may overlap.
        draw_other = draw if side < 140 else large_photographs(["flower.jpg"])
        rows += rows_of(name, draw, draw_other, side, looks, options.pairs, seed)
        table = proving.Table("registration", results_page.table(titles, rows, words=2))
        proving.tell("prove_registration", _TITLE, _OPENING, [table], PARTS, options.write)


if __name__ == "__main__":
    main()
