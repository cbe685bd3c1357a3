"""Where a set ends: the same share of every class, chosen on the half that is given, on the side that the role says."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mining.cutoffs import SHARES, Role, choose_cutoffs, cut, cutoffs_at

RNG = np.random.default_rng(7)
LABELS = np.repeat([0, 1, 2], 200)
UNITS = np.arange(600)


@pytest.mark.parametrize("role", ["hard", "far_from"])
@pytest.mark.parametrize("share", SHARES)
def test_every_class_gives_the_same_share(role: Role, share: float) -> None:
    cosines = RNG.normal(size=600) + LABELS  # classes lie elsewhere: one cut-off for all would take one class
    members = cut(cosines, LABELS, (0, 2), cutoffs_at(cosines, LABELS, (0, 2), role, share), role)
    assert not members[LABELS == 1].any()
    for label in (0, 2):
        own = members[label == LABELS]
        assert own.mean() == pytest.approx(share, abs=0.01)
        inside, outside = cosines[label == LABELS][own], cosines[label == LABELS][~own]
        assert inside.min() >= outside.max() if role == "hard" else inside.max() <= outside.min()


@pytest.mark.parametrize("role", ["hard", "far_from"])
def test_the_share_that_fails_is_found(role: Role) -> None:
    cosines = RNG.normal(size=600)
    order = np.argsort(-cosines if role == "hard" else cosines)
    failed = RNG.random(600) < 0.05
    failed[order[:180]] |= RNG.random(180) < 0.7  # three tenths of all
    cutoffs, members, (in_set, rest) = choose_cutoffs(cosines, np.zeros(600, int), failed, UNITS, (0,), role, 0.05)
    assert len(cutoffs) == 1 and members.mean() == pytest.approx(0.3, abs=0.051)
    assert in_set.rate - rest.rate > 0.5
    assert (in_set.rows, in_set.failures) == (members.sum(), failed[members].sum())


def test_rows_of_other_classes_are_in_no_set() -> None:
    assert not cut(np.ones(3), np.array([5, 6, 7]), (1,), (0.0,), "hard").any()
    assert cut(np.ones(3), np.array([5, 1, 7]), (1,), (0.0,), "hard").tolist() == [False, True, False]
