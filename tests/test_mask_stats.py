"""IoU, recall and pixel accuracy equal a plain loop over pixels, and resamples weigh images."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from counterfoil.mask_stats import (
    BOUNDARY,
    IOU,
    PIXELS,
    RECALL,
    PixelCounts,
    boundary_f1,
    confusion,
    score_masks,
)
from counterfoil.resampled_stats import Drawn, Units, weighted_sum
from counterfoil.stats import seeded_generator
from support.estimates import interval_of

CLASSES = 4
IMAGES = 30


def drawn(seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw masks, of which class 3 is rare and some pixels have none, and answers to them."""
    rng = np.random.default_rng(seed)
    masks = []
    answers = []
    for number in range(IMAGES):
        shape = (int(rng.integers(3, 9)), int(rng.integers(3, 9)))
        mask = rng.choice([0, 1, 2, 255], shape, p=[0.5, 0.3, 0.15, 0.05])
        if number % 10 == 0:
            mask[0, 0] = 3
        wrong = rng.random(shape) < 0.3
        masks.append(mask)
        answers.append(np.where(wrong, rng.choice([0, 1, 2, 3, 255], shape), mask))
    return masks, answers


def counts_of(masks: list[np.ndarray], answers: list[np.ndarray]) -> PixelCounts:
    cells = []
    boundary = []
    for image, (mask, answer) in enumerate(zip(masks, answers, strict=True)):
        matrix = confusion(mask, answer, CLASSES)
        scores = boundary_f1(mask, answer, CLASSES)
        for true, answered in np.ndindex(matrix.shape):
            cells.append((image, true, answered, matrix[true, answered]))
            boundary.append(scores[true])
    return PixelCounts.of(np.array(cells).T, np.array(boundary), len(masks), CLASSES)


def by_loop(
    masks: list[np.ndarray], answers: list[np.ndarray], times: np.ndarray
) -> tuple[list[float], list[float], float]:
    """Return IoU and recall of each class and pixel accuracy, one pixel after the other."""
    both = [0] * CLASSES
    either = [0] * CLASSES
    true = [0] * CLASSES
    right = known = 0
    for mask, answer, weight in zip(masks, answers, times.tolist(), strict=True):
        for label, given in zip(mask.ravel().tolist(), answer.ravel().tolist(), strict=True):
            if label == 255:
                continue
            known += weight
            true[label] += weight
            right += weight * (label == given)
            both[label] += weight * (label == given)
            either[label] += weight
            if given != label and given < CLASSES:
                either[given] += weight
    iou = [math.nan] * CLASSES
    recall = [math.nan] * CLASSES
    for k in range(CLASSES):
        if true[k]:
            iou[k] = both[k] / either[k]
            recall[k] = both[k] / true[k]
    return iou, recall, right / known


def boundary_by_loop(mask: np.ndarray, answer: np.ndarray) -> list[float]:
    """Return the boundary F1 of each class, one pair of pixels after the other."""
    height, width = mask.shape
    reach = max(1.0, 0.0075 * math.sqrt(height**2 + width**2))
    known = mask < CLASSES

    def on_boundary(numbers: np.ndarray, label: int) -> list[tuple[int, int]]:
        points = []
        for y in range(height):
            for x in range(width):
                if not known[y, x] or numbers[y, x] != label:
                    continue
                for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                    inside = 0 <= v < height and 0 <= u < width
                    if inside and (not known[v, u] or numbers[v, u] != label):
                        points.append((y, x))
                        break
        return points

    def near(points: list[tuple[int, int]], others: list[tuple[int, int]]) -> float:
        near_others = 0
        for point in points:
            near_others += any(math.dist(point, other) <= reach for other in others)
        return near_others / len(points) if points else 0.0

    scores = []
    for label in range(CLASSES):
        true = on_boundary(mask, label)
        given = on_boundary(answer, label)
        both = near(given, true) + near(true, given)
        score = 2 * near(given, true) * near(true, given) / both if both else 0.0
        scores.append(score if true else math.nan)
    return scores


@pytest.mark.parametrize("shape", [(1, 7), (9, 8), (40, 30), (160, 220)])
def test_boundary_f1_equals_a_plain_loop(shape: tuple[int, int]) -> None:
    """At 160 × 220 pixels the tolerance is 2.04, and 1 below."""
    rng = np.random.default_rng(shape)
    rows, columns = np.indices(shape)
    for _ in range(3):
        masks = []
        for _ in range(2):
            numbers = np.zeros(shape, np.uint8)
            for label in (1, 2, 255):
                centre = rng.random(2) * shape
                radius = 0.4 * min(shape) * rng.random() + 1
                numbers[np.hypot(rows - centre[0], columns - centre[1]) < radius] = label
            numbers[rng.random(shape) < 0.01] = 1
            masks.append(numbers)
        mask, answer = masks
        scores = boundary_f1(mask, answer, CLASSES)
        np.testing.assert_allclose(scores, boundary_by_loop(mask, answer), atol=1e-9)


def test_boundaries_within_the_tolerance_match() -> None:
    mask = np.zeros((300, 400), np.uint8)  # a tolerance of 3.75 pixels
    mask[:, 200:] = 1
    for shift, expected in ((0, 1.0), (3, 1.0), (4, 0.0)):
        moved = np.zeros_like(mask)
        moved[:, 200 + shift :] = 1
        assert boundary_f1(mask, moved, 2).tolist() == [expected] * 2
    assert np.isnan(boundary_f1(np.zeros((5, 5), int), mask[:5, :5], 2)).all()
    assert boundary_f1(mask, np.zeros_like(mask), 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("units", [None, np.repeat(np.arange(10), 3)])
def test_values_and_resamples_equal_a_plain_loop(units: np.ndarray | None) -> None:
    masks, answers = drawn()
    groups = [counts_of(masks, answers), counts_of(masks, masks)]
    shared = None if units is None else Units.of(units)
    scored = score_masks(groups, seed=5, replicates=12, units=shared)
    times = (shared or Units.of_images(IMAGES)).drawn(12, seeded_generator(5, "images with masks"))
    for answered, scores in zip((answers, masks), scored, strict=True):
        whole = by_loop(masks, answered, np.ones(IMAGES, np.int64))
        for name, expected in zip((IOU, RECALL, PIXELS), whole, strict=True):
            np.testing.assert_allclose(scores.values[name], np.atleast_1d(expected), atol=1e-9)
        for replicate, weights in enumerate(times):
            resample = by_loop(masks, answered, weights)
            for name, expected in zip((IOU, RECALL, PIXELS), resample, strict=True):
                values = scores.draws[name][:, replicate]
                np.testing.assert_allclose(values, np.atleast_1d(expected), atol=1e-9)
    assert scored[1].mean(IOU, range(CLASSES)).value == 1.0
    mean = scored[0].mean(IOU, [0, 2]).value
    assert mean == pytest.approx(np.mean(scored[0].values[IOU][[0, 2]]), abs=1e-12)


@pytest.mark.parametrize("units", [None, np.repeat(np.arange(10), 3)])
def test_the_boundaries_of_a_class_are_the_mean_over_its_images(units: np.ndarray | None) -> None:
    masks, answers = drawn()
    of_images = np.array([boundary_by_loop(*pair) for pair in zip(masks, answers, strict=True)])
    shared = None if units is None else Units.of(units)
    scores = score_masks([counts_of(masks, answers)], seed=5, replicates=12, units=shared)[0]
    times = (shared or Units.of_images(IMAGES)).drawn(12, seeded_generator(5, "images with masks"))
    for weights, values in [
        (np.ones(IMAGES, np.int64), scores.values[BOUNDARY]),
        *zip(times, scores.draws[BOUNDARY].T, strict=True),
    ]:
        repeated = np.repeat(of_images, weights, axis=0)
        for label in range(CLASSES):
            finite = repeated[np.isfinite(repeated[:, label]), label]
            expected = finite.mean() if len(finite) else math.nan
            assert values[label] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    for unit in range(len(scores.parts[PIXELS][0])):
        kept = np.arange(IMAGES) != unit if units is None else units != unit
        iou, recall, accuracy = by_loop(masks, answers, kept.astype(int))
        for name, expected in ((IOU, iou), (RECALL, recall), (PIXELS, [accuracy])):
            np.testing.assert_allclose(scores.parts[name][:, unit], expected, atol=1e-9)
        boundary = [np.nanmean(column) for column in of_images[kept].T]
        np.testing.assert_allclose(scores.parts[BOUNDARY][:, unit], boundary, atol=1e-9)


def drop_of(lost: np.ndarray, pixels: int = 1000) -> Drawn:
    """Return the drop of pixel accuracy of images of so many pixels, of which some are lost."""
    having = np.full((len(lost), 1), pixels)
    nothing = np.full(having.shape, math.nan)
    groups = []
    for hits in (having, having - lost[:, None]):
        groups.append(PixelCounts(having, hits, hits, nothing))
    base, shift = (scores.mean(PIXELS, [0]) for scores in score_masks(groups, seed=1))
    return weighted_sum([(1.0, base), (-1.0, shift)])


def test_the_interval_of_a_drop_is_as_wide_as_images_differ() -> None:
    """Its jackknife is Student's interval of a mean; the image that differs most counts twice."""
    lost = np.random.default_rng(2).integers(5, 16, 40)
    shares = lost / 1000
    estimate = drop_of(lost).interval()
    low, value, high = interval_of(estimate)
    most = np.abs(shares - shares.mean()).max()
    squares = np.square(shares - shares.mean()).sum() + most**2
    half = scipy.stats.t.isf(0.025, 39) * math.sqrt(squares / (40 * 39))
    assert value == pytest.approx(shares.mean(), abs=1e-12)
    assert high - value == pytest.approx(half, abs=1e-9)
    assert value - low == pytest.approx(half, abs=1e-9)


def test_every_interval_has_a_width() -> None:
    """Images that agree, or of which one differs, leave some doubt."""
    for lost in (np.zeros(20, int), np.full(20, 7)):
        estimate = drop_of(lost).interval()
        assert estimate.low is not None and estimate.high is not None
        assert estimate.low < estimate.value - 0.1 and estimate.high > estimate.value + 0.1
    of_one_image = np.zeros(20, int)
    of_one_image[0] = 500
    estimate = drop_of(of_one_image).interval()
    assert estimate.low is not None and estimate.high is not None
    # one of 20 images that loses half: Wilson's interval of 1 of 20 ends at 23.6 %
    assert estimate.low < 0 and 0.09 < estimate.high < 0.13


def test_blocks_of_resamples_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counts_of(*drawn())
    whole = score_masks([counts], seed=1, replicates=20)[0]
    monkeypatch.setattr("counterfoil.mask_stats._WEIGHTS_AT_ONCE", 3 * IMAGES)
    parts = score_masks([counts], seed=1, replicates=20)[0]
    np.testing.assert_array_equal(whole.draws[IOU], parts.draws[IOU])


def test_images_have_numbers_of_their_own() -> None:
    masks, answers = drawn()
    counts = counts_of(masks, answers)
    for image in range(IMAGES):
        alone = np.zeros(IMAGES, np.int64)
        alone[image] = 1
        iou, _, accuracy = by_loop(masks, answers, alone)
        assert counts.image_iou()[image] == pytest.approx(np.nanmean(iou), abs=1e-9)
        assert counts.image_accuracy()[image] == pytest.approx(accuracy, abs=1e-9)


def test_an_answer_that_is_no_class_is_wrong_and_no_pixel_without_a_class_counts() -> None:
    mask = np.array([[0, 0, 1, 255]])
    matrix = confusion(mask, np.array([[0, 255, 7, 0]]), 2)
    assert matrix.tolist() == [[1, 0, 1], [0, 0, 1]]
