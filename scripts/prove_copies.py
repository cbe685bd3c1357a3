"""Prove how well copies between two sets of images are found, and how seldom others are called so.

    python scripts/prove_copies.py --data DATA --write  # the tables, into RESULTS.md
    python scripts/prove_copies.py --data DATA --settings  # what the limits were chosen by

DATA holds cifar10-test-even.zip (photos/CLASS/NNNN.jpg); nothing of it is copied into the project.
Limits are chosen on every second photograph and on the lab's training split, and judged on the
others and on the split `audit`. Photographs of CIFAR-10 repeat each other here and there: `--pairs
FOLDER` draws each pair that is called a copy, for a person to look at.
"""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.random import Generator, default_rng
from PIL import Image, ImageEnhance, ImageOps
from PIL.Image import Image as Picture

import proving
import results_page
from counterfoil import image_copies
from counterfoil.data.fingerprints import fingerprint
from counterfoil.image_copies import FINGERPRINT, find_copies
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import load_garments, render
from counterfoil.stats import clopper_pearson

PARTS = ("found", "distinct", "cost")
_TITLE = "Copies between train and test"
_OPENING = [
    "*Photographs*: 2,500 of CIFAR-10, 32 pixels. *Cuts*: 48 of two photographs, 100 pixels."
    " *Scenes*: 1,200 of the lab, 64 pixels, many with the same background. *Garments*: 1,200 of the"
    " lab on black, 28 pixels, which look alike; *more garments*: 6,000 others. Intervals are exact (Clopper"
    " and Pearson) at 95 %.",
]
_ABOUT = {
    "found": "Changed copies of 100 images of each set (48 cuts) are looked for among all"
    " photographs and cuts, 600 scenes and 400 garments: the share that is found, with its interval."
    " In the last three rows are changes that are not looked for.",
    "distinct": "Each set is compared with itself. Every pair is of two different images, except"
    " where a set repeats itself. *A million*: pairs that are called copies, of a million pairs. Pairs"
    " share images, so the interval is too narrow where several pairs are of one image.",
    "cost": "Seconds of one processor, and of the search alone for sets that look random.",
}
Sets = Mapping[str, Sequence[Picture]]


def again(picture: Picture, quality: int) -> Picture:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality)
    return Image.open(io.BytesIO(stream.getvalue())).convert("RGB")


def resized(picture: Picture, share: float) -> Picture:
    width = round(picture.width * share)
    height = round(picture.height * share)
    return picture.resize((width, height), Image.Resampling.BICUBIC)


def cropped(picture: Picture, share: float, chance: Generator) -> Picture:
    """Cut a share of each side off, at least a pixel, at random places."""
    across = max(1, round(picture.width * share))
    down = max(1, round(picture.height * share))
    left = int(chance.integers(across + 1))
    top = int(chance.integers(down + 1))
    right = left + picture.width - across
    bottom = top + picture.height - down
    return picture.crop((left, top, right, bottom))


def other_hue(picture: Picture) -> Picture:
    hue, saturation, value = picture.convert("HSV").split()
    moved = hue.point([(level + 20) % 256 for level in range(256)])
    return Image.merge("HSV", (moved, saturation, value)).convert("RGB")


CHANGES = (
    "JPEG 95",
    "JPEG 75",
    "JPEG 50",
    "half the size",
    "three quarters",
    "cropped by 2 %",
    "cropped by 5 %",
    "cropped by 10 %",
    "mirrored",
    "brighter, 1.3",
    "darker, 0.7",
    "less contrast, 0.7",
    "hue by 28°",
    "grey",
    "mirrored, cropped by 5 %, JPEG 75",
    "cropped by 20 %",
    "turned by 5°",
    "turned by 90°",
)


def changed(
    picture: Picture,
    change: str,
    chance: Generator,
) -> Picture:
    match change:
        case "JPEG 95":
            return again(picture, 95)
        case "JPEG 75":
            return again(picture, 75)
        case "JPEG 50":
            return again(picture, 50)
        case "half the size":
            return resized(picture, 0.5)
        case "three quarters":
            return resized(picture, 0.75)
        case "cropped by 2 %":
            return cropped(picture, 0.02, chance)
        case "cropped by 5 %":
            return cropped(picture, 0.05, chance)
        case "cropped by 10 %":
            return cropped(picture, 0.1, chance)
        case "mirrored":
            return ImageOps.mirror(picture)
        case "brighter, 1.3":
            return ImageEnhance.Brightness(picture).enhance(1.3)
        case "darker, 0.7":
            return ImageEnhance.Brightness(picture).enhance(0.7)
        case "less contrast, 0.7":
            return ImageEnhance.Contrast(picture).enhance(0.7)
        case "hue by 28°":
            return other_hue(picture)
        case "grey":
            return picture.convert("L").convert("RGB")
        case "mirrored, cropped by 5 %, JPEG 75":
            cut = cropped(ImageOps.mirror(picture), 0.05, chance)
            return again(cut, 75)
        case "cropped by 20 %":
            return cropped(picture, 0.2, chance)
        case "turned by 5°":
            return picture.rotate(5, Image.Resampling.BICUBIC)
        case "turned by 90°":
            return picture.transpose(Image.Transpose.ROTATE_90)
    raise ValueError(change)


# What settings are chosen by: the changes that are found least.
_DIFFICULT = (
    "JPEG 50",
    "half the size",
    "cropped by 5 %",
    "cropped by 10 %",
    "hue by 28°",
)


def photographs(data: Path, first: int) -> list[Picture]:
    """Return every second photograph of CIFAR-10 from `first` on."""
    archive = zipfile.ZipFile(data / "cifar10-test-even.zip")
    names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    files = map(archive.read, names[first::2])
    return [Image.open(io.BytesIO(file)).convert("RGB") for file in files]


def cuts() -> list[Picture]:
    from sklearn.datasets import load_sample_image

    side = 100
    pictures = []
    for name in ("china.jpg", "flower.jpg"):
        whole = Image.fromarray(load_sample_image(name))
        for top in range(0, whole.height - side + 1, side):
            for left in range(0, whole.width - side + 1, side):
                box = (left, top, left + side, top + side)
                pictures.append(whole.crop(box))
    return pictures


def scenes(split: str) -> list[Picture]:
    return [Image.fromarray(render(wardrobe_scene(split, row))) for row in range(1200)]


def garments(split: str, count: int = 1200) -> list[Picture]:
    images = load_garments(split).images
    looked = np.linspace(0, len(images) - 1, count).astype(int)
    return [Image.fromarray(image).convert("RGB") for image in images[looked]]


def fingerprints(pictures: Sequence[Picture]) -> np.ndarray:
    made = np.zeros(len(pictures), FINGERPRINT)
    for row, picture in enumerate(pictures):
        stream = io.BytesIO()
        picture.save(stream, "PNG", compress_level=1)
        made[row] = fingerprint(stream.getvalue())[0]
    return made


def share(part: int, whole: int, scale: float = 100, digits: int = 0) -> str:
    low, high = clopper_pearson(part, whole - part)
    ends = [f"{scale * end:.{digits}f}" for end in (part / whole, low, high)]
    return f"{ends[0]} ({ends[1]} to {ends[2]})"


def found_rows(sets: Sets, most: int) -> Iterator[list[Any]]:
    known = {name: fingerprints(pictures) for name, pictures in sets.items()}
    for change in CHANGES:
        cells: list[Any] = [change]
        for name, pictures in sets.items():
            chance = default_rng(11)
            step = max(1, len(pictures) // most)
            rows = range(0, len(pictures), step)[:most]
            copies = []
            for row in rows:
                copies.append(changed(pictures[row], change, chance))
            tested = fingerprints(copies)
            pairs = find_copies(tested, known[name]).pairs
            right = np.asarray(rows)[pairs["tested"]] == pairs["train"]
            cells.append(share(int(right.sum()), len(rows)))
        yield cells


def distinct_rows(sets: Sets, folder: Path | None) -> Iterator[list[Any]]:
    for name, pictures in sets.items():
        copies = find_copies(fingerprints(pictures))
        pairs = copies.pairs
        count = len(pictures) * (len(pictures) - 1) // 2
        called = len(pairs)
        images = len({*pairs["tested"].tolist(), *pairs["train"].tolist()})
        yield [
            name,
            f"{count:,}",
            copies.radius,
            called,
            share(called, count, 1e6, 2),
            f"{images} of {len(pictures):,}",
        ]
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for number, pair in enumerate(zip(pairs["tested"], pairs["train"], strict=True)):
                drawn = Image.new("RGB", (260, 128))
                for column, row in enumerate(pair):
                    drawn.paste(pictures[int(row)].resize((128, 128)), (132 * column, 0))
                drawn.save(folder / f"{name}-{number:03d}.png")


def cost_rows(sets: Sets) -> Iterator[list[Any]]:
    chance = default_rng(5)
    whole = next(iter(sets.values()))
    cut = cuts()[0]
    for what, picture in (
        ("fingerprints of 10,000 photographs of 32 × 32", whole[0]),
        ("fingerprints of 10,000 photographs of 500 × 400", cut.resize((500, 400))),
        ("fingerprints of 10,000 photographs of 4,000 × 3,000", cut.resize((4000, 3000))),
    ):
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=90)
        began = time.process_time()
        calls = 20
        for _ in range(calls):
            fingerprint(stream.getvalue())
        yield [what, f"{(time.process_time() - began) / calls * 10_000:,.0f}"]
    for tested, train in ((10_000, 10_000), (10_000, 100_000)):
        drawn = np.zeros(tested + train, FINGERPRINT)
        # Images with the same pixels would be compared once.
        drawn["pixels"] = np.arange(1, len(drawn) + 1).astype("<u8").view("V8").astype("V16")
        for start in range(0, len(drawn), 1000):
            coarse = chance.integers(
                256,
                size=(1000, 8, 8),
                dtype=np.uint8,
            )
            finer = coarse.repeat(4, axis=1)
            drawn["grey"][start : start + 1000] = finer.repeat(4, axis=2)
        began = time.process_time()
        find_copies(drawn[:tested], drawn[tested:])
        yield [f"search of {tested:,} in {train:,}", f"{time.process_time() - began:,.0f}"]
    garment_prints = fingerprints(garments("train"))
    began = time.process_time()
    find_copies(garment_prints)
    yield ["1,200 garments in themselves", f"{time.process_time() - began:,.0f}"]


def print_settings(
    sets: Sets,
    most: int,
) -> None:
    """Print what each limit gives on the images that limits are chosen on."""
    known = {name: fingerprints(pictures) for name, pictures in sets.items()}
    tested_of = {}
    for name, pictures in sets.items():
        for change in _DIFFICULT:
            chance = default_rng(3)
            copies = []
            for picture in pictures[:most]:
                copies.append(changed(picture, change, chance))
            tested_of[name, change] = fingerprints(copies)
    for radius in (16, 18, 20):
        for least in (0.85, 0.9, 0.93):
            for rivals in (0.2, 0.3, 0.4):
                image_copies.RADIUS = radius
                image_copies.LEAST_ALIKE = least
                image_copies.PART_OF_RIVALS = rivals
                cells = []
                for name in sets:
                    called = find_copies(known[name]).pairs
                    cells.append(f"{name}: {len(called)} called,")
                    for change in _DIFFICULT:
                        tested = tested_of[name, change]
                        pairs = find_copies(tested, known[name]).pairs
                        right = pairs["tested"] == pairs["train"]
                        cells.append(f"{right.sum() / len(tested):.0%}")
                print(
                    radius,
                    least,
                    rivals,
                    *cells,
                    flush=True,
                )


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "print what the limits were chosen by")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--most", type=int, default=100, help="copies a change")
    parser.add_argument("--pairs", type=Path, help="draw pairs that are called copies")
    options = parser.parse_args()
    if options.settings:
        sets = {
            "photographs": photographs(options.data, 0),
            "scenes": scenes("train"),
            "garments": garments("train"),
        }
        print_settings(sets, options.most)
        return
    sets = {
        "photographs": photographs(options.data, 1),
        "cuts": cuts(),
        "scenes": scenes("audit"),
        "garments": garments("audit"),
    }
    searched = sets | {
        "scenes": sets["scenes"][::2],
        "garments": sets["garments"][::3],
    }
    tables = {
        "found": (
            ["Change", *(f"{name}, %" for name in sets)],
            found_rows(searched, options.most),
        ),
        "distinct": (
            ["Images", "Pairs", "Radius", "Called copies", "A million", "Images in these"],
            distinct_rows(sets | {"more garments": garments("pretrain", 6000)}, options.pairs),
        ),
        "cost": (["What", "Seconds"], cost_rows(sets)),
    }
    for part in options.parts:
        titles, rows = tables[part]
        lines = [_ABOUT[part], "", *results_page.table(titles, rows)]
        shown = proving.Table(part, lines)
        proving.tell("prove_copies", _TITLE, _OPENING, [shown], PARTS, options.write)


if __name__ == "__main__":
    main()
