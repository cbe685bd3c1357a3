"""Failure points, curves and comparisons of trajectories, against other libraries, definitions and
simulations."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from statsmodels.duration.survfunc import SurvfuncRight

from counterfoil.stats import Estimate, bootstrap_weights, percentile_interval
from counterfoil.trajectory_stats import (
    failed_curve,
    failure_runs,
    failure_scores,
    failure_shares,
    model_ranks,
    recovered,
    rising_reaches,
    swap_test,
)

LEVELS = np.array([0.25, 0.5, 0.75, 1.0])
ALIKE = np.ones(4)


def one(text: str, *, lasting: bool = False) -> tuple[int, int]:
    """Return the run of a trajectory, + right, - wrong, . lost."""
    present = np.array([[letter != "." for letter in text]])
    right = np.array([[[letter == "+"] for letter in text]])
    first, last = failure_runs(present, right, lasting=lasting)
    return int(first[0, 0]), int(last[0, 0])


@pytest.mark.parametrize(
    ("text", "run", "lasting"),
    [
        ("++++", (4, 4), (4, 4)),
        ("----", (0, 0), (0, 0)),
        ("++--", (2, 2), (2, 2)),
        ("+-+-", (1, 1), (3, 3)),
        ("+-++", (1, 1), (4, 4)),
        (".-..", (0, 1), (0, 1)),
        ("+..-", (1, 3), (1, 3)),
        ("+.+.", (3, 4), (3, 4)),
        ("....", (0, 4), (0, 4)),
        (".-+.", (0, 1), (3, 4)),
    ],
)
def test_a_failure_lies_after_the_last_right_answer_and_by_the_first_wrong_one(
    text: str, run: tuple[int, int], lasting: tuple[int, int]
) -> None:
    assert one(text) == run and one(text, lasting=True) == lasting


def test_a_recovery_is_a_right_answer_after_a_wrong_one() -> None:
    texts = ["+-+-", "--.+", "++--", "----", ".-.."]
    present = np.array([[letter != "." for letter in text] for text in texts])
    right = np.array([[[letter == "+"] for letter in text] for text in texts])
    assert recovered(present, right)[:, 0].tolist() == [True, True, False, False, False]


def test_first_failures_of_complete_trajectories_are_those_of_cns_bench() -> None:
    """Compare with the definition: the first wrong row of a class and seed, by scale, or else
    `max_shift`."""
    rng = np.random.default_rng(0)
    right = rng.random((200, 5)) < np.linspace(0.95, 0.4, 5)
    rows = pd.DataFrame(
        {
            "gt_class": np.repeat(np.arange(200) // 20, 5),
            "seed": np.repeat(np.arange(200) % 20, 5),
            "scale": np.tile([0.0, *LEVELS], 200),
            "right": right.ravel(),
        }
    )
    wrong = rows[~rows["right"]].groupby(["gt_class", "seed"])["scale"].first()
    everyone = pd.MultiIndex.from_frame(rows[["gt_class", "seed"]].drop_duplicates())
    expected = wrong.reindex(everyone, fill_value=1.5).to_numpy()
    first, last = failure_runs(np.ones((200, 4), bool), right[:, 1:, None])
    ours = np.where(right[:, 0], np.append(LEVELS, 1.5)[last[:, 0]], 0.0)
    assert (first == last).all() and ours.tolist() == expected.tolist()


def test_with_censoring_on_the_right_alone_the_curve_is_kaplan_and_meiers() -> None:
    rng = np.random.default_rng(1)
    # a cell; how many levels there are
    fails = rng.integers(0, 5, 300)
    seen = rng.integers(1, 5, 300)
    failed = fails < seen
    last = np.where(failed, fails, 4)
    curve = failed_curve(np.where(failed, fails, seen), last, 4, rng)
    # A trajectory last seen right at a level is at risk there.
    reference = SurvfuncRight(np.where(failed, fails + 1, seen), failed.astype(int))
    assert reference.surv_times.tolist() == [1, 2, 3, 4]
    assert [1 - share.value for share in curve] == pytest.approx(
        np.asarray(reference.surv_prob).tolist(), abs=1e-5
    )


def drawn(
    rng: np.random.Generator, n: int, lost: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw n trajectories that fail at an even level up to 1.25, a share `lost` of whose levels is
    missing."""
    fails = rng.random(n) * 1.25
    first, last = failure_runs(rng.random((n, 4)) >= lost, (fails[:, None] > LEVELS)[:, :, None])
    return first[:, 0], last[:, 0]


def test_shares_are_the_likeliest_and_near_the_truth_where_levels_are_lost() -> None:
    rng = np.random.default_rng(2)
    first, last = drawn(rng, 4000, 0.4)
    runs, counts = np.unique(np.stack([first, last], axis=1), axis=0, return_counts=True)
    shares = failure_shares(counts.astype(float), runs, 5)
    assert shares.sum() == pytest.approx(1) and shares.cumsum()[:4] == pytest.approx(
        LEVELS / 1.25, abs=0.03
    )
    inside = (runs[:, :1] <= np.arange(5)) & (np.arange(5) <= runs[:, 1:])
    # Of the likeliest shares, no cell would gain by more (Gentleman and Geyer 1994).
    gradient = (counts / (inside @ shares)) @ inside / counts.sum()
    assert gradient.max() <= 1 + 1e-4 and gradient[shares > 1e-6] == pytest.approx(1, abs=1e-4)


@pytest.mark.release(of="statistics")
@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_intervals_of_shares_and_of_the_median_cover(lost: float) -> None:
    rng = np.random.default_rng(3)
    runs = 200
    shares = 0
    medians = 0
    for _ in range(runs):
        curve = failed_curve(*drawn(rng, 60, lost), 4, rng)
        shares += sum(
            (c.low or 0) <= truth <= (c.high or 0)
            for c, truth in zip(curve, LEVELS / 1.25, strict=True)
        )
        median = rising_reaches(curve, LEVELS, ALIKE, 0.5)
        medians += median.low <= 0.625 <= median.high
    assert 0.925 <= shares / (4 * runs) <= 0.985
    assert medians / runs >= 0.92


@pytest.mark.release(of="statistics")
def test_intervals_of_the_ten_point_level_cover() -> None:
    rng = np.random.default_rng(4)
    accuracy = np.array([0.9, 0.88, 0.82, 0.74, 0.6])  # ten points are lost at .5625
    runs = 200
    covered = 0
    reached = 0
    for _ in range(runs):
        right = rng.random((120, 1)) < accuracy  # one scene is easy or hard at all levels
        drops = right[:, :1].astype(float) - right[:, 1:]
        draws = bootstrap_weights(120, 400, rng) @ drops / 120
        curve = [percentile_interval(float(drops[:, k].mean()), draws[:, k]) for k in range(4)]
        reach = rising_reaches(curve, LEVELS, ALIKE, 0.1)
        covered += reach.low <= 0.5625 <= reach.high
        reached += math.isfinite(reach.value)
        assert reach.low <= reach.value <= reach.high
    assert covered / runs >= 0.92 and reached / runs > 0.9


def test_a_level_is_read_between_levels_and_from_the_base_or_not_reached() -> None:
    def level(*drops: float) -> float:
        return rising_reaches(
            [Estimate(drop, drop - 0.05, drop + 0.05) for drop in drops], LEVELS, ALIKE, 0.1
        ).value

    assert level(0.2, 0.3, 0.4, 0.5) == pytest.approx(0.125)
    assert level(-0.1, 0.05, 0.15, 0.4) == pytest.approx(0.625)
    assert level(0.0, 0.14, 0.06, 0.3) == pytest.approx(0.5)  # the two in the middle are one: .1
    assert level(0.0, 0.01, 0.02, 0.09) == math.inf
    assert level(0.0, 0.05, 0.08, 0.9 - 0.8) == pytest.approx(1), (
        "ten points exactly, but for a float's rounding"
    )
    open_end = rising_reaches([Estimate(0.0)] * 4, LEVELS, ALIKE, 0.1)
    assert open_end.high == math.inf and open_end.low == pytest.approx(0.025)


@pytest.mark.release(of="statistics")
def test_models_that_are_alike_are_told_apart_as_often_as_the_level_says() -> None:
    rng = np.random.default_rng(5)
    runs = 300
    different = 0
    seen = 0
    for _ in range(runs):
        easy = rng.random((50, 1)) * 1.5
        fails = np.clip(easy + rng.normal(0, 0.2, (50, 3)), 0, None)
        fails[:, 2] -= 0.25
        present = rng.random((50, 4)) > 0.2
        first, last = failure_runs(present, fails[:, None, :] > LEVELS[:, None])
        scores = failure_scores(first, last, fails > 0, LEVELS)
        pairs = np.nan_to_num(scores[:, [0, 0]] - scores[:, [1, 2]])
        alike, worse = swap_test(pairs, rng, 400)
        different += alike <= 0.05
        seen += worse <= 0.05
    assert different / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert seen / runs > 0.8
    assert swap_test(np.zeros((10, 1)), rng, 100) == [1.0]


def test_a_rank_is_as_sure_as_the_differences_behind_it() -> None:
    values = np.array([0.9, 0.5, 0.52])
    differences = values[:, None] - values
    assert model_ranks(differences - 0.1, differences + 0.1, values).tolist() == [
        [1, 1, 1],
        [3, 2, 3],
        [2, 2, 3],
    ]
