"""Conditions as problems of two classes: labels, failures and answers of each, over features that are not copied."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mining.binary import binary_problems, row_labels


def test_each_condition_is_two_classes_over_the_same_features() -> None:
    rng = np.random.default_rng(0)
    features, units = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60) // 2
    present, failed = rng.random((60, 3)) < 0.4, rng.random((60, 3)) < 0.3
    problems = list(binary_problems(features, present, failed, units))
    assert [problem.classes for problem in problems] == [(0, 1), (2, 3), (4, 5)]
    for k, problem in enumerate(problems):
        assert problem.features is features
        assert problem.units is units
        has, lacks = problem.classes
        assert np.array_equal(problem.labels == has, present[:, k])
        assert np.array_equal(problem.labels == lacks, ~present[:, k])
        assert np.array_equal(problem.failed, failed[:, k])
        # What was answered is the label where the answer was right, and the other of the two where it was wrong.
        assert np.array_equal(problem.answers[:, 0] == problem.labels, ~problem.failed)
        assert (np.sort(problem.answers, axis=1) == problem.classes).all()


@pytest.mark.parametrize("shape", [(4,), (4, 2), (3, 3)])
def test_arrays_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected \(n, width\)"):
        list(binary_problems(np.zeros((4, 2)), np.zeros((4, 3), bool), np.zeros(shape, bool), np.zeros(4, np.int64)))


def test_a_row_has_a_label_of_every_condition() -> None:
    rows, labels = row_labels(np.array([[True, False, True], [False, False, True]]))
    assert rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert labels.tolist() == [0, 3, 4, 1, 3, 4]
