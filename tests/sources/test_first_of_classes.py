"""Some images of each class, always the same ones: by their keys, whatever their order and whatever else there is."""

from __future__ import annotations

import numpy as np

from counterfoil.sources import first_of_classes


def test_the_first_of_a_class_are_the_same_whatever_else_there_is() -> None:
    keys = [f"validation_{n:08d}" for n in range(300)]
    labels = np.arange(300) % 3
    chosen = first_of_classes(keys, labels, 20)
    assert len(chosen) == 60 and np.all(np.diff(chosen) > 0)
    assert np.bincount(labels[chosen]).tolist() == [20, 20, 20]
    own = np.flatnonzero(labels == 1)
    alone = first_of_classes([keys[row] for row in own], labels[own], 20)
    assert {keys[own[row]] for row in alone} == {keys[row] for row in chosen if labels[row] == 1}
    fewer = first_of_classes(keys, labels, 5)
    assert set(fewer) < set(chosen)
    # Not the first that lie there: a split may be sorted by anything.
    assert chosen.max() > 200


def test_at_most_so_many_images_a_class_whatever_their_order() -> None:
    keys = [f"validation/{number}" for number in range(60)]
    labels = np.array([number % 3 == 0 for number in range(60)], dtype=np.int64)
    chosen = first_of_classes(keys, labels, 15)
    assert np.bincount(labels[chosen]).tolist() == [15, 15]
    turned = first_of_classes(keys[::-1], labels[::-1], 15)
    assert {keys[::-1][row] for row in turned} == {keys[row] for row in chosen}
    assert first_of_classes(keys, labels, 40).tolist() == list(range(60))
