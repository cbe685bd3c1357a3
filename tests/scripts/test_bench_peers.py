"""The bench of other libraries: what it counts, what it says, and that both ways give one result."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from benches.peers import lines
from counterfoil.detection_stats import average_precision, match_detections
from peers_bench import detection
from peers_bench.pair import Agreement, Measured, Pair, measured, within


def row_of(ours: list[float], peers: list[float], *, same: bool = True) -> Measured:
    agreement = Agreement(same, "AP differs by 0.5 at most")
    return Measured(("AP", "peer", "a loop"), agreement, (ours, peers), (ours, peers))


def test_a_ratio_is_of_each_round_and_one_below_one_is_a_loss() -> None:
    faster = row_of([1.0, 2.0, 4.0], [3.0, 2.0, 8.0])
    assert faster.ratios == [1.0, 2.0, 3.0]
    assert not faster.slower
    slower = row_of([2.0, 2.0, 2.0], [1.0, 1.0, 4.0])
    assert slower.ratios == [0.5, 0.5, 2.0]
    assert slower.slower
    text = "\n".join(lines([faster, slower], ["elsewhere"], ["writing"]))
    assert "slower in the median round of 1 of 2 lines" in text
    assert "- 0.50: AP; peer, a loop" in text
    assert "0.50 to 2.00 (3)" in text
    assert "pip install elsewhere" in text
    assert "Not measured in this run: writing." in text


def test_an_unequal_result_is_named_beside_its_ratio() -> None:
    [row] = [line for line in lines([row_of([1.0], [2.0], same=False)], [], []) if "peer" in line]
    assert "**no**: AP differs by 0.5 at most" in row
    assert "2.00" in row


@pytest.mark.parametrize(("rounds", "run"), [(2, 2), (9, 3)])
def test_both_ways_run_once_to_compare_and_then_by_turns(rounds: int, run: int) -> None:
    calls: list[str] = []

    def way(name: str) -> float:
        calls.append(name)
        return sum(number**0.5 for number in range(1000))

    pair = Pair(
        "sums",
        "peer",
        "a loop",
        lambda: way("ours"),
        lambda: way("theirs"),
        within("sums", 1e-9),
        most_rounds=3,
    )
    result = measured(pair, rounds)
    assert calls == ["ours", "theirs"] * (1 + run)
    assert result.agreement.same
    assert len(result.processor[0]) == run


def test_numbers_that_differ_by_more_than_the_tolerance_are_not_the_same() -> None:
    assert within("APs", 0.1)([1.0, 2.0], [1.05, 2.0]).same
    assert not within("APs", 0.1)([1.0, 2.0], [1.0, 2.2]).same


def test_pycocotools_gives_our_resamples_both_as_sets_and_from_kept_matches() -> None:
    objects, detections = detection.made_set()
    rng = np.random.default_rng(3)
    drawn = [np.sort(rng.integers(detection.IMAGES, size=detection.IMAGES)) for _ in range(2)]
    weights = np.stack([np.bincount(row, minlength=detection.IMAGES) for row in drawn])
    matches = match_detections(objects, detections, detection.IMAGES, detection.CATEGORIES)
    ours = average_precision(matches, weights).measure("AP")
    true = detection.coco_rows(objects.image, objects.box, objects.category)
    boxes = detection.coco_rows(
        detections.image, detections.box, detections.category, detections.score
    )
    for scores in (detection.recomputed, detection.accumulated):
        with contextlib.redirect_stdout(io.StringIO()):
            peers = scores("pycocotools", true, boxes, drawn)
        assert peers == pytest.approx(ours, abs=detection.TOLERANCE)
