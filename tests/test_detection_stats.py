"""Matches and average precision, beside pycocotools; resamples, beside images that are repeated."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.detection_stats import MEASURES, Detections, Objects, average_precision, match
from detection_proof.reference import pycocotools_scores
from detection_proof.sets import hostile_set

# Where pycocotools keeps what MEASURES lists.
STATS = (0, 1, 2, 3, 4, 5, 8)


def test_scores_are_those_of_pycocotools() -> None:
    rng = np.random.default_rng(7)
    crowds = ties = empty = 0
    for _ in range(500):
        objects, detections, images, categories = hostile_set(rng, objects=6)
        scores = average_precision(match(objects, detections, images, categories))
        reference = pycocotools_scores(objects, detections, images, categories)
        np.testing.assert_allclose(scores.precision, reference.precision, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores.recall, reference.recall, rtol=0, atol=1e-12)
        measures = [scores.measure(name) for name in MEASURES]
        np.testing.assert_allclose(measures, reference.stats[list(STATS)], rtol=0, atol=1e-12)
        crowds += objects.crowd.any()
        ties += len(np.unique(detections.score)) < len(detections.score)
        empty += len(np.unique(objects.image)) < images
    assert min(crowds, ties, empty) > 150


def repeated(boxes: NDArray, image: NDArray[np.int64], times: NDArray[np.int64]) -> tuple[NDArray, NDArray[np.int64]]:
    """Rows of images that are repeated, and the number of each copy of their image."""
    first = np.cumsum(times) - times
    rows = np.concatenate([np.flatnonzero(image == one) for one, n in enumerate(times) for _ in range(n)] or [[]])
    rows = rows.astype(np.int64)
    copies = [np.full((image == one).sum(), first[one] + copy) for one, n in enumerate(times) for copy in range(n)]
    return rows, np.concatenate(copies or [[]]).astype(np.int64)


def test_weights_are_repeated_images() -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        objects, detections, images, categories = hostile_set(rng)
        # Of one image and category no two scores are equal here; those of other images may be.
        score = detections.score + 1e-6 * np.arange(len(detections.score))
        score -= 1e-6 * np.searchsorted(detections.image, detections.image)
        detections = Detections.of(detections.image, detections.box, detections.category, score)
        weights = rng.integers(0, 4, (3, images))
        weights[0, rng.integers(images)] = 0
        drawn = average_precision(match(objects, detections, images, categories), weights)
        for number, times in enumerate(weights):
            rows, image = repeated(objects.box, objects.image, times)
            more = Objects.of(
                image, *(part[rows] for part in (objects.box, objects.category, objects.area, objects.crowd))
            )
            rows, image = repeated(detections.box, detections.image, times)
            said = Detections.of(
                image, *(part[rows] for part in (detections.box, detections.category, detections.score))
            )
            plain = average_precision(match(more, said, int(times.sum()), categories))
            np.testing.assert_allclose(drawn.precision[..., number], plain.precision, rtol=0, atol=1e-12)
            np.testing.assert_allclose(drawn.recall[..., number], plain.recall, rtol=0, atol=1e-12)
            for name in MEASURES:
                np.testing.assert_allclose(drawn.measure(name)[number], plain.measure(name), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("box", "image", "said"),
    [
        ([[0, 0, -1, 5]], [0], "width and height from 0"),
        ([[0, 0, np.nan, 5]], [0], "finite"),
        ([[0, 0, 5, 5]], [-1], "from 0"),
        ([[0, 0, 5, 5]], [0, 1], "2 images of boxes, 1 boxes"),
        ([[0, 0, 5, 5]], [3], "beyond 2"),
    ],
)
def test_what_is_no_box_is_refused(box: list, image: list, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        match(Objects.of(image, box, [0]), Detections.of([], [], [], []), 2, 1)
