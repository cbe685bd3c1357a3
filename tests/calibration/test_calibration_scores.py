"""The slider's counts are those of a build at each of its thresholds."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from counterfoil.calibration.calibrate_dataset import spread
from counterfoil.calibration.scores import MOST_STEPS, shortest, steps_of

scores = arrays.arrays(np.float32, st.integers(1, 80), elements=st.floats(-1, 1, width=32))


@given(scores, st.randoms(use_true_random=False))
@example(np.array([0.69140625, -0.79296875], np.float32), Random(0))  # 297 steps and their rounding
def test_every_step_counts_as_a_build_compares(values: np.ndarray, random) -> None:
    passes = np.array([random.random() < 0.7 for _ in values])
    kept = np.array([random.random() < 0.5 for _ in values])
    steps = steps_of(values, passes, kept)
    assert 2 <= len(steps["thresholds"]) <= MOST_STEPS
    assert list(steps["thresholds"]) == sorted(set(steps["thresholds"]))
    for at, threshold in enumerate(steps["thresholds"]):
        above = values >= np.float32(threshold)
        assert steps["atOrAbove"][at] == above.sum()
        assert steps["accepted"][at] == (above & passes).sum()
        assert steps["missing"][at] == (above & passes & ~kept).sum()
    assert (steps["atOrAbove"][0], steps["atOrAbove"][-1]) == (values.size, 0)


@given(scores, st.randoms(use_true_random=False), st.one_of(st.none(), st.floats(-1, 1)), st.integers(8, 60))
def test_pictures_lie_on_both_sides_of_any_line(values: np.ndarray, random, line: float | None, most: int) -> None:
    """However the slider is moved, among the images that are there the nearest shown one is never far."""
    values = np.sort(values)
    there = np.array([random.random() < 0.7 for _ in values])
    places = spread(values, there, line, most)
    kept = np.flatnonzero(there).tolist()
    assert places == sorted(set(places)) and set(places) <= set(kept)
    assert len(places) <= most
    if kept:
        assert (places[0], places[-1]) == (kept[0], kept[-1])
        gaps = np.diff([kept.index(place) for place in places])
        assert max(gaps, default=0) <= 1 + 3 * len(kept) / (most - 3), "none is far from the next"


@given(st.floats(-1, 1, width=32))
def test_the_shortest_number_is_the_same_threshold(value: float) -> None:
    assert np.float32(shortest(value)) == np.float32(value)
    assert shortest(float(np.float32(0.163))) == 0.163
