"""Sets of boxes that are made, to compare with pycocotools and to simulate from, and sets in COCO's
form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from counterfoil.detection_stats import Detections, Objects


def hostile_set(
    rng: np.random.Generator, objects: int = 12
) -> tuple[Objects, Detections, int, int]:
    """Make boxes that are awkward to match: (objects, detections, images, categories).

    Whole pixels and eighths of a score, so that IoU and scores tie. A seventh of the objects are
    crowds, areas differ from those of boxes and are on both sides of the ranges, boxes of
    detections may be empty, images and categories may have none, and some images have more than a
    hundred detections of one category.
    """
    images = int(rng.integers(1, 8))
    categories = int(rng.integers(1, 5))
    n = int(rng.integers(0, 2 * objects))
    image = rng.integers(images, size=n)
    category = rng.integers(categories, size=n)
    box = np.concatenate(
        [rng.integers(0, 80, (n, 2)), rng.integers(1, 120, (n, 2))], axis=1
    ).astype(np.float64)
    area = box[:, 2] * box[:, 3] * rng.choice([1, 0.6], n)
    crowd = rng.random(n) < 0.15
    of = rng.integers(n, size=int(rng.integers(0, 3 * n))) if n else np.zeros(0, np.int64)
    moved = np.maximum(
        box[of] + rng.integers(-4, 5, (len(of), 4)) * rng.choice([0, 1, 3], (len(of), 1)), 0
    )
    other = rng.integers(categories, size=len(of))
    alone = int(rng.integers(0, objects))
    crowded = np.zeros(120 if n and rng.random() < 0.1 else 0, np.int64)
    detected_image = np.concatenate([image[of], rng.integers(images, size=alone), image[crowded]])
    detected_box = np.concatenate([moved, rng.integers(0, 100, (alone, 4)), box[crowded]])
    of_objects = [
        np.where(rng.random(len(of)) < 0.9, category[of], other),
        rng.integers(categories, size=alone),
    ]
    detected_category = np.concatenate([*of_objects, category[crowded]])
    score = rng.integers(1, 8, len(detected_image)) / 8
    shuffled = rng.permutation(len(detected_image))
    detections = Detections.of(
        *(part[shuffled] for part in (detected_image, detected_box, detected_category, score))
    )
    return Objects.of(image, box, category, area, crowd), detections, images, categories


def like_coco(rng: np.random.Generator, images: int) -> tuple[Objects, Detections, int, int]:
    """Make boxes in the numbers of COCO's images, with a hundred detections an image."""
    categories = 80
    frequency = np.arange(1, categories + 1) ** -0.9
    frequency /= frequency.sum()
    image = np.repeat(np.arange(images), rng.poisson(7.3, images))
    n = len(image)
    side = np.exp(rng.normal(np.log(70), 1, n)).clip(4, 500)
    corner = np.stack([rng.uniform(0, 500, n), rng.uniform(0, 400, n)], axis=1)
    box = np.concatenate([corner, side[:, None], (side * rng.uniform(0.5, 2, n))[:, None]], axis=1)
    category = rng.choice(categories, n, p=frequency)
    twice = np.repeat(np.arange(n), 2)
    near = box[twice] + rng.normal(0, 0.08, (len(twice), 4)) * side[twice, None]
    near[:, 2:] = np.maximum(near[:, 2:], 1)
    of = np.repeat(np.arange(images), 85)
    far = np.concatenate(
        [rng.uniform(0, 500, (len(of), 2)), rng.uniform(5, 200, (len(of), 2))], axis=1
    )
    detections = Detections.of(
        np.concatenate([image[twice], of]),
        np.concatenate([near, far]),
        np.concatenate([category[twice], rng.choice(categories, len(of), p=frequency)]),
        np.concatenate([rng.beta(4, 2, len(twice)), rng.beta(1, 5, len(of))]),
    )
    return (
        Objects.of(image, box, category, crowd=rng.random(n) < 0.01),
        detections,
        images,
        categories,
    )


def coco_rows(
    image: np.ndarray, box: np.ndarray, category: np.ndarray, score: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """Return boxes in COCO's form, without ids."""
    rows = []
    columns = (image.tolist(), box.tolist(), category.tolist())
    for image_id, sides, category_id in zip(*columns, strict=True):
        row = {
            "image_id": image_id,
            "bbox": sides,
            "category_id": category_id,
            "area": sides[2] * sides[3],
            "iscrowd": 0,
        }
        rows.append(row)
    if score is not None:
        for row, of_row in zip(rows, score.tolist(), strict=True):
            row["score"] = of_row
    return rows


def coco_set(
    make: Callable[[], Any], rows: Sequence[dict[str, Any]], images: int, categories: int
) -> Any:
    """Return a set of a package's class, and number its boxes. The package prints."""
    for number, row in enumerate(rows, start=1):
        row["id"] = number  # 0 would count as no match
    coco = make()
    coco.dataset = {
        "images": [{"id": image} for image in range(images)],
        "categories": [{"id": category} for category in range(categories)],
        "annotations": rows,
    }
    coco.createIndex()
    return coco
