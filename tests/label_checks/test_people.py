"""What people said is read as a stranger's, and stands beside what a judge says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from counterfoil.label_checks import Selection, people_of, with_people
from counterfoil.report.labels import CheckedShare, JudgedLabels, LabelChecks, SelectedByPeople, ShiftChecks

SHARE = {"value": 0.9, "low": 0.8, "high": 0.95}
TASK = {"images": 40, "answers": 80, "selected": SHARE, "kappa": 0.4, "kappa_images": 40}
PASSED = {"real": 8, "real_passed": 7, "without": 0, "without_passed": 0}
RATER = {"grids": 2, "images": 40, "controls": PASSED, "failed_controls": False}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "files": {},
    "content": "0" * 64,
    "confidence": 0.95,
    "raters": [{"rater": "rater-1", **RATER}, {"rater": "rater-2", **RATER}],
    "controls": {**PASSED, "real_share": SHARE, "without_share": None},
    "images": {"class": {"base_00_000000": {"shown": 2, "selected": 1}}, "shift": {}},
    "shifts": [
        {"name": "base", "class": TASK, "shift": None},
        {"name": "snow", "class": None, "shift": {**TASK, "kappa": None}},
    ],
}


def test_it_is_what_the_folder_holds() -> None:
    people = people_of(Selection.sealed(DOCUMENT)[0])
    assert people is not None
    assert (people.raters, people.controls) == (2, CheckedShare(0.9, 0.8, 0.95))
    assert people.of("base").people == SelectedByPeople(40, CheckedShare(0.9, 0.8, 0.95), 0.4, 0, None, None)
    assert people.of("snow").people == SelectedByPeople(0, None, None, 40, CheckedShare(0.9, 0.8, 0.95), None)
    assert (people.of("base").checked, people.of("snow").checked) == (True, False)
    assert people_of(Selection.sealed(None)[0]) is None


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no shifts": lambda d: d.pop("shifts"),
    "no raters": lambda d: d.update(raters=[]),
    "raters that are text": lambda d: d.update(raters="rater-1"),
    "a share above one": lambda d: d["shifts"][0]["class"].update(selected={**SHARE, "high": 1.5}),
    "a share out of its interval": lambda d: d["shifts"][0]["class"].update(selected={**SHARE, "low": 0.91}),
    "a share that is no number": lambda d: d["shifts"][0]["class"].update(selected={**SHARE, "value": float("nan")}),
    "a share that is text": lambda d: d["shifts"][0]["class"].update(selected={**SHARE, "value": "<b>"}),
    "a share beyond floats": lambda d: d["shifts"][0]["class"].update(selected={**SHARE, "high": 10**400}),
    "a share that is true": lambda d: d["controls"].update(real_share={**SHARE, "high": True}),
    "a kappa beyond one": lambda d: d["shifts"][0]["class"].update(kappa=2),
    "a count below one": lambda d: d["shifts"][0]["class"].update(images=-4),
    "a count that is no whole number": lambda d: d["shifts"][0]["class"].update(images=4.5),
    "a name that is none": lambda d: d["shifts"][0].update(name=["base"]),
    "an endless name": lambda d: d["shifts"][0].update(name="x" * 256),
    "a key that nobody writes": lambda d: d.update(rater="Anna"),
    "an image that nobody was shown": lambda d: d["images"]["class"]["base_00_000000"].update(shown=0),
    "a shift twice": lambda d: d["shifts"].append(d["shifts"][0]),
    "a list for a shift": lambda d: d["shifts"].append([]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_nobody_wrote_is_not_believed(name: str) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    assert people_of(Selection.sealed(document)[0]) is not None
    HOSTILE[name](document)
    assert people_of(Selection.sealed(document)[0]) is None


def test_people_and_a_judge_stand_beside_each_other() -> None:
    people = people_of(Selection.sealed(DOCUMENT)[0])
    judged = JudgedLabels(10, 1, CheckedShare(0.1, 0.0, 0.4), None)
    checks = LabelChecks("lab:clip", 200, (ShiftChecks("snow", judged), ShiftChecks("rain", judged)))
    both = with_people(checks, people)
    assert both is not None and people is not None
    assert (both.judge, both.validated_on, both.raters, both.controls) == ("lab:clip", 200, 2, people.controls)
    assert [shift.shift for shift in both.shifts] == ["snow", "rain", "base"]
    assert both.of("snow") == ShiftChecks("snow", judged, people.of("snow").people)
    assert both.of("rain") == checks.of("rain")
    assert both.of("base") == people.of("base")
    assert with_people(checks, None) is checks
    assert with_people(None, people) is people
    assert with_people(None, None) is None
