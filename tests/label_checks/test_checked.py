"""Who checked a shift decides whether it may be a headline."""

from __future__ import annotations

from counterfoil.label_checks import CheckedShare, JudgedLabels, LabelChecks, SelectedByPeople, ShiftChecks

HALF = CheckedShare(0.5, 0.4, 0.6)


def test_a_shift_is_checked_by_a_judge_or_by_people_who_looked_at_its_classes() -> None:
    judged = ShiftChecks("snow", judge=JudgedLabels(10, 5, HALF, None))
    classes = ShiftChecks("rain", people=SelectedByPeople(48, HALF, None, 0, None, None))
    shifts_alone = ShiftChecks("night", people=SelectedByPeople(0, None, None, 48, HALF, None))
    checks = LabelChecks("lab:clip", None, (judged, classes, shifts_alone))
    assert [checks.of(name).checked for name in ("snow", "rain", "night", "fog")] == [True, True, False, False]
