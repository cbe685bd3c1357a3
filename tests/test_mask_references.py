"""IoU, recall and accuracy of masks equal scikit-learn's and torchmetrics', also with pixels that have
no class and classes that no pixel has."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch

from counterfoil.mask_stats import IOU, PIXELS, RECALL, boundary_f1, confusion, score_masks
from counterfoil.mask_stats import PixelCounts as Counts

classification = pytest.importorskip(
    "torchmetrics.functional.classification", reason="torchmetrics is not installed"
)
CLASSES = 5
ABSENT = 4  # no pixel has this class, and some are given it


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of 12 images and answers to them, (12, 20, 30)."""
    shape = (12, 20, 30)
    masks = rng.choice([0, 1, 2, 3, 255], shape, p=[0.5, 0.3, 0.1, 0.02, 0.08])
    wrong = rng.random(shape) < 0.25
    return masks, np.where(wrong, rng.integers(0, CLASSES, shape), masks % 255)


def counts_of(masks: np.ndarray, answers: np.ndarray) -> Counts:
    cells = []
    boundary = []
    for image, (mask, answer) in enumerate(zip(masks, answers, strict=True)):
        matrix = confusion(mask, answer, CLASSES)
        scores = boundary_f1(mask, answer, CLASSES)
        for true, answered in np.argwhere(matrix).tolist():
            cells.append((image, true, answered, matrix[true, answered]))
            boundary.append(scores[true])
    return Counts.of(np.array(cells).T, np.array(boundary), len(masks), CLASSES)


@pytest.mark.parametrize("seed", range(2))
def test_measures_equal_the_references(seed: int) -> None:
    masks, answers = drawn(np.random.default_rng(seed))
    scores = score_masks([counts_of(masks, answers)], seed=0, replicates=2)[0]
    known = masks != 255
    truth = masks[known]
    answered = answers[known]
    present = [label for label in range(CLASSES) if label != ABSENT]
    labels = list(range(CLASSES))

    iou = sklearn.metrics.jaccard_score(truth, answered, labels=labels, average=None)
    np.testing.assert_allclose(scores.values[IOU][present], iou[present], atol=1e-9)
    recall = sklearn.metrics.recall_score(truth, answered, labels=present, average=None)
    np.testing.assert_allclose(scores.values[RECALL][present], recall, atol=1e-9)
    mean_accuracy = scores.mean(RECALL, present).value
    assert mean_accuracy == pytest.approx(np.mean(recall), abs=1e-9)
    accuracy = sklearn.metrics.accuracy_score(truth, answered)
    assert scores.mean(PIXELS, present).value == pytest.approx(accuracy, abs=1e-9)
    assert np.isnan(scores.values[IOU][ABSENT]) and np.isnan(scores.values[RECALL][ABSENT])

    # torchmetrics counts in whole numbers and divides in 32 bits
    given = torch.from_numpy(answers), torch.from_numpy(masks)
    matrix = classification.multiclass_confusion_matrix(*given, CLASSES, ignore_index=255)
    counts = confusion(masks, answers, CLASSES)
    np.testing.assert_array_equal(counts[:, :CLASSES], matrix.numpy())
    assert counts[:, CLASSES].sum() == 0
    by_class = {"num_classes": CLASSES, "average": "none", "ignore_index": 255}
    iou = classification.multiclass_jaccard_index(*given, **by_class).numpy()
    np.testing.assert_allclose(scores.values[IOU][present], iou[present], rtol=1e-6)
    recall = classification.multiclass_accuracy(*given, **by_class).numpy()
    np.testing.assert_allclose(scores.values[RECALL][present], recall[present], rtol=1e-6)
    micro = classification.multiclass_accuracy(*given, **by_class | {"average": "micro"})
    assert scores.mean(PIXELS, present).value == pytest.approx(float(micro), rel=1e-6)
    assert scores.mean(IOU, present).value == pytest.approx(iou[present].mean(), rel=1e-6)
