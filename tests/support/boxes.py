"""Folders of images with boxes drawn by hand, in the form of COCO and of YOLO."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

NAMES = ("box", "disk")
COLOURS = ((220, 40, 40), (40, 40, 220))
# COCO's ids have gaps.
IDS = (3, 7)
Drawn = list[tuple[str, list[tuple[int, tuple[int, int, int, int]]]]]


def drawn_objects(count: int, size: tuple[int, int] = (160, 120), seed: int = 0) -> Drawn:
    """Return names of images, each with (category, (x, y, width, height)); the last image has
    none."""
    rng = np.random.default_rng(seed)
    images: Drawn = []
    for number in range(count):
        objects = []
        for _ in range(int(rng.integers(1, 4)) if number < count - 1 else 0):
            width = int(rng.integers(20, 60))
            height = int(rng.integers(20, 50))
            x = int(rng.integers(0, size[0] - width))
            y = int(rng.integers(0, size[1] - height))
            objects.append((int(rng.integers(0, 2)), (x, y, width, height)))
        images.append((f"{number:03d}.png", objects))
    return images


def draw_images(folder: Path, images: Drawn, size: tuple[int, int] = (160, 120)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, objects) in enumerate(images):
        noise = np.random.default_rng(number).integers(
            90, 160, (size[1], size[0], 3), dtype=np.uint8
        )
        picture = Image.fromarray(noise)
        draw = ImageDraw.Draw(picture)
        for category, (x, y, width, height) in objects:
            shape = draw.rectangle if category == 0 else draw.ellipse
            shape((x, y, x + width - 1, y + height - 1), fill=COLOURS[category])
        picture.save(folder / name)


def coco_document(images: Drawn, size: tuple[int, int] = (160, 120)) -> dict[str, list]:
    annotations = [
        {
            "image_id": number,
            "category_id": IDS[category],
            "bbox": list(box),
            "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for number, (_, objects) in enumerate(images, start=1)
        for category, box in objects
    ]
    return {
        "images": [
            {"id": number, "file_name": name, "width": size[0], "height": size[1]}
            for number, (name, _) in enumerate(images, start=1)
        ],
        "annotations": [
            {"id": number, **annotation} for number, annotation in enumerate(annotations, start=1)
        ],
        "categories": [
            {"id": number, "name": name} for number, name in zip(IDS, NAMES, strict=True)
        ],
    }


def coco_folder(folder: Path, count: int = 12) -> Drawn:
    """Write images/ and one JSON file; return what was drawn."""
    images = drawn_objects(count)
    draw_images(folder / "images", images)
    (folder / "annotations.json").write_text(json.dumps(coco_document(images)))
    return images


def yolo_folder(folder: Path, count: int = 12, size: tuple[int, int] = (160, 120)) -> Drawn:
    """Write images/train, labels/train and data.yaml; return what was drawn."""
    images = drawn_objects(count)
    draw_images(folder / "images" / "train", images)
    labels = folder / "labels" / "train"
    labels.mkdir(parents=True)
    for name, objects in images:
        lines = [
            f"{category} {(x + w / 2) / size[0]} {(y + h / 2) / size[1]} {w / size[0]}"
            f" {h / size[1]}"
            for category, (x, y, w, h) in objects
        ]
        if lines:
            (labels / name).with_suffix(".txt").write_text("\n".join(lines))
    (folder / "data.yaml").write_text(
        "path: ../elsewhere\ntrain: images/train\nnames:\n  0: box\n  1: disk\n"
    )
    return images
