"""Wrong labels are told from wrong answers: by clouds of features whose labels are known to be true or flipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.mining.findings import LabelCheck
from counterfoil.mining.label_check import FEWEST, SeenLabels

CLASSES, EACH, WIDTH = 3, 80, 12


def seen(seed: int = 0, each: int = EACH) -> SeenLabels:
    """Clouds around the captions of three classes, every answer right, and each row its own unit."""
    rng = np.random.default_rng(seed)
    captions = np.eye(CLASSES, WIDTH, dtype=np.float32)
    truth = np.repeat(np.arange(CLASSES), each)
    features = unit(captions[truth] + 0.25 * rng.standard_normal((len(truth), WIDTH)))
    known = np.ones(CLASSES, dtype=bool)
    return SeenLabels(features, truth, np.arange(len(truth)), np.ones(len(truth), bool), captions, known)


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def flipped(images: SeenLabels, rows: np.ndarray, label: int) -> SeenLabels:
    """Rows with another label, answered as they truly are: all of them fail."""
    labels, right = images.labels.copy(), images.right.copy()
    labels[rows], right[rows] = label, False
    return replace(images, labels=labels, right=right)


@pytest.mark.parametrize("seed", range(3))
def test_rows_with_the_label_of_another_class_look_mislabelled(seed: int) -> None:
    images, rows = seen(seed), np.arange(20)
    check, looked = flipped(images, rows, 1).check(rows, images.labels[rows])
    assert check.suspected and check.rows == 20 and check.mislabelled >= 15
    assert check.right_share is not None and check.right_share < 0.05
    assert set(looked.others.tolist()) == {0} and sorted(looked.rows.tolist()) == rows.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_what_classifier_and_clip_both_take_for_another_class_is_no_wrong_label(seed: int) -> None:
    images, rows = seen(seed), np.arange(20)
    rng = np.random.default_rng(seed)
    features = images.features.copy()
    # A little nearer to the other class, by its caption and by its rows, and at the edge of both.
    between = 0.46 * images.captions[0] + 0.54 * images.captions[1]
    features[rows] = unit(between + 0.05 * rng.standard_normal((len(rows), WIDTH)))
    right = images.right.copy()
    right[rows] = False
    check, looked = replace(images, features=features, right=right).check(rows, np.ones(len(rows), dtype=np.int64))
    assert (looked.captions > 0).mean() > 0.6
    assert not check.suspected and check.share is not None and check.share < 0.2


def test_neighbours_of_the_same_unit_say_nothing() -> None:
    # Each wrong row has a twin, which has the same wrong label and is taken for right: it is of one garment with it.
    images, rows = seen(), np.arange(10)
    features, units = images.features.copy(), images.units.copy()
    features[10:20], units[10:20] = features[:10], units[:10]
    twins = flipped(replace(images, features=features, units=units), np.arange(20), 1)
    right = twins.right.copy()
    right[10:20] = True
    together = replace(twins, right=right)
    apart = replace(together, units=np.arange(len(units)))
    others = np.zeros(10, dtype=np.int64)

    def neighbours(images: SeenLabels) -> np.ndarray:
        _, looked = images.check(rows, others)
        return looked.neighbours[np.argsort(looked.rows)]

    assert (neighbours(apart) < neighbours(together)).all()


def test_a_class_that_clip_does_not_know_is_not_checked() -> None:
    images, rows = seen(), np.arange(20)
    for unknown in (0, 1):
        known = np.arange(CLASSES) != unknown
        check, _ = flipped(replace(images, known=known), rows, 1).check(rows, np.zeros(20, dtype=np.int64))
        assert check.verdict == "not checked" and "CLIP may not know" in str(check.reason) and not check.suspected


def test_answers_of_no_class_and_few_failures_are_not_checked() -> None:
    images, rows = seen(), np.arange(20)
    check, _ = flipped(images, rows, 1).check(rows, np.full(20, -1))
    assert check.reason is not None
    few = rows[: FEWEST - 1]
    check, _ = flipped(images, few, 1).check(few, images.labels[few])
    assert "fewer than" in str(check.reason) and check.share is None


def test_a_class_without_right_rows_raises_no_doubt() -> None:
    images, rows = seen(), np.arange(20)
    nothing_right = replace(flipped(images, rows, 1), right=np.zeros(len(images.labels), dtype=bool))
    check, _ = nothing_right.check(rows, np.zeros(20, dtype=np.int64))
    assert check.share == 0 and not check.suspected


@given(st.permutations(range(20)))
def test_the_order_of_rows_changes_nothing(order: list[int]) -> None:
    images, rows = flipped(seen(each=20), np.arange(20), 1), np.asarray(order)
    others = np.zeros(20, dtype=np.int64)
    assert images.check(rows, others)[0] == images.check(np.sort(rows), others)[0]


def test_a_check_is_either_made_or_has_a_reason() -> None:
    right = LabelCheck(8, 4, 0.5, 0.0, True)
    for wrong in (lambda: replace(right, share=None), lambda: replace(right, reason="none"),
                  lambda: replace(right, mislabelled=9)):  # fmt: skip
        with pytest.raises(ValueError):
            wrong()
