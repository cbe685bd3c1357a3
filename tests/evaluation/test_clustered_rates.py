"""Failure rates over images, with intervals that draw whole captions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from counterfoil.evaluation.clustered_rates import clustered_rates, matched_rates
from counterfoil.evaluation.statistics import wilson


def test_the_interval_is_that_of_drawing_captions() -> None:
    """Against a plain loop with another generator of random numbers."""
    dice = random.Random(5)
    images = [dice.randrange(1, 40) for _ in range(30)]
    failed = [round(count * dice.random()) for count in images]
    [found] = clustered_rates(np.array(failed)[:, None], np.array(images), seed=0, salt="", replicates=20_000)
    drawn = []
    for _ in range(20_000):
        chosen = [dice.randrange(30) for _ in range(30)]
        drawn.append(sum(failed[one] for one in chosen) / sum(images[one] for one in chosen))
    drawn.sort()
    assert found.value == sum(failed) / sum(images)
    assert (found.low, found.high) == (pytest.approx(drawn[500], abs=0.01), pytest.approx(drawn[19_499], abs=0.01))


def test_images_that_fail_together_tell_less_than_so_many_alone() -> None:
    images = np.full(12, 25)
    together = np.where(np.arange(12) < 6, 25, 0)[:, None]
    [clustered] = clustered_rates(together, images, seed=0, salt="")
    alone = wilson(150, 300)
    assert clustered.low is not None and clustered.high is not None and alone.low is not None and alone.high is not None
    assert clustered.high - clustered.low > 3 * (alone.high - alone.low)


def test_a_single_caption_has_the_interval_of_its_images() -> None:
    assert clustered_rates(np.array([[3, 0]]), np.array([10]), seed=0, salt="") == [wilson(3, 10), wilson(0, 10)]


def test_captions_that_all_agree_are_no_certainty() -> None:
    found = clustered_rates(np.array([[50, 0], [50, 0], [9, 0]]), np.array([50, 50, 9]), seed=0, salt="")
    assert found == [wilson(3, 3), wilson(0, 3)]


def test_no_model_changes_another_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.array([4, 9, 2, 7])
    failed = np.array([[1, 4], [0, 2], [2, 0], [5, 1]])
    both = clustered_rates(failed, images, seed=3, salt="a")
    assert [clustered_rates(failed[:, [place]], images, seed=3, salt="a")[0] for place in (0, 1)] == both
    assert clustered_rates(failed, images, seed=4, salt="a") != both
    monkeypatch.setattr("counterfoil.evaluation.clustered_rates._MOST_AT_ONCE", 12)
    assert clustered_rates(failed, images, seed=3, salt="a") == both


def test_no_caption_has_no_rate() -> None:
    with pytest.raises(ValueError, match="no caption"):
        clustered_rates(np.zeros((0, 1), np.int64), np.zeros(0, np.int64), seed=0, salt="")


def test_the_base_is_mixed_as_the_images_are() -> None:
    failed, images = np.array([[1, 10], [5, 0], [7, 7]]), np.array([10, 10, 0])
    found = matched_rates(failed, images, np.array([30, 10, 99]))
    assert found is not None and found.tolist() == pytest.approx([(30 * 0.1 + 10 * 0.5) / 40, 30 / 40])
    assert matched_rates(failed, images, np.array([0, 0, 5])) is None, "no image of that class"
