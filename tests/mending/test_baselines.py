"""What a method calls hard comes first: a planted cluster of failures, and rows that a classifier
is unsure of."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mending.baselines import (
    by_direction,
    most_wrong_slice,
    relative_difficulty,
    unsureness,
)


def planted(seed: int, rows: int = 600) -> tuple[np.ndarray, ...]:
    """Return features, labels, shares of the true class and members: a fifth of class 1, set apart,
    mostly wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    members = (labels == 1) & (rng.random(rows) < 0.2)
    features = rng.standard_normal((rows, 12)) + labels[:, None] * 0.5
    features[members, :3] += 3
    shares = np.where(members, rng.uniform(0.05, 0.4, rows), rng.uniform(0.6, 0.99, rows))
    return features, labels, shares, members


def test_a_planted_cluster_comes_first_in_its_class() -> None:
    (features, labels, shares, _), (others, other_labels, other_shares, members) = (
        planted(0),
        planted(1),
    )
    units = np.arange(len(labels))
    orders = {
        "direction": by_direction(features, labels, shares > 0.5, units, others, other_labels),
        "domino": most_wrong_slice(features, labels, shares, others, other_labels, other_shares),
    }
    for name, hardness in orders.items():
        of_class = np.flatnonzero(other_labels == 1)
        first = of_class[np.argsort(-hardness[of_class])][: members.sum()]
        assert members[first].mean() > 0.7 > 3 * members[of_class].mean(), name


def test_a_class_that_cannot_be_fitted_has_no_order() -> None:
    features, labels, shares, _ = planted(0)
    right = np.ones(len(labels), dtype=bool)
    assert not by_direction(features, labels, right, np.arange(len(labels)), features, labels).any()
    alone = np.full(len(labels), 7)
    assert not most_wrong_slice(features, labels, shares, features, alone, shares).any()


def test_the_less_a_classifier_gives_the_true_class_the_higher_the_row() -> None:
    shares = np.array([0.9, 0.5, 0.1, 0.0], np.float32)
    assert np.all(np.diff(unsureness(shares)) > 0)
    assert np.isfinite(unsureness(shares)).all()


def test_rows_that_only_the_biased_classifier_finds_hard_come_first() -> None:
    biased = np.array([0.01, 0.01, 0.99, 1.0])
    plain = np.array([0.99, 0.01, 0.99, 1.0])
    difficulty = relative_difficulty(biased, plain)
    assert difficulty[0] > 0.9
    assert difficulty[1:] == pytest.approx([0.5, 0.5, 0.5])
