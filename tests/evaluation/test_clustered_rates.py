"""Failure rates over images, with intervals of whole captions."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.evaluation.clustered_rates import clustered_rates, matched_rates
from counterfoil.evaluation.statistics import wilson
from counterfoil.stats import clustered_interval


def test_the_interval_is_that_of_rows_that_share_units() -> None:
    failed, images = np.array([3, 0, 9, 1, 4]), np.array([10, 4, 10, 7, 5])
    [found] = clustered_rates(failed[:, None], images)
    assert found.value == 17 / 36 and (found.low, found.high) == clustered_interval(failed, images)


def test_images_that_fail_together_tell_less_than_so_many_alone() -> None:
    images = np.full(12, 25)
    together = np.where(np.arange(12) < 6, 25, 0)[:, None]
    [clustered] = clustered_rates(together, images)
    alone = wilson(150, 300)
    assert clustered.low is not None and clustered.high is not None and alone.low is not None and alone.high is not None
    assert clustered.high - clustered.low > 3 * (alone.high - alone.low)


def test_a_single_caption_has_the_interval_of_its_images() -> None:
    assert clustered_rates(np.array([[3, 0]]), np.array([10])) == [wilson(3, 10), wilson(0, 10)]


def test_captions_that_all_agree_are_no_certainty() -> None:
    found = clustered_rates(np.array([[50, 0], [50, 0], [9, 0]]), np.array([50, 50, 9]))
    bound = 0.025 ** (1 / 3)
    assert [(one.low, one.high) for one in found] == [pytest.approx((bound, 1.0)), pytest.approx((0.0, 1 - bound))]


def test_no_model_changes_another() -> None:
    images = np.array([4, 9, 2, 7])
    failed = np.array([[1, 4], [0, 2], [2, 0], [5, 1]])
    both = clustered_rates(failed, images)
    assert [clustered_rates(failed[:, [place]], images)[0] for place in (0, 1)] == both


def test_no_caption_has_no_rate() -> None:
    with pytest.raises(ValueError, match="no caption"):
        clustered_rates(np.zeros((0, 1), np.int64), np.zeros(0, np.int64))


def test_the_base_is_mixed_as_the_images_are() -> None:
    failed, images = np.array([[1, 10], [5, 0], [7, 7]]), np.array([10, 10, 0])
    found = matched_rates(failed, images, np.array([30, 10, 99]))
    assert found is not None and found.tolist() == pytest.approx([(30 * 0.1 + 10 * 0.5) / 40, 30 / 40])
    assert matched_rates(failed, images, np.array([0, 0, 5])) is None, "no image of that class"
