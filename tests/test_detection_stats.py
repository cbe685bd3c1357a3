"""Matches and average precision, beside pycocotools; resamples, beside images that are repeated."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.detection_stats import (
    MEASURES,
    Detections,
    Matches,
    Objects,
    average_precision,
    best_f1_score,
    image_f1,
    match,
)
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


def f1_of_images(matches: Matches, score: float) -> list[float]:
    """The definition, image by image."""
    values = []
    for image in range(matches.images):
        said = (matches.image == image) & (matches.score >= score) & ~matches.ignored[0, 0]
        right = int((said & matches.matched[0, 0]).sum())
        objects = int(((matches.object_image == image) & matches.counted[0]).sum())
        values.append(1.0 if int(said.sum()) + objects == 0 else 2 * right / (int(said.sum()) + objects))
    return values


def test_f1_of_images_is_best_at_its_score() -> None:
    rng = np.random.default_rng(9)
    for _ in range(60):
        objects, detections, images, categories = hostile_set(rng)
        matches = match(objects, detections, images, categories)
        score = best_f1_score(matches)
        np.testing.assert_allclose(image_f1(matches, score), f1_of_images(matches, score), rtol=0, atol=1e-12)
        means = [np.mean(f1_of_images(matches, one)) for one in np.unique(matches.score[~matches.ignored[0, 0]])]
        if means:
            assert image_f1(matches, score).mean() == pytest.approx(max(means), abs=1e-9)
        else:
            assert score == np.inf


def test_a_detection_meets_the_object_that_is_nearest_and_counts() -> None:
    # By hand: a crowd that holds two detections whole, an object that both overlap, and a third far from all.
    objects = Objects.of([0, 0], [[0, 0, 10, 10], [0, 0, 100, 100]], [0, 0], crowd=[False, True])
    boxes = [[0, 0, 10, 8], [0, 0, 10, 10], [200, 200, 10, 10]]
    matches = match(objects, Detections.of([0, 0, 0], boxes, [0, 0, 0], [0.9, 0.8, 0.7]), 1, 1)
    at_half, at_most = matches.matched[0, 0], matches.matched[0, -1]
    # The first takes the object at .5. At .95 it overlaps too little, falls to the crowd, and leaves it to the second.
    assert at_half.tolist() == at_most.tolist() == [True, True, False]
    assert matches.ignored[0, 0].tolist() == [False, True, False]
    assert matches.ignored[0, -1].tolist() == [True, False, False]
    assert matches.found.tolist() == [0, 1, -1]
