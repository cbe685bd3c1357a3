"""Thresholds become numbers: given, or a percentile of scores; without the models, on scores alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.screen import Thresholds, percentile_of, resolve_thresholds
from counterfoil.screen.thresholds import caption_texts, needs_validation

scores = arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32))


@given(scores, st.floats(0, 100), st.floats(0, 100))
def test_a_percentile_grows_and_stays_among_the_scores(values: np.ndarray, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert values.min() <= percentile_of(values, low) <= percentile_of(values, high) <= values.max()
    assert percentile_of(values, 0) == values.min()
    assert percentile_of(values, 100) == values.max()
    assert percentile_of(values, one) == percentile_of(np.sort(values)[::-1], one)


def test_thresholds_by_value_need_no_images() -> None:
    recipe = load_recipe("wardrobe-mini", ["screen.object_threshold=0.25", "screen.shift_threshold=0.2"])
    assert not needs_validation(recipe)
    assert needs_validation(load_recipe("wardrobe-mini"))
    assert needs_validation(
        load_recipe("wardrobe-mini", ["screen.object_threshold=0", "prompts.shifts.red.threshold={percentile: 1}"])
    )
    thresholds = resolve_thresholds(recipe, None)
    assert thresholds.of("red", "03") == (0.25, np.float32(0.2))
    assert thresholds.of("base", "03") == (0.25, None)
    assert Thresholds.read(thresholds.content()) == thresholds


def test_a_shift_that_is_not_screened_has_no_threshold() -> None:
    changes = ["screen.object_threshold=0", "prompts.shifts.red.caption=null"]
    thresholds = resolve_thresholds(load_recipe("wardrobe-mini", changes), None)
    assert thresholds.of("red", "03") == (0.0, None)


def test_only_a_shifts_own_classes_have_thresholds() -> None:
    recipe = load_recipe("wardrobe-mini", ["screen.object_threshold=0", "prompts.shifts.red.classes=['03']"])
    thresholds = resolve_thresholds(recipe, None)
    assert set(thresholds.object["red"]) == {"03"}
    assert set(thresholds.object["base"]) == {cls.id for cls in recipe.classes}


def test_classes_without_validation_images_are_named_together() -> None:
    recipe = load_recipe("wardrobe-mini")
    present = {cls.id: np.linspace(0, 1, 5, dtype=np.float32) for cls in recipe.classes if cls.id not in ("02", "07")}
    with pytest.raises(UserError) as refused:
        resolve_thresholds(recipe, lambda caption: present)
    assert len(refused.value.problems) == 2
    assert "'02'" in refused.value.problems[0]
    assert "'07'" in refused.value.problems[1]
    assert "percentile 5" in refused.value.problems[0]
    assert refused.value.hint is not None


def test_each_caption_is_scored_once() -> None:
    recipe = load_recipe("wardrobe-star", ["screen.shift_threshold={percentile: 10}"])
    asked: list[str] = []

    def scored(caption: str) -> dict[str, np.ndarray]:
        asked.append(caption)
        return {cls.id: np.ones(1, np.float32) for cls in recipe.classes}

    resolve_thresholds(recipe, scored)
    assert len(asked) == len(set(asked)) == 2 + 23
    assert len(caption_texts(recipe)) == 2 * len(recipe.classes) + 23
