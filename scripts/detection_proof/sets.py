"""Sets of boxes that are made, to compare with pycocotools and to simulate from."""

from __future__ import annotations

import numpy as np

from counterfoil.detection_stats import Detections, Objects


def hostile_set(rng: np.random.Generator, objects: int = 12) -> tuple[Objects, Detections, int, int]:
    """Make boxes that are awkward to match: (objects, detections, images, categories).

    Whole pixels and eighths of a score, so that IoU and scores tie. A seventh of the objects are crowds, areas differ
    from those of boxes and lie on both sides of the ranges, boxes of detections may be empty, images and categories may
    have none, and some images have more than a hundred detections of one category.
    """
    images, categories = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    n = int(rng.integers(0, 2 * objects))
    image, category = rng.integers(images, size=n), rng.integers(categories, size=n)
    box = np.concatenate([rng.integers(0, 80, (n, 2)), rng.integers(1, 120, (n, 2))], axis=1).astype(np.float64)
    area = box[:, 2] * box[:, 3] * rng.choice([1, 0.6], n)
    crowd = rng.random(n) < 0.15
    of = rng.integers(n, size=int(rng.integers(0, 3 * n))) if n else np.zeros(0, np.int64)
    moved = np.maximum(box[of] + rng.integers(-4, 5, (len(of), 4)) * rng.choice([0, 1, 3], (len(of), 1)), 0)
    other = rng.integers(categories, size=len(of))
    alone = int(rng.integers(0, objects))
    crowded = np.zeros(120 if n and rng.random() < 0.1 else 0, np.int64)
    said_image = np.concatenate([image[of], rng.integers(images, size=alone), image[crowded]])
    said_box = np.concatenate([moved, rng.integers(0, 100, (alone, 4)), box[crowded]])
    said = [np.where(rng.random(len(of)) < 0.9, category[of], other), rng.integers(categories, size=alone)]
    said_category = np.concatenate([*said, category[crowded]])
    score = rng.integers(1, 8, len(said_image)) / 8
    shuffled = rng.permutation(len(said_image))
    detections = Detections.of(*(part[shuffled] for part in (said_image, said_box, said_category, score)))
    return Objects.of(image, box, category, area, crowd), detections, images, categories
