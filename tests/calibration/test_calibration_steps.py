"""The slider's counts are those of a build at each of its thresholds."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from counterfoil.calibration.scores import shortest
from counterfoil.calibration.steps import MOST_STEPS, ranks_at, steps_of

scores = arrays.arrays(np.float32, st.integers(1, 80), elements=st.floats(-1, 1, width=32))


@given(scores, st.randoms(use_true_random=False))
@example(np.array([0.69140625, -0.79296875], np.float32), Random(0))  # 297 steps and their rounding
def test_every_step_counts_as_a_build_compares(values: np.ndarray, random) -> None:
    passes = np.array([random.random() < 0.7 for _ in values])
    kept = np.array([random.random() < 0.5 for _ in values])
    steps = steps_of(values, passes, kept)
    assert 2 <= len(steps.thresholds) <= MOST_STEPS
    assert list(steps.thresholds) == sorted(set(steps.thresholds))
    for at, threshold in enumerate(steps.thresholds):
        above = values >= np.float32(threshold)
        assert steps.at_or_above[at] == above.sum()
        assert steps.accepted[at] == (above & passes).sum()
        assert steps.missing[at] == (above & passes & ~kept).sum()
    assert (steps.at_or_above[0], steps.at_or_above[-1]) == (values.size, 0)


@given(st.integers(1, 500), st.lists(st.floats(-20, 120), max_size=40))
def test_ranks_are_places_in_the_order_asked_for(n: int, percentiles: list[float]) -> None:
    ranks = ranks_at(n, percentiles)
    assert len(ranks) == len(set(ranks)) <= len(percentiles)
    assert all(0 <= rank < n for rank in ranks)
    assert ranks_at(n, [0, 100]) == ([0, n - 1] if n > 1 else [0])
    assert ranks_at(0, percentiles) == []


@given(st.floats(-1, 1, width=32))
def test_the_shortest_number_is_the_same_threshold(value: float) -> None:
    assert np.float32(shortest(value)) == np.float32(value)
    assert shortest(float(np.float32(0.163))) == 0.163
