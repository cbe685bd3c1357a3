"""Kinds of errors, confusions and curves of a detector equal plain loops, and pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from counterfoil.detection_stats import (
    Detections,
    Matches,
    Objects,
    average_precision,
    best_f1_score,
    match_detections,
)
from counterfoil.evaluation.tasks.objects.curves import curve_points, precision_curve
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS, error_kinds

IMAGES = 20
CATEGORIES = 3
Box = tuple[float, float, float, float]


def overlap(first: Sequence[float], other: Sequence[float]) -> float:
    across = min(first[0] + first[2], other[0] + other[2]) - max(first[0], other[0])
    down = min(first[1] + first[3], other[1] + other[3]) - max(first[1], other[1])
    shared = across * down if across > 0 and down > 0 else 0.0
    return shared / (first[2] * first[3] + other[2] * other[3] - shared)


TRUE: Box = (10, 10, 40, 40)
# What a detector finds where one object of category 0 is: (box, category, score), and the errors
# that it makes.
CONSTRUCTED: dict[str, tuple[list[tuple[Box, int, float]], dict[str, int]]] = {
    "found": ([(TRUE, 0, 0.9)], {}),
    "nothing": ([], {"missed": 1}),
    "below the score": ([(TRUE, 0, 0.2)], {"missed": 1}),
    "class": ([(TRUE, 1, 0.9)], {"class": 1}),
    "place": ([((10, 10, 40, 12), 0, 0.9)], {"place": 1}),
    "both": ([((10, 10, 40, 12), 1, 0.9)], {"both": 1, "missed": 1}),
    "double": ([(TRUE, 0, 0.9), ((12, 10, 40, 40), 0, 0.8)], {"double": 1}),
    "background": ([(TRUE, 0, 0.9), ((80, 80, 20, 20), 0, 0.8)], {"background": 1}),
    "background at .1": ([((10, 10, 40, 4), 1, 0.9)], {"background": 1, "missed": 1}),
    "class beside a found one": ([(TRUE, 0, 0.9), (TRUE, 1, 0.8)], {"class": 1}),
    "all": (
        [
            (TRUE, 0, 0.9),
            (TRUE, 0, 0.8),
            (TRUE, 2, 0.7),
            ((10, 10, 40, 12), 0, 0.6),
            ((99, 99, 5, 5), 1, 0.5),
        ],
        {"class": 1, "place": 1, "double": 1, "background": 1},
    ),
}


@pytest.mark.parametrize("case", CONSTRUCTED)
def test_a_constructed_image_has_the_errors_that_tide_names(case: str) -> None:
    answers, errors = CONSTRUCTED[case]
    objects = Objects.of([0], [TRUE], [0])
    boxes, categories, scores = ([entry[part] for entry in answers] for part in range(3))
    detections = Detections.of([0] * len(answers), boxes, categories, scores)
    matches = match_detections(objects, detections, 1, CATEGORIES)
    assert error_kinds(objects, detections, matches, 0.5).counts() == {
        **dict.fromkeys((*KINDS, "missed"), 0),
        **errors,
    }


def test_boxes_in_crowds_and_crowds_are_no_errors() -> None:
    objects = Objects.of([0, 0], [TRUE, (60, 60, 30, 30)], [0, 1], crowd=[True, False])
    detections = Detections.of([0, 0], [(12, 12, 10, 10), (60, 60, 30, 30)], [0, 1], [0.9, 0.8])
    matches = match_detections(objects, detections, 1, CATEGORIES)
    assert not any(error_kinds(objects, detections, matches, 0.5).counts().values())


def scene(seed: int) -> tuple[Objects, Detections, Matches]:
    """Make detections of drawn objects: moved, doubled, of another category, and of nothing."""
    rng = np.random.default_rng(seed)
    image = np.sort(rng.integers(0, IMAGES - 1, 60))
    box = np.concatenate(
        [rng.integers(0, 100, (60, 2)), rng.integers(10, 60, (60, 2))], axis=1
    ).astype(float)
    category = rng.integers(0, CATEGORIES, 60)
    objects = Objects.of(image, box, category, crowd=rng.random(60) < 0.1)
    of = rng.integers(0, 60, 90)
    boxes = np.concatenate([box[of] + rng.normal(0, 6, (90, 4)), box[rng.integers(0, 60, 20)]])
    boxes[:, 2:] = np.abs(boxes[:, 2:]) + 1
    labels = np.where(
        rng.random(110) < 0.3, rng.integers(0, CATEGORIES, 110), np.append(category[of], [0] * 20)
    )
    images = np.append(image[of], rng.integers(0, IMAGES, 20))
    detections = Detections.of(images, boxes, labels, rng.random(110))
    return objects, detections, match_detections(objects, detections, IMAGES, CATEGORIES)


def plain_errors(
    objects: Objects, detections: Detections, matches: Matches, score: float
) -> tuple[dict[str, int], dict[tuple[int, int], int]]:
    """Count errors and confusions by loops, in the order of TIDE's program."""
    counts = dict.fromkeys((*KINDS, "missed"), 0)
    confusions: dict[tuple[int, int], int] = {}
    used = set()
    usable = set()
    false = []
    for at in range(len(matches.score)):
        if matches.score[at] < score or matches.ignored[0, 0, at]:
            continue
        if matches.matched[0, 0, at]:
            used.add(int(matches.found[at]))
        else:
            false.append(at)
    for at in false:
        things = [
            row
            for row in range(60)
            if objects.image[row] == matches.image[at] and not objects.crowd[row]
        ]
        iou = {row: overlap(detections.box[matches.row[at]], objects.box[row]) for row in things}
        same = {
            row: value
            for row, value in iou.items()
            if objects.category[row] == matches.category[at]
        }
        other = {row: value for row, value in iou.items() if row not in same}
        if same and 0.1 <= max(same.values()) < 0.5:
            counts["place"] += 1
            usable.add(max(same, key=lambda row: same[row]))
        elif other and max(other.values()) >= 0.5:
            counts["class"] += 1
            row = max(other, key=lambda row: other[row])
            usable.add(row)
            pair = int(objects.category[row]), int(matches.category[at])
            confusions[pair] = confusions.get(pair, 0) + 1
        elif any(value >= 0.5 for row, value in same.items() if row in used):
            counts["double"] += 1
        elif not iou or max(iou.values()) <= 0.1:
            counts["background"] += 1
        else:
            counts["both"] += 1
    counting = {row for row in range(60) if not objects.crowd[row]}
    counts["missed"] = len(counting - used - usable)
    return counts, confusions


@pytest.mark.parametrize("seed", range(4))
def test_errors_and_confusions_equal_plain_loops(seed: int) -> None:
    objects, detections, matches = scene(seed)
    for score in (0.0, 0.3, best_f1_score(matches), 2.0):
        errors = error_kinds(objects, detections, matches, score)
        counts, confusions = plain_errors(objects, detections, matches, score)
        assert errors.counts() == counts
        table = errors.confusions(objects, matches)
        assert {
            (row, column): int(table[row, column]) for row, column in np.argwhere(table).tolist()
        } == confusions
    assert all(plain_errors(objects, detections, matches, 0.0)[0].values()), "every kind is there"


def coco_precision(objects: Objects, detections: Detections) -> np.ndarray:
    truth = COCO()
    annotations: list[dict[str, Any]] = [
        {
            "id": row + 1, "image_id": int(objects.image[row]) + 1, "category_id": int(objects.category[row]) + 1,
            "bbox": objects.box[row].tolist(), "area": float(objects.area[row]), "iscrowd": int(objects.crowd[row]),
        }
        for row in range(len(objects.image))
    ]  # fmt: skip
    dataset: Any = {
        "info": {}, "images": [{"id": number + 1} for number in range(IMAGES)], "annotations": annotations,
        "categories": [{"id": number + 1} for number in range(CATEGORIES)],
    }  # fmt: skip
    truth.dataset = dataset
    results = [
        {
            "image_id": int(detections.image[row]) + 1, "category_id": int(detections.category[row]) + 1,
            "bbox": detections.box[row].tolist(), "score": float(detections.score[row]),
        }
        for row in range(len(detections.image))
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
    return judge.eval["precision"][0, :, :, 0, -1]


@pytest.mark.parametrize("seed", range(3))
def test_precision_at_each_recall_is_that_of_pycocotools(seed: int) -> None:
    objects, detections, matches = scene(seed)
    expected = coco_precision(objects, detections).mean(axis=1)
    np.testing.assert_allclose(precision_curve(matches), expected, rtol=0, atol=1e-15)
    assert precision_curve(matches).mean() == pytest.approx(
        float(average_precision(matches).measure("AP50"))
    )
    points = curve_points(matches)
    assert [recall for recall, _ in points] == [f"{index / 20:.2f}" for index in range(21)]
    np.testing.assert_allclose(
        [precision for _, precision in points], expected[::5], rtol=0, atol=1e-15
    )


def test_categories_without_an_object_are_in_no_curve() -> None:
    objects = Objects.of([0], [TRUE], [1])
    detections = Detections.of([0, 0], [TRUE, TRUE], [1, 2], [0.9, 0.8])
    assert precision_curve(match_detections(objects, detections, 1, 3)).tolist() == pytest.approx(
        [1.0] * 101
    )
    assert np.isnan(
        precision_curve(match_detections(Objects.of([], [], []), detections, 1, 3))
    ).all()
