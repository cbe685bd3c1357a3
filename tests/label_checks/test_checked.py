"""Who checked a shift decides whether it may be a headline."""

from __future__ import annotations

from counterfoil.report.labels import CheckedShare, JudgedLabels, LabelChecks, SelectedByPeople, ShiftChecks

HALF = CheckedShare(0.5, 0.4, 0.6)


def test_a_shift_is_checked_by_a_judge_or_by_people_who_looked_at_its_classes() -> None:
    judged = ShiftChecks("snow", judge=JudgedLabels(10, 5, HALF, None))
    classes = ShiftChecks("rain", people=SelectedByPeople(48, HALF, None, 0, None, None))
    shifts_alone = ShiftChecks("night", people=SelectedByPeople(0, None, None, 48, HALF, None))
    checks = LabelChecks("lab:clip", None, (judged, classes, shifts_alone))
    assert [checks.of(name).checked for name in ("snow", "rain", "night", "fog")] == [True, True, False, False]


def test_images_that_the_judge_picked_or_too_few_of_them_check_nothing() -> None:
    judge = JudgedLabels(100, 99, HALF, None)
    assert ShiftChecks("snow", judge).checked
    assert not ShiftChecks("snow", judge, picked=True).checked
    assert not ShiftChecks("snow", JudgedLabels(9, 0, HALF, None)).checked
    assert not ShiftChecks("snow", people=SelectedByPeople(9, HALF, None, 48, HALF, None)).checked
    # People check what a judge picked.
    assert ShiftChecks("snow", judge, SelectedByPeople(10, HALF, None, 0, None, None), picked=True).checked
