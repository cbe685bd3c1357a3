"""Thresholds become numbers: given, or a percentile of scores; without the models, on scores alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.screen import FewImages, Thresholds, open_shifts, percentile_of, resolve_thresholds
from counterfoil.screen.thresholds import images_needed, needs_validation

scores = arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-1, 1, width=32))


@given(scores, st.floats(0, 100), st.floats(0, 100))
def test_a_percentile_grows_and_stays_among_the_scores(values: np.ndarray, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert values.min() <= percentile_of(values, low) <= percentile_of(values, high) <= values.max()
    assert float(np.float32(percentile_of(values, one))) == percentile_of(values, one), "as scores are stored"
    assert percentile_of(values, 0) == values.min()
    assert percentile_of(values, 100) == values.max()
    assert percentile_of(values, one) == percentile_of(np.sort(values)[::-1], one)


def test_thresholds_by_value_need_no_images() -> None:
    recipe = load_recipe("wardrobe-mini", ["screen.object_threshold=0.25", "screen.shift_threshold=0.2"])
    assert not needs_validation(recipe)
    assert needs_validation(load_recipe("wardrobe-mini"))
    candidates_alone = ["screen.object_threshold=0", "prompts.shifts.red.threshold={percentile: 1}"]
    assert not needs_validation(load_recipe("wardrobe-mini", candidates_alone))
    thresholds = resolve_thresholds(recipe, None)
    assert thresholds.of("red", "03") == {"object": 0.25, "shift": np.float32(0.2)}
    assert thresholds.of("base", "03") == {"object": 0.25, "shift": None}
    assert Thresholds.read(thresholds.content()) == thresholds


def test_a_shift_that_is_not_screened_has_no_threshold() -> None:
    changes = ["screen.object_threshold=0", "prompts.shifts.red.caption=null"]
    thresholds = resolve_thresholds(load_recipe("wardrobe-mini", changes), None)
    assert thresholds.of("red", "03") == {"object": 0.0, "shift": None}


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
    recipe = load_recipe("wardrobe-star")
    asked: list[str] = []

    def scored(caption: str) -> dict[str, np.ndarray]:
        asked.append(caption)
        return {cls.id: np.ones(1, np.float32) for cls in recipe.classes}

    resolve_thresholds(recipe, scored)
    assert len(asked) == len(set(asked)) == 2


def test_a_score_on_a_threshold_by_value_passes_as_it_is_stored() -> None:
    """Scores are stored as float32: a double beside them may refuse a score that equals it."""
    thresholds = resolve_thresholds(
        load_recipe("wardrobe-mini", ["screen.object_threshold=0.3", "prompts.shifts.red.threshold=0.7"]), None
    )
    assert thresholds.of("red", "03") == {"object": float(np.float32(0.3)), "shift": float(np.float32(0.7))}


def test_a_shift_by_percentile_is_open_and_measures_nothing() -> None:
    changes = ["screen.object_threshold=0.25", "prompts.shifts.red.threshold={percentile: 10}"]
    recipe = load_recipe("wardrobe-mini", changes)
    thresholds = resolve_thresholds(recipe, None)
    assert open_shifts(recipe) == ("red",)
    assert [name for name in ("base", "red", "at_night") if thresholds.is_open(name)] == ["red"]
    assert thresholds.of("red", "03") == {"object": 0.25, "shift": None}
    assert thresholds.shift["red"]["03"] == {"value": None, "percentile": 10.0, "n": 0, "source": "candidates"}
    assert Thresholds.read(thresholds.content()) == thresholds


def test_only_what_was_measured_is_pinned() -> None:
    def resolved(*changes: str) -> Thresholds:
        recipe = load_recipe("wardrobe-mini", list(changes))
        scores = {cls.id: np.linspace(0, 1, 50, dtype=np.float32) for cls in recipe.classes}
        return resolve_thresholds(recipe, lambda caption: scores)

    before = resolved()
    assert before.pin() is not None
    assert resolved("prompts.shifts.red.threshold=0.3").pin() == before.pin()
    assert resolved("prompts.shifts.red.threshold={percentile: 3}").pin() == before.pin()
    assert resolved("prompts.shifts.red.threshold=0.3").content() != before.content()
    assert resolved("screen.object_threshold={percentile: 6}").pin() != before.pin()
    assert resolved("screen.object_threshold=0.1").pin() is None


def test_what_was_measured_before_is_not_measured_again() -> None:
    recipe = load_recipe("wardrobe-mini")
    generator = np.random.default_rng(3)
    scores = {cls.id: generator.random(50, np.float32) for cls in recipe.classes}
    first = resolve_thresholds(recipe, lambda caption: scores)
    known = first.measured({shift.name: shift.object_caption for shift in recipe.all_shifts()})
    cut = load_recipe("wardrobe-mini", ["prompts.shifts.red.threshold=0.3"])
    assert not needs_validation(cut, known)
    assert resolve_thresholds(cut, None, known).object == first.object
    for change in ("screen.object_threshold={percentile: 6}", "screen.object_caption=a picture of a {class}"):
        assert needs_validation(load_recipe("wardrobe-mini", [change]), known)


@given(st.floats(0.01, 99.99), st.integers(0, 30))
def test_with_the_images_it_needs_a_percentile_is_more_than_the_extreme(percentile: float, more: int) -> None:
    needs = images_needed(percentile)
    assert needs >= 2
    if needs > 2000:
        return
    values = np.arange(needs + 1 + more, dtype=np.float32)
    assert values[0] < percentile_of(values, percentile) < values[-1]
    assert (needs - 1) * min(percentile, 100 - percentile) < 100 + 1e-6, "no more are asked for than needed"


def test_the_images_needed_are_those_of_the_tail() -> None:
    assert [images_needed(p) for p in (0, 1, 2.5, 5, 25, 50, 90, 95, 100)] == [1, 100, 40, 20, 4, 2, 10, 20, 1]


def test_a_class_with_too_few_images_is_recorded_and_not_refused() -> None:
    recipe = load_recipe("wardrobe-mini", ["screen.object_threshold={percentile: 5}"])
    counts = {cls.id: 20 if cls.id != "03" else 19 for cls in recipe.classes}
    scores = {class_id: np.linspace(0, 1, n, dtype=np.float32) for class_id, n in counts.items()}
    thresholds = resolve_thresholds(recipe, lambda caption: scores)
    assert thresholds.few_images() == (FewImages("03", 5.0, 19, 20),)
    assert thresholds.object["red"]["03"]["needs"] == 20
    assert "needs" not in thresholds.object["red"]["02"]
    assert "'03'" in str(thresholds.few_images()[0])
