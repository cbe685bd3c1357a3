"""Contexts are counted and chosen as section 4.2 of Chegini and Feizi says, whatever the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.mining.contexts.choosing import (
    ContextCount,
    choose_contexts,
    count_contexts,
    images_a_context,
    nearest_context,
)


def test_an_image_is_in_the_context_of_the_largest_cosine_of_equal_ones_the_first() -> None:
    captions = np.eye(3, dtype=np.float32)
    features = np.asarray([[0.1, 0.9, 0.2], [0.8, 0.1, 0.3], [0.5, 0.5, 0.1], [0, 0, 1]], dtype=np.float32)
    assert nearest_context(features, captions).tolist() == [1, 0, 0, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=60))
def test_counts_add_up_to_the_failures_and_the_right_answers(rows: list[tuple[int, bool]]) -> None:
    assigned = np.asarray([place for place, _ in rows], dtype=np.int64)
    failed = np.asarray([wrong for _, wrong in rows])
    counts = count_contexts(assigned, failed, 5)
    assert sum(one.failures for one in counts) == failed.sum() == counts[0].of_failures
    assert sum(one.right for one in counts) == (~failed).sum() == counts[0].of_right
    assert count_contexts(assigned[::-1], failed[::-1], 5) == counts


def test_the_most_frequent_is_first_by_count_and_the_most_telling_by_lift() -> None:
    # The first holds most failures because it holds most images; the second holds failures alone.
    counts = [ContextCount(0, 20, 30, 60, 70), ContextCount(1, 10, 30, 1, 70), ContextCount(2, 0, 30, 9, 70)]
    assert choose_contexts(counts, 3, "count", 2) == [0, 1]
    assert choose_contexts(counts, 3, "lift", 2) == [1, 0]
    assert counts[1].lift == pytest.approx((10 / 30) / (1 / 70))


def test_few_failures_make_no_context_and_no_more_than_k_are_chosen() -> None:
    counts = [ContextCount(place, failures, 20, 5, 40) for place, failures in enumerate((1, 4, 2, 6))]
    assert choose_contexts(counts, 5, "count", 2) == [3, 1, 2]
    assert choose_contexts(counts, 1, "count", 2) == [3]
    assert choose_contexts(counts, 5, "count", 7) == []
    assert choose_contexts([ContextCount(0, 0, 0, 5, 5)], 5, "lift", 1) == []


def test_one_failure_without_a_right_answer_is_not_more_telling_than_many_failures() -> None:
    alone, many = ContextCount(0, 1, 31, 0, 200), ContextCount(1, 30, 31, 10, 200)
    assert alone.lift is None  # no ratio: nothing to divide by
    assert choose_contexts([alone, many], 2, "lift", 1) == [1, 0]


def test_so_many_images_a_failure_up_to_a_limit() -> None:
    assert [images_a_context(failures, 5, 20) for failures in (1, 3, 4, 90)] == [5, 15, 20, 20]
