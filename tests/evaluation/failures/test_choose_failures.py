"""Which failures are shown: every wrong readable image with its base image, a fair share of many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.failures import base_partners, choose_failures


def world(n_shifts: int = 3, n_classes: int = 4, n: int = 25) -> tuple[NDArray, NDArray, NDArray]:
    """Groups, labels and indices of a whole dataset, the base first."""
    groups, labels, indices = (axis.ravel() for axis in np.indices((n_shifts, n_classes, n)))
    return groups, labels, indices


def test_every_readable_wrong_image_is_there_with_its_base_image() -> None:
    groups, labels, indices = world()
    rng = np.random.default_rng(0)
    correct = rng.random((len(groups), 3)) < 0.8
    readable = rng.random(len(groups)) < 0.9
    partners = base_partners(labels, groups, indices, readable, [1])
    chosen = choose_failures(correct, readable, labels, groups, partners, 10_000)
    assert set(chosen.rows) == {row for row in range(len(groups)) if readable[row] and not correct[row].all()}
    assert chosen.found == len(chosen.rows)
    for row, partner in zip(chosen.rows, chosen.partners, strict=True):
        whole = int(labels[row] * 25 + indices[row])  # where the base's image of this class and index stands
        assert partner == (whole if groups[row] == 1 and readable[whole] else -1)
    assert set(chosen.images) == set(chosen.rows) | {one for one in chosen.partners if one >= 0}


def test_of_too_many_every_cell_gives_its_share_and_the_most_telling_first() -> None:
    groups, labels, indices = world()
    correct = np.ones((len(groups), 4), dtype=bool)
    correct[groups == 2] = False
    correct[(groups == 2) & (indices >= 5), 1:] = True  # five images of a class that all models get wrong
    lonely = (groups == 1) & (labels == 0) & (indices < 2)
    correct[lonely, 0] = False
    readable = np.ones(len(groups), dtype=bool)
    partners = base_partners(labels, groups, indices, readable, [1, 2])
    chosen = choose_failures(correct, readable, labels, groups, partners, 22)
    assert chosen.found == 4 * 25 + 2 and len(chosen.rows) == 22
    cells, counts = np.unique(np.stack([groups, labels])[:, chosen.rows], axis=1, return_counts=True)
    assert dict(zip(map(tuple, cells.T.tolist()), counts.tolist(), strict=True)) == {
        (1, 0): 2, (2, 0): 5, (2, 1): 5, (2, 2): 5, (2, 3): 5,
    }  # fmt: skip
    assert not correct[[row for row in chosen.rows if groups[row] == 2]].any()
    assert np.all(np.diff(chosen.rows) > 0)


def test_a_flipped_image_comes_before_one_that_was_wrong_already() -> None:
    groups, labels, indices = world(2, 1, 10)
    correct = np.ones((20, 3), dtype=bool)
    correct[:10, :2] = False
    correct[0] = True
    correct[10] = [False, True, True]  # one model flips
    correct[11:, :2] = False  # two are wrong, and were wrong on the base
    partners = base_partners(labels, groups, indices, np.ones(20, dtype=bool), [1])
    chosen = choose_failures(correct, np.ones(20, dtype=bool), labels, groups, partners, 2)
    assert 10 in chosen.rows


def test_nothing_wrong_is_nothing_chosen() -> None:
    groups, labels, indices = world()
    right, readable = np.ones((len(groups), 2), dtype=bool), np.ones(len(groups), dtype=bool)
    partners = base_partners(labels, groups, indices, readable, [])
    chosen = choose_failures(right, readable, labels, groups, partners, 5)
    assert chosen.found == 0 and len(chosen.images) == 0
