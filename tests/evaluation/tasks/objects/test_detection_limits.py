"""What lowers a detector's numbers is told: answers cut at a score, and more objects than COCO
counts detections."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from counterfoil.detection_stats import Detections, Matches, Objects, match_detections
from counterfoil.evaluation.tasks.objects.notes import crowded_sentence, cut_sentence

GRID = [[4.0 * column, 3.0 * row, 3.0, 2.0] for row in range(20) for column in range(10)]


def group(objects: int, scores: Sequence[float]) -> tuple[Detections, Matches]:
    """Return exact detections of the first objects of one image, with these scores."""
    truth = Objects.of([0] * objects, GRID[:objects], [0] * objects)
    detections = Detections.of([0] * len(scores), GRID[: len(scores)], [0] * len(scores), scores)
    return detections, match_detections(truth, detections, 1, 1)


CUT = {
    "cut at .25": ([(20, np.linspace(0.25, 1, 12))], "the lowest score is 0.25: .* lower bounds"),
    "cut at .05": ([(20, np.linspace(0.05, 1, 12))], "the lowest score is 0.05"),
    "in percent": ([(20, np.linspace(25, 100, 12))], "the lowest score is 25.00"),
    "on one group": (
        [(20, np.linspace(0.001, 1, 12)), (20, np.linspace(0.3, 1, 12))],
        "the lowest score on night fog is 0.30: .*recall there",
    ),
    "everything is found": ([(12, np.linspace(0.25, 1, 12))], ""),
    "everything that COCO counts is found": ([(120, np.linspace(0.25, 1, 100))], ""),
    "low scores": ([(20, np.linspace(0.001, 1, 12))], ""),
    "few detections": ([(20, np.linspace(0.25, 1, 5))], ""),
    "logits": ([(20, np.linspace(-4, 3, 12))], ""),
    "nothing": ([(20, [])], ""),
}


@pytest.mark.parametrize("case", CUT)
def test_answers_that_are_cut_at_a_score_are_told_where_objects_are_missed(case: str) -> None:
    given, words = CUT[case]
    groups = [group(objects, list(scores)) for objects, scores in given]
    sentence = cut_sentence(["base", "night_fog"][: len(groups)], groups)
    assert re.search(words, sentence) if words else not sentence


def test_more_objects_than_coco_counts_are_told_with_the_recall_that_is_left() -> None:
    image = [0] * 150 + [1] * 50 + [1] * 20
    category = [0] * 200 + [1] * 20
    boxes = [GRID[index % len(GRID)] for index in range(len(image))]
    sentence = crowded_sentence(Objects.of(image, boxes, category), 2, ["bolt", "nut"])
    assert sentence.startswith("1 image has more than 100 objects of a category, at most 150.")
    assert "recall is at most 75.0 % (bolt), and AP" in sentence
    crowd = [True] * 150 + [False] * 70
    assert (
        crowded_sentence(Objects.of(image, boxes, category, crowd=crowd), 2, ["bolt", "nut"]) == ""
    )
    assert (
        crowded_sentence(Objects.of(image[50:], boxes[50:], category[50:]), 2, ["bolt", "nut"])
        == ""
    )
