"""Whether labels are still true: a judge's estimate beside the truth, and documents of people."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from counterfoil.dataset.label_checks import (
    JudgedClass,
    Selection,
    checks_of_dataset,
    is_told_apart,
    judged_checks,
    label_error_of_class,
    label_error_of_shift,
    people_of,
    share_of,
    with_people,
)
from counterfoil.recipe import load_recipe
from counterfoil.report.labels import (
    CheckedShare,
    JudgedLabels,
    LabelChecks,
    SelectedByPeople,
    ShiftChecks,
    worst_classes,
)
from counterfoil.store.lock import OTHER, count_answers, validation_of, without_validation

HALF = CheckedShare(0.5, 0.4, 0.6)
JUDGE = "lab:resnet10t"
# The judge is right about 80 of 100 cats and 45 of 50 dogs; it takes cats for dogs, and dogs for no
# class of these.
ANSWERS = {"cat": {"cat": 80, "dog": 20}, "dog": {"dog": 45, OTHER: 5}}
COUNTS = {
    ("base", "cat"): (40, 8),
    ("base", "dog"): (10, 4),
    ("at_night", "cat"): (20, 15),
    ("fog", "dog"): (0, 0),
}
REPEATS = 600
# Of 600 simulations with 95 % coverage, fewer than 558 hold the truth once in a hundred times.
LEAST = 558 / REPEATS
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


def test_a_shift_is_checked_by_a_judge_or_by_people_who_looked_at_its_classes() -> None:
    judged = ShiftChecks("snow", judge=JudgedLabels(10, 5, HALF, None))
    classes = ShiftChecks("rain", people=SelectedByPeople(48, HALF, None, 0, None, None))
    shifts_alone = ShiftChecks("night", people=SelectedByPeople(0, None, None, 48, HALF, None))
    checks = LabelChecks("lab:clip", None, (judged, classes, shifts_alone))
    assert [checks.of(name).checked for name in ("snow", "rain", "night", "fog")] == [
        True,
        True,
        False,
        False,
    ]


def test_images_that_the_judge_picked_or_too_few_of_them_check_nothing() -> None:
    judge = JudgedLabels(100, 99, HALF, None)
    assert ShiftChecks("snow", judge).checked
    assert not ShiftChecks("snow", judge, picked=True).checked
    assert not ShiftChecks("snow", JudgedLabels(9, 0, HALF, None)).checked
    assert not ShiftChecks("snow", people=SelectedByPeople(9, HALF, None, 48, HALF, None)).checked
    # People check what a judge picked.
    assert ShiftChecks(
        "snow", judge, SelectedByPeople(10, HALF, None, 0, None, None), picked=True
    ).checked


def test_errors_are_read_off_the_matrix() -> None:
    checks = judged_checks(JUDGE, COUNTS, ANSWERS, ["base", "at_night", "fog"])
    assert checks.judge == JUDGE and checks.validated_on == 150
    base = checks.of("base").judge
    cats = JudgedClass(images=40, disagreed=8, of_class=100, wrong=20, others=50, told_apart=50)
    dogs = JudgedClass(images=10, disagreed=4, of_class=50, wrong=5, others=100, told_apart=80)
    assert base is not None and (base.images, base.disagreed) == (50, 12)
    assert base.label_error == label_error_of_shift([cats, dogs])
    assert checks.of("base").classes["cat"].label_error == label_error_of_class(cats)
    assert checks.of("base").classes["dog"].label_error == label_error_of_class(dogs)
    assert checks.of("at_night").checked and not checks.of("fog").checked
    assert [shift.shift for shift in checks.shifts] == ["base", "at_night", "fog"]


def test_without_validation_images_it_is_plain_disagreement() -> None:
    checks = judged_checks(JUDGE, COUNTS, None, ["base"])
    judge = checks.of("base").judge
    assert checks.validated_on is None and judge is not None
    assert judge.label_error is None and judge.disagreement.value == pytest.approx(12 / 50)


def test_images_that_the_judge_picked_tell_nothing_of_labels() -> None:
    judged = judged_checks(JUDGE, COUNTS, ANSWERS, ["base", "at_night"], picked={"at_night"})
    picked = judged.of("at_night").judge
    base = judged.of("base").judge
    assert picked is not None and picked.label_error is None and picked.disagreed == 15
    assert base is not None and base.label_error is not None
    recipe = load_recipe(
        "wardrobe-mini",
        [
            f"screen.judge={JUDGE}",
            f"prompts.shifts.red.keep=[thresholds, {{misclassified: {{models: ['{JUDGE}']}}}}]",
        ],
    )
    ids = [cls.id for cls in recipe.classes]
    sure = {name: {name: 100} for name in ids}
    checks = checks_of_dataset(
        recipe,
        {"judges": {JUDGE: {"validation": sure}}},
        {("red", ids[0]): (9, 9), ("at_night", ids[0]): (9, 9)},
    )
    assert (
        checks.of("red").picked
        and not checks.of("red").checked
        and not checks.of("at_night").picked
    )
    red = checks.of("red").judge
    night = checks.of("at_night").judge
    assert red is not None and red.label_error is None
    assert night is not None and night.label_error is not None and night.label_error.value == 1.0


def test_the_worst_classes_are_those_most_in_doubt() -> None:
    counts = {
        ("base", name): pair
        for name, pair in {"a": (10, 1), "b": (10, 5), "c": (10, 0), "d": (10, 3)}.items()
    }
    for validation in (None, {name: {name: 100} for name in "abcd"}):
        base = judged_checks(JUDGE, counts, validation, ["base"]).of("base")
        assert [name for name, _ in worst_classes(base, 2)] == ["b", "d"]
        assert [name for name, _ in worst_classes(base, 9)] == ["b", "d", "a"]


def test_a_recipe_without_a_second_judge_is_unchecked() -> None:
    checks = checks_of_dataset(load_recipe("wardrobe-mini", ["screen.judge=null"]), {}, {})
    assert (
        checks.judge is None
        and len(checks.shifts) == 6
        and not any(shift.checked for shift in checks.shifts)
    )


def test_labels_are_the_rows_own_where_the_base_is_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = load_recipe("wardrobe-corrupt")
    assert checks_of_dataset(recipe, {}, {}).own
    monkeypatch.setattr(recipe.kind, "unchanged_base", False)
    assert recipe.kind.corrupts and not checks_of_dataset(recipe, {}, {}).own


def test_what_is_counted_is_read_back() -> None:
    pairs = (
        [("cat", "cat")] * 80 + [("cat", "dog")] * 20 + [("dog", "dog")] * 45 + [("dog", OTHER)] * 5
    )
    pin = {"sha256": "…", "targets": [[0], [1]], "validation": count_answers(pairs)}
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


def test_without_chance_it_is_the_share_of_false_labels() -> None:
    """900 true labels of which 45 are doubted wrongly, 100 false ones of which 98 are seen."""
    judged = JudgedClass(
        images=1000, disagreed=45 + 98, of_class=1000, wrong=50, others=1000, told_apart=980
    )
    for estimate in (label_error_of_class(judged), label_error_of_shift([judged])):
        assert estimate is not None
        assert estimate.value == pytest.approx(0.1)
        assert 0.06 < estimate.low < 0.1 < estimate.high < 0.14


def test_a_judge_without_errors_leaves_the_disagreement() -> None:
    judged = JudgedClass(
        images=200, disagreed=30, of_class=10_000, wrong=0, others=10_000, told_apart=10_000
    )
    error = label_error_of_shift([judged])
    plain = share_of(30, 200)
    assert error is not None
    assert (error.value, error.low, error.high) == pytest.approx(
        (plain.value, plain.low, plain.high), abs=2e-3
    )


def test_fewer_doubts_than_errors_are_no_false_label() -> None:
    judged = JudgedClass(
        images=100, disagreed=2, of_class=100, wrong=20, others=900, told_apart=890
    )
    for estimate in (label_error_of_class(judged), label_error_of_shift([judged])):
        assert (
            estimate is not None and estimate.value == estimate.low == 0.0 and estimate.high < 0.1
        )


@pytest.mark.parametrize(
    "counts",
    [
        # no validation image of the class
        {"of_class": 0, "wrong": 0, "others": 900, "told_apart": 900},
        {"of_class": 100, "wrong": 10, "others": 0, "told_apart": 0},  # no other class
        {
            "of_class": 100,
            "wrong": 90,
            "others": 900,
            "told_apart": 810,
        },  # it doubts true labels as often as false ones
        {"of_class": 4, "wrong": 1, "others": 4, "told_apart": 3},  # so few that it may
        {"of_class": 100, "wrong": 60, "others": 900, "told_apart": 300},  # more often
    ],
)
def test_a_class_that_is_not_told_apart_has_no_estimate(counts: dict[str, int]) -> None:
    judged = JudgedClass(images=50, disagreed=10, **counts)
    assert not is_told_apart(judged)
    assert label_error_of_class(judged) is None
    assert label_error_of_shift([judged]) is None


def test_a_shift_speaks_where_most_of_its_images_do() -> None:
    known = JudgedClass(images=80, disagreed=8, of_class=100, wrong=2, others=100, told_apart=99)
    unknown = JudgedClass(images=20, disagreed=20, of_class=0, wrong=0, others=0, told_apart=0)
    assert label_error_of_shift([known, unknown]) == label_error_of_shift([known])
    assert label_error_of_shift([known, JudgedClass(21, 21, 0, 0, 0, 0)]) is None
    assert label_error_of_shift([]) is None


def test_classes_count_by_their_images_and_are_averaged_before_they_are_cut() -> None:
    """Averaging before the cut keeps both what chance takes from one class and what it adds to
    another."""
    above = JudgedClass(
        images=30, disagreed=9, of_class=1000, wrong=200, others=1000, told_apart=1000
    )
    below = JudgedClass(
        images=10, disagreed=0, of_class=1000, wrong=200, others=1000, told_apart=1000
    )
    estimate = label_error_of_shift([above, below])
    assert estimate is not None
    assert estimate.value == pytest.approx((30 * (0.1 / 0.8) + 10 * (-0.2 / 0.8)) / 40)


def test_the_interval_of_a_class_is_lang_and_reiczigels() -> None:
    """Lang and Reiczigel 2014, equations 5 to 7, in their own words: sensitivity, specificity,
    prevalence."""
    n = 60
    ill = 90
    well = 40
    z = 1.959963984540054
    positive = 25
    found_ill = 80
    found_well = 35
    apparent = (positive + z**2 / 2) / (n + z**2)
    sensitivity = (found_ill + 1) / (ill + 2)
    specificity = (found_well + 1) / (well + 2)
    prevalence = (apparent + specificity - 1) / (sensitivity + specificity - 1)
    of_ill = sensitivity * (1 - sensitivity) / (ill + 2)
    of_well = specificity * (1 - specificity) / (well + 2)
    moved = 2 * z**2 * (prevalence * of_ill - (1 - prevalence) * of_well)
    variance = (
        apparent * (1 - apparent) / (n + z**2)
        + prevalence**2 * of_ill
        + (1 - prevalence) ** 2 * of_well
    )
    half = z * variance**0.5 / (sensitivity + specificity - 1)
    estimate = label_error_of_class(
        JudgedClass(n, positive, well, well - found_well, ill, found_ill)
    )
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx(
        (prevalence + moved - half, prevalence + moved + half)
    )


@pytest.mark.parametrize(
    ("images", "of_class", "false", "errs", "sees"),
    [(20, 100, 0.1, 0.05, 0.98), (60, 100, 0.3, 0.1, 0.95), (200, 50, 0.02, 0.02, 0.99), (40, 150, 0.0, 0.1, 0.95),
     (40, 100, 0.9, 0.1, 0.95), (15, 60, 0.2, 0.2, 0.9)],
)  # fmt: skip
def test_the_interval_of_a_class_holds_the_truth(
    images: int, of_class: int, false: float, errs: float, sees: float
) -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(REPEATS):
        disagreed = random.binomial(images, false * sees + (1 - false) * errs)
        wrong = random.binomial(of_class, errs)
        seen = random.binomial(9 * of_class, sees)
        estimate = label_error_of_class(
            JudgedClass(images, disagreed, of_class, wrong, 9 * of_class, seen)
        )
        assert estimate is not None and 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        covered += estimate.low <= false <= estimate.high
    assert covered / REPEATS >= LEAST


@pytest.mark.parametrize(
    ("classes", "images", "of_class", "false", "errs"),
    [(10, 10, 100, 0.1, 0.05), (10, 20, 100, 0.0, 0.1), (10, 5, 50, 0.02, 0.03), (10, 20, 100, 0.5, 0.2),
     (3, 10, 100, 0.3, 0.1), (50, 4, 20, 0.1, 0.1), (1, 30, 100, 0.2, 0.1)],
)  # fmt: skip
def test_the_interval_of_a_shift_holds_the_truth(
    classes: int, images: int, of_class: int, false: float, errs: float
) -> None:
    """Classes differ in images, errors and false labels; the truth is the average by images."""
    random = np.random.default_rng(8)
    covered = 0
    width = 0.0
    sees = 0.97
    others = max(1, classes - 1) * of_class
    for _ in range(REPEATS):
        shares = random.beta(5 * false, 5 * (1 - false), classes) if false else np.zeros(classes)
        erring = random.uniform(0, 2 * errs, classes)
        counts = random.integers(1, 2 * images, classes)
        disagreed = random.binomial(counts, shares * sees + (1 - shares) * erring)
        wrong = random.binomial(of_class, erring)
        seen = random.binomial(others, sees, classes)
        estimate = label_error_of_shift(
            [
                JudgedClass(int(n), int(d), of_class, int(w), others, int(s))
                for n, d, w, s in zip(counts, disagreed, wrong, seen, strict=True)
            ]
        )
        assert estimate is not None and 0 <= estimate.low <= estimate.value <= estimate.high <= 1
        covered += estimate.low <= float(counts @ shares) / counts.sum() <= estimate.high
        width += (estimate.high - estimate.low) / REPEATS
    assert covered / REPEATS >= LEAST
    # An interval that holds everything says nothing: a binomial share of so many images has about
    # this one.
    alone = share_of(round(classes * images * (false + errs)), classes * images)
    assert width < 1.6 * (alone.high - alone.low)


def test_a_judge_that_never_disagrees_makes_nothing_certain() -> None:
    """Fewer disagreements than its errors on validation images allow: they do not carry over."""
    judged = JudgedClass(
        images=186, disagreed=0, of_class=1000, wrong=80, others=1000, told_apart=990
    )
    for estimate in (label_error_of_class(judged), label_error_of_shift([judged, judged])):
        assert estimate is not None and (estimate.value, estimate.low) == (0.0, 0.0)
        assert estimate.high >= share_of(0, 2 * 186).high > 0


def test_it_is_what_the_folder_holds() -> None:
    people = people_in(DOCUMENT)
    assert people is not None
    assert (people.raters, people.controls) == (2, CheckedShare(0.9, 0.8, 0.95))
    assert people.of("base").people == SelectedByPeople(
        40, CheckedShare(0.9, 0.8, 0.95), 0.4, 0, None, None
    )
    assert people.of("snow").people == SelectedByPeople(
        0, None, None, 40, CheckedShare(0.9, 0.8, 0.95), None
    )
    assert (people.of("base").checked, people.of("snow").checked) == (True, False)
    assert people_of(Selection.sealed(None)[0]) is None


def people_in(document: dict[str, Any]) -> LabelChecks | None:
    return people_of(Selection.sealed(document)[0])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("shifts", None),
        ("raters", []),
        ("raters", "rater-1"),
        ("shifts.0.class.selected.high", 1.5),
        ("shifts.0.class.selected.low", 0.91),
        ("shifts.0.class.selected.value", float("nan")),
        ("shifts.0.class.selected.value", "<b>"),
        ("shifts.0.class.selected.high", 10**400),
        ("controls.real_share.high", True),
        ("shifts.0.class.kappa", 2),
        ("shifts.0.class.images", -4),
        ("shifts.0.class.images", 4.5),
        ("shifts.0.name", ["base"]),
        ("shifts.0.name", "x" * 256),
        ("shifts.1.name", "base"),
        ("shifts.1", []),
        ("rater", "Anna"),
        ("images.class.base_00_000000.shown", 0),
    ],
)
def test_what_nobody_wrote_is_not_believed(path: str, value: object) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    assert people_in(document) is not None
    *parts, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    inner = document
    for part in parts:
        inner = inner[part]
    inner[last] = value
    assert people_in(document) is None


def test_people_and_a_judge_stand_beside_each_other() -> None:
    people = people_in(DOCUMENT)
    judged = JudgedLabels(10, 1, CheckedShare(0.1, 0.0, 0.4), None)
    checks = LabelChecks(
        "lab:clip", 200, (ShiftChecks("snow", judged), ShiftChecks("rain", judged))
    )
    both = with_people(checks, people)
    assert both is not None and people is not None
    assert (both.judge, both.validated_on, both.raters, both.controls) == (
        "lab:clip",
        200,
        2,
        people.controls,
    )
    assert [shift.shift for shift in both.shifts] == ["snow", "rain", "base"]
    assert both.of("snow") == ShiftChecks("snow", judged, people.of("snow").people)
    assert both.of("rain") == checks.of("rain")
    assert both.of("base") == people.of("base")
    assert with_people(checks, None) is checks
    assert with_people(None, people) is people
    assert with_people(None, None) is None
