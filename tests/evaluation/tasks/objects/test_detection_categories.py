"""Which category a detector means: by name, or by numbers that show what they count."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.errors import UserError
from counterfoil.evaluation.tasks.objects.categories import (
    COCO_IDS,
    COCO_NAMES,
    category_ids,
    map_categories,
    map_names,
)
from support.refusals import refuses


def test_coco_has_eighty_categories_with_ids_from_1_to_90() -> None:
    coco = {
        "person": 1,
        "stop sign": 13,
        "backpack": 27,
        "dining table": 67,
        "toilet": 70,
        "tv": 72,
        "toothbrush": 90,
    }
    ids = dict(zip(COCO_NAMES, COCO_IDS, strict=True))
    assert len(ids) == 80 and {name: ids[name] for name in coco} == coco
    assert category_ids(("bus", "Person")) == (6, 1) and category_ids(("bus", "tram")) == (1, 2)


COCO_THREE = ("person", "car", "bus")


def counts(labels: list[Any]) -> dict[Any, int]:
    return {label: 2 + index for index, label in enumerate(labels)}


@pytest.mark.parametrize(
    ("labels", "categories", "order", "indices"),
    [
        (["Bus", "car", "tree"], ("car", "bus"), None, {"Bus": 1, "car": 0}),
        ([0, 2, 5], ("car", "bus"), None, {2: 0, 5: 1}),
        ([3, 6, 90], ("car", "bus"), None, {3: 0, 6: 1}),
        ([3, 6], ("car", "bus"), None, {3: 0, 6: 1}),  # COCO's 3 and 6 from 0 are of neither
        ([2, 5], ("car", "bus"), "coco80", {2: 0, 5: 1}),
        ([0, 1], ("cup", "hook"), None, {0: 0, 1: 1}),
        ([1, 2], ("cup", "hook"), None, {1: 0, 2: 1}),
        (["1", "2"], ("cup", "hook"), None, {"1": 0, "2": 1}),  # as tables write numbers
        ([1.0, 2.0], ("cup", "hook"), None, {1: 0, 2: 1}),
        ([1], ("cup", "hook"), "position", {1: 1}),
        ([1], ("cup", "hook"), "from1", {1: 0}),
        ([0, 1, 7], ("cup", "hook"), "position", {0: 0, 1: 1}),
        ([0, 1], ("cup", "hook"), ["hook", "cup"], {1: 0, 0: 1}),
        ([0, 1, 2, 3], ("cup", "hook"), ["cup", "hook", "Cup", "peg"], {0: 0, 1: 1, 2: 0}),
        # Meanings that place every number alike are one.
        ([*range(80)], COCO_NAMES, None, {number: number for number in range(80)}),
        ([*COCO_IDS], COCO_NAMES, None, {number: index for index, number in enumerate(COCO_IDS)}),
        ([0, 1, 2], COCO_THREE, "position", {0: 0, 1: 1, 2: 2}),
        ([0, 1, 2], COCO_THREE, "coco80", {0: 0, 2: 1}),
        ([1, 3, 6], COCO_THREE, None, {1: 0, 3: 1, 6: 2}),
        ([0, 2, 5], COCO_THREE, None, {0: 0, 2: 1, 5: 2}),
        # Categories whose names are numbers.
        (["1", "2"], ("2", "1"), None, {"1": 1, "2": 0}),
        ([0, 1, 2], ("0", "1", "2"), None, {0: 0, 1: 1, 2: 2}),
    ],
)
def test_categories_are_matched(
    labels: list[Any], categories: tuple[str, ...], order: Any, indices: dict[Any, int]
) -> None:
    assert map_categories(counts(labels), categories, "model", order).index_of == indices


@pytest.mark.parametrize(
    ("labels", "categories", "order", "problem"),
    [
        (["buss", "car"], ("car", "bus"), None, "there is no category 'buss', did you mean 'bus'"),
        (["tree"], ("car", "bus"), None, "none of its categories is one of the dataset's: tree"),
        ([1], ("cup", "hook", "peg"), None, "the numbers 1, which have several meanings"),
        (
            [0, 5],
            ("cup", "hook"),
            None,
            "the numbers 0 and 5, which have no meaning that explains all",
        ),
        ([0, 1, 99], ("cup", "hook"), None, "no meaning that explains all"),
        ([0, 85], ("car", "bus"), None, "no meaning that explains all"),
        ([0, 1, 2], COCO_THREE, None, "have several meanings"),
        ([1, 2, 3], COCO_THREE, None, "have several meanings"),
        ([1, 2, 3], COCO_NAMES, None, "have several meanings"),
        ([*range(3)], ("2", "1", "0"), None, "have several meanings"),
        ([0], ("cup", "hook"), "coco80", "'hook' is no category of COCO"),
        ([0, "car"], ("car", "bus"), None, "some categories are numbers and some are names"),
        ([2], ("cup", "hook"), "position", "no detection is of the dataset's categories: 2 (2)"),
        ([0, 4, 7], ("car", "bus"), None, "no detection is of the dataset's categories"),
        ([1], ("cup", "hook"), "ids", "has no source.category_ids"),
    ],
)
def test_what_may_mean_anything_is_refused(
    labels: list[Any], categories: tuple[str, ...], order: Any, problem: str
) -> None:
    with refuses("unclear-category", "model", problem.partition(", did")[0]):
        map_categories(counts(labels), categories, "model", order)


def test_each_meaning_says_how_many_detections_it_keeps() -> None:
    with pytest.raises(UserError) as caught:
        map_categories({0: 10, 1: 20, 2: 30}, COCO_THREE, "model", None)
    assert caught.value.problems[0].partition("meanings: ")[2].split("; ") == [
        "position (numbers are 0 to 2, in the dataset's order) keeps 60 of 60 detections",
        "coco80 (numbers are COCO's, 0 to 79) keeps 40 of 60 detections [unclear-category]",
    ]
    assert "--class-order MODEL=ORDER" in (caught.value.hint or "")


def test_numbers_of_the_source_are_a_meaning() -> None:
    assert category_ids(("cup", "hook"), (3, 7)) == (3, 7)
    assert map_categories({3: 1, 7: 1}, ("cup", "hook"), "model", None, (3, 7)).index_of == {
        3: 0,
        7: 1,
    }
    with refuses("unclear-category", "model", "several meanings"):
        map_categories({2: 1, 3: 1}, ("cup", "hook", "peg"), "model", None, (2, 3, 4))
    assert map_categories(
        {2: 1, 3: 1}, ("cup", "hook", "peg"), "model", "ids", (2, 3, 4)
    ).index_of == {
        2: 0,
        3: 1,
    }


@pytest.mark.parametrize(
    ("detections", "categories", "order", "words"),
    [
        ({"car": 5, "tree": 7}, ("car", "bus"), None, ("7 of 12", "tree (7)")),
        ({0: 4, 2: 6, 5: 1}, ("car", "bus"), None, ("4 of 11", "0 (4)")),
        ({0: 4, 1: 6, 9: 2}, ("cup", "hook"), "position", ("2 of 12", "9 (2)")),
    ],
)
def test_detections_of_no_category_are_counted(
    detections: Any, categories: Any, order: Any, words: Any
) -> None:
    sentence = (
        f"{words[0]} detections left out, because the dataset lacks their categories: {words[1]}"
    )
    assert sentence in map_categories(detections, categories, "model", order).matched


def test_a_detector_that_lacks_a_category_is_refused() -> None:
    assert map_names(["background", "car", "bus"], ("bus", "car"), "model").index_of == {2: 0, 1: 1}
    with refuses("unclear-category", "model", "no label is called 'lorry'"):
        map_names(["car", "bus"], ("bus", "lorry"), "model")
