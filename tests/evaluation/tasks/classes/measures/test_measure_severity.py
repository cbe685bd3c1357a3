"""Severity from hand-made answers: curves against plain loops, failure points against counts,
nothing else moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from counterfoil.accuracy_stats import NearChance
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.evaluation.dataset import Group, Subject, labelled_subject
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking, ModelAnswers
from counterfoil.evaluation.tasks.classes.measures.severity import measure_severity, trajectories_of
from counterfoil.recipe import RecipeClass
from counterfoil.report.results import ResultRows
from counterfoil.report.severity import Severity
from support.estimates import interval_of

LEVELS = (0.25, 0.5, 0.75, 1.0)
NAMES = ("base", "fog_25", "fog_50", "fog_75", "fog", "blue")


def subject_of(
    present: NDArray[np.bool_], labels: NDArray[np.int64], indices: NDArray[np.int64]
) -> Subject:
    """Make trajectories (n,); `present` (n, 6) marks the images at the base, four levels of fog,
    and blue."""
    groups, scenes = np.nonzero(present.T)
    classes = tuple(
        RecipeClass(f"{index:02d}", f"class {index}", index, index, ())
        for index in range(int(labels.max()) + 1)
    )
    keys = tuple(f"{NAMES[group]}-{scene}" for group, scene in zip(groups, scenes, strict=True))
    images = LabelledImages(
        "made", "0" * 64, keys, labels[scenes], groups, NAMES, lambda wanted: iter(())
    )
    subject = labelled_subject("made", images, classes, "base")
    planned = tuple(range(len(classes)))
    shown = [Group(name, None, "", name, planned, len(labels), paired=True) for name in NAMES]
    shown[1:5] = [
        replace(group, group="fog", of="fog", level=level, top=level == 1)
        for group, level in zip(shown[1:5], LEVELS, strict=True)
    ]
    return replace(subject, groups=tuple(shown), indices=indices[scenes])


def answered_of(
    subject: Subject,
    correct: NDArray[np.bool_],
    near: NearChance | None = None,
    min_images: int = 1,
) -> AllAnswers:
    """Make answers of models; `correct` is (images, models)."""
    models = correct.shape[1]
    answers = ModelAnswers(
        np.ones(len(correct), bool), np.zeros(correct.shape, np.int32), correct, correct
    )
    scored: Any = tuple(
        SimpleNamespace(classifier=SimpleNamespace(name=f"m{index}", sha256=None))
        for index in range(models)
    )
    near = near or NearChance(np.zeros(models, dtype=bool))
    return AllAnswers(
        subject,
        scored,
        answers,
        near,
        min_images,
        0,
        Asking(ChosenModels(subject.classes), "cpu", 1),
    )


def fading(
    n: int, models: Sequence[float], lost: float = 0.1, classes: int = 3, seed: int = 0
) -> tuple[AllAnswers, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return answers of models that fail on average at their level, present images (n, 6), and
    right (n, 6, models)."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    indices = np.arange(n) // classes
    present = rng.random((n, 6)) >= [0.05, lost, lost, lost, 2 * lost, 0.05]
    fails = rng.normal(0, 0.25, (n, 1)) + rng.normal(0, 0.15, (n, len(models))) + models
    at = np.array([0.0, *LEVELS, 0.4])
    right = (fails[:, None, :] > at[:, None]) ^ (rng.random((n, 6, len(models))) < 0.03)
    groups, scenes = np.nonzero(present.T)
    return answered_of(subject_of(present, labels, indices), right[scenes, groups]), present, right


def measured(answered: AllAnswers) -> tuple[Severity, ResultRows]:
    [severity], rows = measure_severity(answered)
    return severity, ResultRows(rows)


def test_curves_are_averages_over_classes_with_intervals_around_them() -> None:
    answered, present, right = fading(300, [0.4, 0.7, 0.9])
    severity, rows = measured(answered)
    labels = np.arange(300) % 3
    assert (
        severity.shift == "fog"
        and severity.ats == ("0", "0.25", "0.5", "0.75", "1")
        and severity.axis == "level"
    )
    assert (
        severity.trajectories == present[:, 0].sum()
        and severity.complete == present[:, :5].all(axis=1).sum()
    )
    assert [level.lost for level in severity.levels] == [
        (present[:, 0] & ~present[:, k]).sum() for k in range(1, 5)
    ]
    for model in range(3):
        accuracy = [
            np.mean(
                [right[present[:, k] & (labels == label), k, model].mean() for label in range(3)]
            )
            for k in range(5)
        ]
        for k, at in enumerate(severity.ats):
            row = rows.one("severity_accuracy", model=f"m{model}", group="fog", at=at)
            assert (
                row is not None
                and row.value == pytest.approx(accuracy[k])
                and row.n == present[:, k].sum()
            )
            low, value, high = interval_of(row)
            assert low < value < high
            if k:
                drop = rows.estimate("severity_drop", model=f"m{model}", group="fog", at=at)
                assert drop and drop.value == pytest.approx(accuracy[0] - accuracy[k])
    ten = [rows.one("severity_ten_points", model=f"m{model}", group="fog") for model in range(3)]
    assert [row.value for row in ten if row] == sorted(row.value or 2 for row in ten if row)


def test_the_drop_at_the_whole_shift_is_that_of_the_drop_measure() -> None:
    """Except for a class that is too small at a milder level only: curves leave it out."""
    answered, *_ = fading(300, [0.4, 0.7])
    _, rows = measured(answered)
    drops = answered.drops(4)
    assert drops is not None
    for model in range(2):
        drop = rows.estimate("severity_drop", model=f"m{model}", group="fog", at="1")
        assert drop == drops.interval(model)
    mild = (answered.subject.shifts == 1) & (answered.subject.labels == 0)
    fewer = replace(answered.answers, readable=answered.answers.readable & ~mild)
    without = replace(answered, answers=fewer, made={})
    _, rows = measured(without)
    drop = rows.estimate("severity_drop", model="m0", group="fog", at="1")
    drops = without.drops(4)
    assert drop is not None and drops is not None and len(drops.classes) == 3
    assert drop.value != pytest.approx(drops.drop[0])


def test_drops_of_classes_have_intervals_that_draw_the_trajectories_of_the_class() -> None:
    """Compare with a plain bootstrap with other draws."""
    answered, present, right = fading(150, [0.5, 0.9], lost=0.2)
    _, rows = measured(answered)
    rng = np.random.default_rng(7)
    for label, model, k in ((0, 0, 1), (1, 0, 3), (2, 1, 4)):
        of_class = np.flatnonzero((np.arange(150) % 3 == label) & present[:, :5].any(axis=1))
        drawn = []
        for _ in range(2000):
            some = rng.choice(of_class, len(of_class))
            base, shifted = (
                right[some[present[some, side]], side, model].mean() for side in (0, k)
            )
            drawn.append(base - shifted)
        at = f"{LEVELS[k - 1]:g}"
        row = rows.one(
            "severity_drop", model=f"m{model}", group="fog", class_id=f"{label:02d}", at=at
        )
        assert row is not None and row.n == present[of_class, k].sum() and row.value is not None
        assert row.value == pytest.approx(np.mean(drawn), abs=0.01)
        assert [row.low, row.high] == pytest.approx(
            np.quantile(drawn, [0.025, 0.975]).tolist(), abs=0.03
        )


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_no_drop_of_a_class_has_an_interval_of_no_width(lost: float) -> None:
    """Models: always right, always wrong, as right at every level as at the base, right at the base
    only."""
    rng = np.random.default_rng(3)
    labels = np.arange(36) % 3
    indices = np.arange(36) // 3
    present = rng.random((36, 6)) >= lost
    right = np.zeros((36, 6, 4), bool)
    right[..., 0], right[..., 2], right[:, 0, 3] = True, (indices < 6)[:, None], True
    groups, scenes = np.nonzero(present.T)
    _, rows = measured(answered_of(subject_of(present, labels, indices), right[scenes, groups]))
    drops = [row for row in rows.where("severity_drop", group="fog") if row.class_id]
    assert len(drops) == 3 * 4 * 4
    for row in drops:
        low, value, high = interval_of(row)
        assert -1 <= low <= value <= high <= 1 and high - low > 0.15


def test_an_image_without_its_pair_makes_no_interval_narrower_where_pairs_agree() -> None:
    labels = np.zeros(40, np.int64)
    indices = np.arange(40)
    right = np.broadcast_to((indices % 2 == 0)[:, None, None], (40, 6, 1))
    widths = []
    for bases in (39, 40):
        present = np.ones((40, 6), bool)
        present[39:, 1:] = False
        present[bases:, 0] = False
        groups, scenes = np.nonzero(present.T)
        _, rows = measured(answered_of(subject_of(present, labels, indices), right[scenes, groups]))
        drop = rows.estimate(
            "severity_drop",
            model="m0",
            group="fog",
            class_id="00",
            at="0.25",
        )
        low, _, high = interval_of(drop)
        widths.append(high - low)
    assert 0.08 < widths[0] <= widths[1]


def test_a_class_with_one_trajectory_has_drops() -> None:
    present = np.ones((3, 6), bool)
    answered = answered_of(
        subject_of(present, np.arange(3), np.zeros(3, np.int64)), np.ones((18, 1), bool)
    )
    _, rows = measured(answered)
    row = rows.one(
        "severity_drop",
        model="m0",
        group="fog",
        class_id="01",
        at="1",
    )
    assert row is not None and row.value == 0 and row.low is not None and row.low < -0.5


@pytest.mark.whole
def test_drops_of_classes_cover_the_truth() -> None:
    """Classes have 30 trajectories that can lose a level: 4 levels, 3 classes, 2 models, 100
    runs."""
    models = [0.5, 0.9]
    _, _, right = fading(300_000, models)
    truth = right[:, :1].mean(axis=0) - right[:, :5].mean(axis=0)
    covered = np.zeros((4, 2))
    for run in range(100):
        _, rows = measured(fading(90, models, lost=0.2, seed=run + 1)[0])
        for k in range(4):
            for model in range(2):
                key = {"model": f"m{model}", "group": "fog", "at": f"{LEVELS[k]:g}"}
                for row in (row for row in rows.where("severity_drop", **key) if row.class_id):
                    low, _, high = interval_of(row)
                    covered[k, model] += low <= truth[k + 1, model] <= high
    assert (covered / 300 >= 0.88).all() and covered.mean() / 300 >= 0.92, covered / 300


def test_failure_points_are_counts_where_nothing_is_lost_and_lie_between_bounds_where_something_is() -> (
    None
):
    answered, present, right = fading(300, [0.5], lost=0.0)
    _, rows = measured(answered)
    whole = right[present[:, :5].all(axis=1), :5, 0]
    whole = whole[whole[:, 0], 1:]
    for k, at in enumerate(("0.25", "0.5", "0.75", "1")):
        row = rows.one("severity_failed", model="m0", group="fog", at=at)
        complete = rows.one("severity_failed_complete", model="m0", group="fog", at=at)
        assert complete and complete.value == pytest.approx(
            (~whole[:, : k + 1]).any(axis=1).mean(), abs=1e-6
        )
        assert row and row.n and row.n >= len(whole)
    again = rows.one("severity_recovered", model="m0", group="fog")
    assert again and 0 < (again.value or 0) < 0.2
    answered, present, right = fading(300, [0.5], lost=0.2)
    _, rows = measured(answered)
    for at in ("0.25", "0.5", "0.75", "1"):
        hold, first, lasting, fail = (
            rows.value(f"severity_failed{ending}", model="m0", group="fog", at=at)
            for ending in ("_if_lost_hold", "", "_lasting", "_if_lost_fail")
        )
        assert hold is not None and first is not None and fail is not None and lasting is not None
        assert hold <= first <= fail and lasting <= first + 1e-6
    medians = [
        rows.value(f"severity_median{ending}", model="m0", group="fog")
        for ending in ("_if_lost_fail", "")
    ]
    assert medians[0] is not None and medians[1] is not None and medians[0] < medians[1]


def test_what_is_not_reached_has_no_value_and_says_so() -> None:
    answered, _, _ = fading(120, [3.0, 0.3])
    _, rows = measured(answered)
    for measure in ("severity_ten_points", "severity_median"):
        never = rows.one(measure, model="m0", group="fog")
        assert never and never.value is None and never.high is None and never.note == "not reached"
        reached = rows.one(measure, model="m1", group="fog")
        assert (
            reached
            and reached.value
            and reached.low
            and reached.low <= reached.value
            and not reached.note
        )


def test_models_are_compared_at_every_level_and_those_near_chance_are_not() -> None:
    answered, _, _ = fading(400, [0.4, 0.42, 0.9, 0.3])
    near = NearChance(np.array([False, False, False, True]), {"02": 0.3})
    answered = replace(answered, near_chance=near, made={})
    severity, rows = measured(answered)
    assert severity.classes == 2
    pairs = {(row.model, row.against) for row in rows.where("severity_difference")}
    assert len(pairs) == 3 and not any("m3" in pair for pair in pairs)
    tests = rows.where("severity_failure_difference")
    assert len(tests) == 3 and all(
        test.p is not None and test.q is not None and test.q >= test.p for test in tests
    )
    by_pair = {frozenset((test.model, test.against)): test for test in tests}
    apart = by_pair[frozenset(("m0", "m2"))]
    alike = by_pair[frozenset(("m0", "m1"))]
    assert apart.q is not None and apart.q < 0.01 and alike.q is not None and alike.q > 0.05
    best = rows.one("severity_rank", model="m2", group="fog", at="1")
    assert best and (best.value, best.low, best.high) == (1, 1, 1)
    assert rows.one("severity_accuracy", model="m3", group="fog", at="1") is not None


def test_a_class_with_few_images_at_a_level_has_failure_points_and_no_curve() -> None:
    answered, present, _ = fading(120, [0.5])
    subject = answered.subject
    lost = (subject.shifts == 4) & (subject.labels == 2)
    answers = replace(answered.answers, readable=~lost)
    severity, rows = measured(replace(answered, answers=answers, min_images=5))
    assert severity.left_out == ("class 2",) and severity.classes == 2
    row = rows.one("severity_failed", model="m0", group="fog", at="1")
    curve = rows.one("severity_accuracy", model="m0", group="fog", at="0")
    assert row and curve and (row.n or 0) > (curve.n or 0) * 0.9
    assert severity.trajectories == present[:, 0].sum()


def test_no_other_measure_knows_of_the_levels_between() -> None:
    answered, _, _ = fading(60, [0.5, 0.8])
    assert [answered.group(index).name for index in answered.places] == ["base", "fog", "blue"]
    assert [answered.group(shift).name for shift in answered.shifts] == ["fog", "blue"]
    scenes = trajectories_of(answered, [1, 2, 3, 4])
    subject = answered.subject
    for scene, side in zip(*np.nonzero(scenes.present), strict=True):
        assert subject.labels[scenes.rows[scene, side]] == scenes.labels[scene]
        assert subject.shifts[scenes.rows[scene, side]] == side


def test_draws_are_those_of_a_seed() -> None:
    answered, _, _ = fading(60, [0.5, 0.8])
    assert measure_severity(answered) == measure_severity(replace(answered, made={}))
