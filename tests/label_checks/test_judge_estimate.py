"""From a matrix of answers and counts by cell to checks by shift; and what a stranger's lock may not pin."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.label_checks import (
    OTHER,
    JudgedClass,
    checks_of_dataset,
    counted,
    judged_checks,
    label_error_of_class,
    label_error_of_shift,
    validation_of,
    without_validation,
)
from counterfoil.recipe import load_recipe
from counterfoil.report.labels import worst_classes

JUDGE = "lab:resnet10t"
# 100 cats, 80 of them told; 50 dogs, 45 of them told; cats are taken for dogs, dogs for nothing of these.
ANSWERS = {"cat": {"cat": 80, "dog": 20}, "dog": {"dog": 45, OTHER: 5}}
COUNTS = {("base", "cat"): (40, 8), ("base", "dog"): (10, 4), ("at_night", "cat"): (20, 15), ("fog", "dog"): (0, 0)}


def test_errors_are_read_off_the_matrix() -> None:
    found = judged_checks(JUDGE, COUNTS, ANSWERS, ["base", "at_night", "fog"])
    assert found.judge == JUDGE and found.validated_on == 150
    base = found.of("base").judge
    cats = JudgedClass(images=40, disagreed=8, own=100, wrong=20, others=50, told_apart=50)
    dogs = JudgedClass(images=10, disagreed=4, own=50, wrong=5, others=100, told_apart=80)
    assert base is not None and (base.images, base.disagreed) == (50, 12)
    assert base.label_error == label_error_of_shift([cats, dogs])
    assert found.of("base").classes["cat"].label_error == label_error_of_class(cats)
    assert found.of("base").classes["dog"].label_error == label_error_of_class(dogs)
    assert found.of("at_night").checked and not found.of("fog").checked
    assert [one.shift for one in found.shifts] == ["base", "at_night", "fog"]


def test_without_validation_images_it_is_plain_disagreement() -> None:
    found = judged_checks(JUDGE, COUNTS, None, ["base"])
    judge = found.of("base").judge
    assert found.validated_on is None and judge is not None
    assert judge.label_error is None and judge.disagreement.value == pytest.approx(12 / 50)


def test_images_that_the_judge_picked_tell_nothing_of_labels() -> None:
    found = judged_checks(JUDGE, COUNTS, ANSWERS, ["base", "at_night"], picked={"at_night"})
    picked, base = found.of("at_night").judge, found.of("base").judge
    assert picked is not None and picked.label_error is None and picked.disagreed == 15
    assert base is not None and base.label_error is not None
    recipe = load_recipe(
        "wardrobe-mini",
        [f"screen.judge={JUDGE}", f"prompts.shifts.red.keep=[thresholds, {{misclassified: {{models: ['{JUDGE}']}}}}]"],
    )
    ids = [cls.id for cls in recipe.classes]
    sure = {name: {name: 100} for name in ids}
    told = checks_of_dataset(
        recipe, {"judges": {JUDGE: {"validation": sure}}}, {("red", ids[0]): (9, 9), ("at_night", ids[0]): (9, 9)}
    )
    assert told.of("red").picked and not told.of("red").checked and not told.of("at_night").picked
    red, night = told.of("red").judge, told.of("at_night").judge
    assert red is not None and red.label_error is None
    assert night is not None and night.label_error is not None and night.label_error.value == 1.0


def test_the_worst_classes_are_those_most_in_doubt() -> None:
    counts = {("base", name): pair for name, pair in {"a": (10, 1), "b": (10, 5), "c": (10, 0), "d": (10, 3)}.items()}
    for validation in (None, {name: {name: 100} for name in "abcd"}):
        found = judged_checks(JUDGE, counts, validation, ["base"]).of("base")
        assert [name for name, _ in worst_classes(found, 2)] == ["b", "d"]
        assert [name for name, _ in worst_classes(found, 9)] == ["b", "d", "a"]


def test_a_recipe_without_a_second_judge_is_unchecked() -> None:
    found = checks_of_dataset(load_recipe("wardrobe-mini", ["screen.judge=null"]), {}, {})
    assert found.judge is None and len(found.shifts) == 6 and not any(one.checked for one in found.shifts)


def test_what_is_counted_is_read_back() -> None:
    pairs = [("cat", "cat")] * 80 + [("cat", "dog")] * 20 + [("dog", "dog")] * 45 + [("dog", OTHER)] * 5
    pin = {"sha256": "…", "targets": [[0], [1]], "validation": counted(pairs)}
    assert validation_of(pin, ["cat", "dog"]) == ANSWERS
    assert without_validation({JUDGE: pin}) == {JUDGE: {"sha256": "…", "targets": [[0], [1]]}}
    assert validation_of(pin | {"validation": None}, ["cat", "dog"]) is None


@pytest.mark.parametrize(
    "counts",
    [[], {}, "many", {"cow": {"cat": 1}}, {"cat": []}, {"cat": {}}, {"cat": {"cow": 1}}, {"cat": {"cat": 0}},
     {"cat": {"cat": -1}}, {"cat": {"cat": True}}, {"cat": {"cat": 1.5}}, {"cat": {"cat": 201}},
     {"cat": {"cat": 200, "dog": 1}}, {"cat": {"cat": 10**9}}],
)  # fmt: skip
def test_other_counts_than_a_build_pins_are_refused(counts: Any) -> None:
    with pytest.raises(ValueError, match="the judge's answers to validation images"):
        validation_of({"validation": counts}, ["cat", "dog"])
    with pytest.raises(ValueError, match="pins no judge"):
        validation_of(None, ["cat", "dog"])
