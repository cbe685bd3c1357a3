"""Measures of a ranking: against plain references, over ties, and with the match chosen on
validation alone."""

from __future__ import annotations

import numpy as np
import pytest

from directions_proof.slices import (
    FOUND,
    judged,
    match,
    precisions,
    quality,
    with_complements,
)


def plain_average_precision(scores: np.ndarray, members: np.ndarray) -> float:
    """Return the mean over members of the precision at their ranks, for scores without ties."""
    ranked = members[np.argsort(-scores)]
    places = np.flatnonzero(ranked)
    return float(np.mean([ranked[: index + 1].mean() for index in places]))


@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_their_definitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = rng.random(200) < 0.3
    scores = rng.standard_normal(200) + members
    ranked = members[np.argsort(-scores)]
    measures = quality(scores, members)
    assert measures.at_10 == pytest.approx(ranked[:10].mean())
    assert measures.at_25 == pytest.approx(ranked[:25].mean())
    assert measures.average_precision == pytest.approx(plain_average_precision(scores, members))
    along = [ranked[:k].mean() for k in range(1, members.sum() + 1)]
    assert measures.lift == pytest.approx(np.mean(along) / members.mean())
    assert measures.found == (ranked[:10].mean() > FOUND)


def test_a_perfect_ranking_has_the_greatest_lift_and_a_shuffled_one_the_lift_one() -> None:
    members = np.arange(1000) < 200
    perfect = quality(members.astype(float), members)
    assert (perfect.at_10, perfect.average_precision, perfect.lift, perfect.found) == (
        1.0,
        1.0,
        5.0,
        True,
    )
    constant = quality(np.zeros(1000), members)
    assert (constant.at_10, constant.lift, constant.found) == (
        pytest.approx(0.2),
        pytest.approx(1.0),
        False,
    )


def test_rows_of_equal_scores_count_as_the_mean_over_their_orders() -> None:
    rng = np.random.default_rng(0)
    members = rng.random(12) < 0.5
    scores = rng.integers(0, 3, 12).astype(float)
    orders = []
    for _ in range(4_000):
        shuffled = rng.permutation(12)
        ranked = members[shuffled][np.argsort(-scores[shuffled], kind="stable")]
        orders.append(np.cumsum(ranked) / np.arange(1, 13))
    np.testing.assert_allclose(precisions(scores, members), np.mean(orders, axis=0), atol=0.04)


def test_a_match_is_chosen_on_validation_alone() -> None:
    rng = np.random.default_rng(1)
    members = rng.random(300) < 0.3
    test_members = rng.random(200) < 0.3
    validation = np.stack(
        [rng.standard_normal(300), rng.standard_normal(300) + members, members * -2.0], axis=1
    )
    test = rng.standard_normal((200, 3))
    chosen, measures = judged(validation, members, test, test_members)
    assert chosen == 1 == match(validation, members)
    for other in (~test_members, rng.permutation(test_members), test[:, 0] > 0):
        again, measured = judged(validation, members, test, other)
        assert again == chosen
        assert measured == quality(test[:, chosen], other)
    # Test would choose another slice, so that a match that looks at test would show.
    best_on_test = test.copy()
    best_on_test[:, 2] = test_members
    assert judged(validation, members, best_on_test, test_members)[0] == 1
    third_fits = np.where(members[:, None], [0.0, 0.0, 1.0], 0.0)
    assert judged(third_fits, members, best_on_test, test_members)[1].average_precision == 1.0
    assert measures.average_precision < 1.0


def test_the_complement_of_a_slice_is_a_slice() -> None:
    rng = np.random.default_rng(2)
    members = rng.random(100) < 0.4
    inverse = -(members + 0.1 * rng.standard_normal(100))[:, None]
    both = with_complements(inverse)
    assert both.shape == (100, 2)
    assert match(both, members) == 1
    assert quality(both[:, 1], members).at_10 == 1.0


def test_a_slice_without_a_row_and_scores_that_are_no_numbers_are_refused() -> None:
    scores = np.arange(5.0)
    members = np.arange(5) > 2
    with pytest.raises(ValueError, match="no row is a member"):
        quality(scores, np.zeros(5, bool))
    with pytest.raises(ValueError, match="not a number"):
        quality(np.where(members, np.nan, scores), members)
    with pytest.raises(ValueError, match="a score for each"):
        quality(scores[1:], members)
