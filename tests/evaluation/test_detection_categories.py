"""Which category a detector means: by name, or by numbers that show what they count."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.errors import UserError
from counterfoil.evaluation.detection.categories import (
    COCO_IDS,
    COCO_NAMES,
    category_ids,
    map_found,
    map_names,
)


def test_coco_has_eighty_categories_with_ids_from_1_to_90() -> None:
    coco = {"person": 1, "stop sign": 13, "backpack": 27, "dining table": 67, "toilet": 70, "tv": 72, "toothbrush": 90}
    ids = dict(zip(COCO_NAMES, COCO_IDS, strict=True))
    assert len(ids) == 80 and {name: ids[name] for name in coco} == coco
    assert category_ids(("bus", "Person")) == (6, 1) and category_ids(("bus", "tram")) == (1, 2)


@pytest.mark.parametrize(
    ("labels", "categories", "order", "indices"),
    [
        (["Bus", "car", "tree"], ("car", "bus"), None, {"Bus": 1, "car": 0}),
        ([0, 2, 5], ("car", "bus"), None, {2: 0, 5: 1}),
        ([3, 6, 90], ("car", "bus"), None, {3: 0, 6: 1}),
        ([3, 6], ("car", "bus"), None, {3: 0, 6: 1}),
        ([2, 5], ("car", "bus"), "coco80", {2: 0, 5: 1}),
        ([0, 1], ("cup", "hook"), None, {0: 0, 1: 1}),
        ([1, 2], ("cup", "hook"), None, {1: 0, 2: 1}),
        ([1], ("cup", "hook"), "position", {0: 0, 1: 1}),
        ([0, 1], ("cup", "hook"), ["hook", "cup"], {1: 0, 0: 1}),
        ([0, 1], ("cup", "hook"), ["cup", "hook", "Cup", "peg"], {0: 0, 1: 1, 2: 0}),
    ],
)
def test_categories_are_matched(
    labels: list[Any], categories: tuple[str, ...], order: Any, indices: dict[Any, int]
) -> None:
    assert map_found(labels, categories, "model", order).place == indices


@pytest.mark.parametrize(
    ("labels", "categories", "order", "problem"),
    [
        (["buss", "car"], ("car", "bus"), None, "there is no category 'buss', did you mean 'bus'"),
        (["tree"], ("car", "bus"), None, "none of its categories is one of the dataset's: tree"),
        ([1], ("cup", "hook", "peg"), None, "may count from 0 or from 1"),
        ([0, 5], ("cup", "hook"), None, "are not those of 2 categories"),
        ([0, 85], ("car", "bus"), None, "numbered neither from 0 to 79 nor by COCO's ids"),
        ([0], ("cup", "hook"), "coco80", "'hook' is no category of COCO"),
        ([0, "car"], ("car", "bus"), None, "some categories are numbers and some are names"),
        ([2], ("cup", "hook"), "position", "there is no category 2"),
    ],
)
def test_what_may_mean_anything_is_refused(
    labels: list[Any], categories: tuple[str, ...], order: Any, problem: str
) -> None:
    with pytest.raises(UserError) as caught:
        map_found(labels, categories, "model", order)
    assert problem.partition(", did")[0] in caught.value.problems[0]


def test_a_detector_that_lacks_a_category_is_refused() -> None:
    assert map_names(["background", "car", "bus"], ("bus", "car"), "model").place == {2: 0, 1: 1}
    with pytest.raises(UserError, match="model: no label is called 'lorry'"):
        map_names(["car", "bus"], ("bus", "lorry"), "model")
