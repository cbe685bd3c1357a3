"""Balanced groups, failures in common, and gains kept."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.errors import UserError
from counterfoil.mending.fitting import balanced_lesson
from counterfoil.mending.mend_models import failure_overlap, kept_gain


def drawn(sizes: dict[tuple[int, int], int], fewest: int = 5, seed: int = 0) -> dict[tuple[int, int], int]:
    """How many rows of each (class, group) a balanced lesson holds; the features say which row it is."""
    cells = np.array([cell for cell, size in sizes.items() for _ in range(size)])
    classes, groups = cells[:, 0], cells[:, 1]
    features = np.arange(len(cells), dtype=np.float32)[:, None]
    lesson = balanced_lesson(features, classes + 10, classes, groups, seed=seed, fewest=fewest)
    rows = lesson.features[:, 0].astype(int)
    assert len(set(rows.tolist())) == len(rows) and lesson.weights is None
    assert (lesson.targets == classes[rows] + 10).all()
    return {cell: int((cells[rows] == cell).all(axis=1).sum()) for cell in sizes}


def test_every_cell_brings_as_many_rows_as_the_smallest() -> None:
    found = drawn({(0, 0): 50, (0, 1): 7, (1, 0): 20, (1, 1): 90})
    assert set(found.values()) == {7}


def test_a_cell_of_a_row_or_two_does_not_make_all_others_as_small() -> None:
    assert drawn({(0, 0): 50, (0, 1): 2, (1, 0): 9}) == {(0, 0): 9, (0, 1): 2, (1, 0): 9}


def test_groups_that_are_all_tiny_are_refused() -> None:
    with pytest.raises(UserError, match="none has 5 rows of one class"):
        drawn({(0, 0): 3, (1, 0): 4})


def test_the_overlap_is_intersection_over_union() -> None:
    failed = np.random.default_rng(1).random((4, 200)) < 0.3
    found = failure_overlap(failed)
    for a in range(4):
        for b in range(4):
            assert found[a, b] == pytest.approx((failed[a] & failed[b]).sum() / (failed[a] | failed[b]).sum())
    assert np.diag(found) == pytest.approx(np.ones(4))


def test_models_that_never_fail_have_no_overlap() -> None:
    failed = np.array([[False, False], [False, False], [True, False]])
    found = failure_overlap(failed)
    assert np.isnan(found[0, 1]) and found[0, 2] == 0 and found[2, 2] == 1


def test_a_gain_is_kept_in_part_and_nothing_is_kept_of_none() -> None:
    assert kept_gain(0.2, 0.15) == pytest.approx(0.75)
    assert kept_gain(0.0, 0.1) is None and kept_gain(-0.1, 0.1) is None
