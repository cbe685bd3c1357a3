"""What a keep rule is said to have measured: there where it was asked, and a number that it can be."""

from __future__ import annotations

from typing import Any

import pytest

from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.verification.rows import RowFaults, check_measured

SOUND = {"contrast": 40.0, "black": 0.25, "white": 0.0}
NONE = {"contrast": None, "black": None, "white": None}


def faults_of(shift: str, object_score: float | None = 0.5, **measured: Any) -> list[str]:
    """Of one row where the shift red asks and the base does not."""
    plan = make_plan(
        load_recipe(
            "wardrobe-mini",
            ["screen.keep=thresholds", "screen.judge=null", "prompts.shifts.red.keep=[{visible: {}}, thresholds]"],
        )
    )
    faults = RowFaults()
    check_measured([{"key": "k", "shift": shift, "object_score": object_score, **measured}], plan, faults)
    return [line.removeprefix("is wrong in k: ") for line in faults.lines()]


def test_it_is_told_exactly_where_its_shift_asks() -> None:
    assert faults_of("red", **SOUND) == [] and faults_of("base", **NONE) == []
    assert len(faults_of("base", **SOUND)) == len(faults_of("red", **NONE)) == 3
    assert faults_of("red", None, **NONE) == []  # rendering failed
    assert faults_of("red", None, **SOUND) == []  # its scores did, and it was drawn


@pytest.mark.parametrize(("name", "value"), [("contrast", 256.0), ("contrast", -1.0), ("black", 1.5), ("white", -0.5)])
def test_what_no_image_has_is_told(name: str, value: float) -> None:
    assert [line.partition(" ")[0] for line in faults_of("red", **SOUND | {name: value})] == [name]
