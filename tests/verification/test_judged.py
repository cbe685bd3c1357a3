"""What a judge is said to have failed at, against its first answer, which alone is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.verification.rows import RowFaults, check_judged

JUDGE = "lab:resnet10t"
CLASSES = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0, parent: top}, {id: '05', name: sandal, source_label: 5,"
    " parent: shoe}, {id: '06', name: shirt, source_label: 6, parent: top}]"
)
PINS: dict[str, dict[str, Any]] = {JUDGE: {"targets": [[0], [5], [6]]}}
T_SHIRT, SANDAL, SHIRT, BAG = 0, 5, 6, 8


def faults_of(rule: str, shift: str = "red", label: int = 0, **changes: Any) -> list[str]:
    """Of one row of a t-shirt."""
    keep = f"[thresholds, {{misclassified: {{models: ['{JUDGE}'], failure: '{rule}'}}}}]"
    plan = make_plan(
        load_recipe(
            "wardrobe-mini", [CLASSES, "screen.keep=thresholds", "screen.judge=null", f"prompts.shifts.red.keep={keep}"]
        )
    )
    row = {"key": "k", "shift": shift, "label": label, "class_id": "00", "object_score": 0.5}
    told = {"answer": BAG, "confidence": 0.5, "right": False, "failed": True} | changes
    faults = RowFaults()
    check_judged([row | {f"resnet10t_{name}": value for name, value in told.items()}], plan, PINS, faults)
    return [line.removeprefix("is wrong in k: ") for line in faults.lines()]


@pytest.mark.parametrize(
    ("rule", "answer", "failed", "sound"),
    [
        # The second or third answer may be right, so that only an answer that is right itself decides.
        ("top3", BAG, True, True), ("top3", BAG, False, True), ("top3", SHIRT, True, True),
        ("top3", T_SHIRT, False, True), ("top3", T_SHIRT, True, False),
        ("parent", SHIRT, False, True), ("parent", SHIRT, True, False), ("parent", SANDAL, True, True),
        ("answered:05", SANDAL, True, True), ("answered:05", SANDAL, False, False),
        ("answered:05", BAG, True, False), ("answered:05", BAG, False, True),
        ("answered:00", T_SHIRT, True, False), ("answered:00", T_SHIRT, False, True),
    ],
)  # fmt: skip
def test_a_failure_that_the_first_answer_contradicts_is_told(rule: str, answer: int, failed: bool, sound: bool) -> None:
    found = faults_of(rule, answer=answer, failed=failed, right=answer == T_SHIRT)
    assert found == ([] if sound else [f"resnet10t_failed is {str(failed).lower()}, which the answer contradicts"])


def test_it_is_told_exactly_where_its_shift_asks() -> None:
    nothing: dict[str, Any] = {"answer": None, "confidence": None, "right": None}
    assert faults_of("top3", failed=None) == ["resnet10t_confidence is 0.5, expected a probability"]
    assert faults_of("top3", **nothing, failed=None) == ["resnet10t_answer is none, expected the judge's answer"]
    assert faults_of("top3", "base", **nothing, failed=None) == []
    assert faults_of("top3", "base", **nothing, failed=True) == ["resnet10t_failed is true, expected none"]
    assert faults_of("top1", failed=True) == ["resnet10t_failed is true, expected none"]
    assert faults_of("top1", failed=None) == []


@pytest.mark.parametrize("rule", ["top3", "parent", "answered:05"])
def test_a_label_of_no_class_is_left_to_the_check_of_labels(rule: str) -> None:
    assert faults_of(rule, label=10**18, answer=T_SHIRT) == []
