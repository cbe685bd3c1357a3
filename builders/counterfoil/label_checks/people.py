"""What people said of a dataset's labels, as its folder `review/` holds it: read as a stranger's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from counterfoil.report.nested import CheckedShare, LabelChecks, SelectedByPeople, ShiftChecks
from counterfoil.store.sealed_folder import REVIEWED

_MOST = 1_000_000_000  # of anything that is counted
_LONGEST_NAME = 255


def read_people(directory: Path, content: str, shifts: Collection[str]) -> LabelChecks | None:
    """What people said of these shifts of a dataset with this content; None where nothing is known of it."""
    people = people_of(REVIEWED.read(directory, content))
    if people is None:
        return None
    return replace(people, shifts=tuple(shift for shift in people.shifts if shift.shift in shifts))


def people_of(document: Mapping[str, Any] | None) -> LabelChecks | None:
    """The same from the content of selection.json; None where it is not of the form that is written."""
    if document is None:
        return None
    try:
        shifts = tuple(_shift(each) for each in document["shifts"])
        if len({shift.shift for shift in shifts}) < len(shifts) or not isinstance(document["raters"], list):
            return None
        return LabelChecks(
            judge=None,
            validated_on=None,
            shifts=shifts,
            raters=_count(len(document["raters"])),
            controls=_share(document["controls"]["real_share"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None  # sealed, but by another hand


def with_people(checks: LabelChecks | None, people: LabelChecks | None) -> LabelChecks | None:
    """What a judge and what people say, together; the shifts of the first, then those that people alone looked at."""
    if checks is None or people is None:
        return checks or people
    known = {shift.shift for shift in checks.shifts}
    together = [replace(shift, people=people.of(shift.shift).people) for shift in checks.shifts]
    together += [shift for shift in people.shifts if shift.shift not in known]
    return replace(checks, shifts=tuple(together), raters=people.raters, controls=people.controls)


def _shift(document: Mapping[str, Any]) -> ShiftChecks:
    by_class, by_shift = document["class"], document["shift"]
    people = SelectedByPeople(
        class_images=_count(by_class["images"]) if by_class else 0,
        class_selected=_share(by_class["selected"]) if by_class else None,
        class_kappa=_kappa(by_class["kappa"]) if by_class else None,
        shift_images=_count(by_shift["images"]) if by_shift else 0,
        shift_selected=_share(by_shift["selected"]) if by_shift else None,
        shift_kappa=_kappa(by_shift["kappa"]) if by_shift else None,
    )
    name = document["name"]
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError("a shift has no name")
    return ShiftChecks(name, people=people)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise ValueError("no count of something")
    return value


def _share(document: Mapping[str, Any] | None) -> CheckedShare | None:
    if document is None:
        return None
    value, low, high = (_number(document[name]) for name in ("value", "low", "high"))
    if not 0 <= low <= value <= high <= 1:
        raise ValueError("no share with its interval")
    return CheckedShare(value, low, high)


def _kappa(value: Any) -> float | None:
    if value is None:
        return None
    kappa = _number(value)
    if not -1 <= kappa <= 1:
        raise ValueError("no kappa")
    return kappa


def _number(value: Any) -> float:
    """A finite number; JSON as Python reads it may hold others, which no comparison finds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    return float(value)
