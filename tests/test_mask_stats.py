"""IoU, recall and pixel accuracy equal a plain loop over pixels, and resamples weigh images."""

from __future__ import annotations

import math

import numpy as np
import pytest

from counterfoil.mask_stats import IOU, PIXELS, RECALL, PixelCounts, confusion, score_masks
from counterfoil.resampled_stats import Units
from counterfoil.stats import seeded_generator

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
    for image, (mask, answer) in enumerate(zip(masks, answers, strict=True)):
        matrix = confusion(mask, answer, CLASSES)
        for true, answered in np.argwhere(matrix).tolist():
            cells.append((image, true, answered, matrix[true, answered]))
    return PixelCounts.of(np.array(cells).T, len(masks), CLASSES)


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
