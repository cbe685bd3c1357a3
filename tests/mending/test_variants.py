"""Rows are drawn alike whatever the others are, and variants have equal numbers."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mending.variants import equal_numbers, rows_within, train_rows

LABELS = np.random.default_rng(1).choice([0, 1, 2, 7], size=300, p=[0.5, 0.4, 0.08, 0.02]).astype(np.int64)


def counts(labels: np.ndarray) -> dict[int, int]:
    return {label: int((labels == label).sum()) for label in np.unique(labels).tolist()}


def test_of_each_class_so_many_come_or_all_that_there_are() -> None:
    rows = train_rows(LABELS, 30)
    assert counts(LABELS[rows]) == {label: min(30, n) for label, n in counts(LABELS).items()}
    assert rows.tolist() == sorted(set(rows.tolist()))


def test_a_class_is_drawn_alike_whatever_the_others_are() -> None:
    alone = np.where(LABELS == 1, LABELS, 0)
    both = [set(train_rows(each, 10, seed=3).tolist()) & set(np.flatnonzero(LABELS == 1)) for each in (LABELS, alone)]
    assert both[0] == both[1] and len(both[0]) == 10


def test_another_seed_draws_others_and_fewer_are_a_part_of_more() -> None:
    assert train_rows(LABELS, 10, 1).tolist() == train_rows(LABELS, 10, 1).tolist()
    assert train_rows(LABELS, 10, 1).tolist() != train_rows(LABELS, 10, 2).tolist()
    assert set(train_rows(LABELS, 10, 1)) < set(train_rows(LABELS, 30, 1))


def test_arms_are_cut_to_equal_numbers_of_each_class() -> None:
    variants = {"contexts": LABELS, "class_name": LABELS[:90], "random_contexts": np.repeat([0, 1, 2], 11)}
    cut = equal_numbers(variants, seed=5)
    found = [counts(labels[cut[name]]) for name, labels in variants.items()]
    assert found[0] == found[1] == found[2]
    for label in (0, 1, 2):
        assert found[0][label] == min(int((labels == label).sum()) for labels in variants.values())
    assert 7 not in found[0]  # one variant has none


def test_an_arm_without_images_leaves_none_to_any() -> None:
    cut = equal_numbers({"a": LABELS, "b": np.empty(0, dtype=np.int64)})
    assert [len(rows) for rows in cut.values()] == [0, 0]


RANKS = np.repeat([0, 1, 2, 0, 1], [6, 6, 6, 2, 6])
SHIFTS = np.repeat([0, 1, 2, 3, 4], [6, 6, 6, 2, 6])


@pytest.mark.parametrize(("k", "images"), [(1, 3), (2, 4), (3, 1), (None, 5), (2, None), (None, None)])
def test_a_curves_rows_are_of_the_first_contexts_and_at_most_so_many_of_each(k: int | None, images: int | None) -> None:
    rows = rows_within(RANKS, SHIFTS, k=k, images=images)
    wanted = {
        shift: min(n, images or n) for shift, n in counts(SHIFTS).items() if k is None or RANKS[shift == SHIFTS][0] < k
    }
    assert counts(SHIFTS[rows]) == wanted


def test_images_of_no_context_are_in_every_point_of_a_curve() -> None:
    shifts = np.where(SHIFTS == 3, -1, SHIFTS)
    outside = set(np.flatnonzero(shifts < 0).tolist())
    rows = rows_within(RANKS, shifts, images=1)
    assert outside <= set(rows.tolist()) and len(rows) == len(outside) + 4
    assert rows_within(RANKS, shifts, images=6).tolist() == list(range(len(shifts)))


def test_points_of_a_curve_add_to_each_other() -> None:
    few, more = (set(rows_within(RANKS, SHIFTS, k=2, images=n, seed=4).tolist()) for n in (2, 4))
    assert few < more
    assert set(rows_within(RANKS, SHIFTS, k=1, images=2, seed=4).tolist()) < few
