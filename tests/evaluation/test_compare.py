"""Two models compared image by image: exact tests and gains against independent references, and
honest words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from statsmodels.stats.proportion import proportion_confint

from colour_world import build_colours
from counterfoil.accuracy_stats import NearChance
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import Subject, labelled_subject
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking, ModelAnswers
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels, compare_models
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import Predictions
from counterfoil.recipe import RecipeClass
from counterfoil.report.comparison import ModelComparison, comparison_sentences, comparison_table
from counterfoil.report.results import ResultRow, ResultRows, Results
from counterfoil.stats import Estimate
from support.estimates import interval_of
from support.measured import measured
from support.refusals import refuses, succeed
from support.tables import csv_rows

PAIR = ("mended", "original")
CLASSES = tuple(
    RecipeClass(f"{label:02d}", name, label, label, ()) for label, name in enumerate("ab")
)


def subject_of(images: Sequence[int], *, units: tuple[str, ...] | None = None) -> Subject:
    """Make groups with so many images of each of two classes; the first group is the base."""
    groups = np.repeat(np.arange(len(images)), [2 * n for n in images])
    labels = np.concatenate([np.arange(2 * n) % 2 for n in images]).astype(np.int64)
    keys = tuple(map(str, range(len(groups))))
    names = tuple(f"group{index}" for index in range(len(images)))
    labelled = LabelledImages(
        "made", "0" * 64, keys, labels, groups, names, lambda wanted: iter(()), units
    )
    return labelled_subject("made", labelled, CLASSES, "group0")


@dataclass(frozen=True)
class Group:
    gain: ResultRow
    drop_gain: Estimate | None
    accuracies: tuple[float | None, float | None]
    only_mended: int
    only_original: int
    says: str
    is_base: bool
    classes: int


@dataclass(frozen=True)
class Compared:
    comparison: ModelComparison
    rows: ResultRows

    @property
    def groups(self) -> list[Group]:
        groups = []
        for group in self.comparison.groups:
            keys = [self.comparison.key(group.name, of_original=side) for side in (False, True)]
            gain = self.rows.one("gain", **keys[0])
            only = [self.rows.one("only_right", **key) for key in keys]
            assert gain is not None and only[0] is not None and only[1] is not None
            groups.append(
                Group(
                    gain,
                    self.rows.estimate("drop_gain", **keys[0]),
                    (
                        self.rows.value("compared_accuracy", **keys[0]),
                        self.rows.value("compared_accuracy", **keys[1]),
                    ),
                    only[0].count,
                    only[1].count,
                    self.comparison.says(group.name, self.rows),
                    group.is_base,
                    group.classes,
                )
            )
        return groups

    @property
    def average(self) -> Estimate | None:
        return self.comparison.average(self.rows)

    @property
    def verdict(self) -> list[str]:
        return comparison_sentences(self.comparison, self.rows, None)


def comparison_of(results: Results) -> Compared:
    assert results.comparison is not None
    return Compared(results.comparison, results.rows)


def compared(
    subject: Subject,
    correct: NDArray[np.bool_],
    min_images: int = 1,
    near: NearChance | None = None,
) -> Compared:
    """Compare the columns of `correct` (images, 2): mended and original."""
    labels = subject.labels[:, None].astype(np.int32)
    prediction = np.where(correct, labels, 1 - labels).astype(np.int32)
    answers = ModelAnswers(np.ones(len(correct), dtype=bool), prediction, correct, correct)
    near = near or NearChance(np.zeros(2, dtype=bool))
    scored: Any = tuple(
        SimpleNamespace(
            classifier=SimpleNamespace(name=name, sha256=None),
            class_map=ClassMap("names", 2, ((0,), (1,))),
            predictions=Predictions.empty(len(correct)),
        )
        for name in PAIR
    )
    asking = Asking(ChosenModels(subject.classes), "cpu", 1)
    requests = (ComparedModels(*PAIR),)
    comparison, rows = compare_models(
        AllAnswers(subject, scored, answers, near, min_images, 0, asking, requests)
    )
    assert comparison is not None
    return Compared(comparison, ResultRows(rows))


def test_the_numbers_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(0)
    subject = subject_of([20, 30, 25])
    correct = rng.random((len(subject.keys), 2)) < (0.8, 0.6)
    result = compared(subject, correct)
    for index, group in enumerate(result.groups):
        rows = [row for row in range(len(subject.keys)) if subject.shifts[row] == index]
        assert group.gain.n == len(rows)
        assert group.only_mended == sum(
            bool(correct[row, 0] and not correct[row, 1]) for row in rows
        )
        assert group.only_original == sum(
            bool(correct[row, 1] and not correct[row, 0]) for row in rows
        )
        means = [
            np.mean(
                [
                    np.mean([correct[row, side] for row in rows if subject.labels[row] == label])
                    for label in (0, 1)
                ]
            )
            for side in (0, 1)
        ]
        assert group.gain.value == pytest.approx(means[0] - means[1])
        low, value, high = interval_of(group.gain)
        assert low <= value <= high
        assert group.is_base == (index == 0) and (group.drop_gain is None) == group.is_base
    first, second = result.groups[:2]
    assert first.gain.value is not None and second.gain.value is not None and second.drop_gain
    # A drop is base less shift, so its shrinking is the gain on the shift less that on the base.
    assert second.drop_gain.value == pytest.approx(second.gain.value - first.gain.value)
    values = [group.gain.value for group in result.groups if group.gain.value is not None]
    assert result.average is not None and result.average.value == pytest.approx(np.mean(values))


def test_the_interval_of_a_drop_that_shrinks_lies_where_it_shrank() -> None:
    rng = np.random.default_rng(3)
    subject = subject_of([100, 100])
    rates = np.where((subject.shifts == 1)[:, None], (0.9, 0.5), (0.9, 0.9))
    drop_gain = compared(subject, rng.random((len(subject.keys), 2)) < rates).groups[1].drop_gain
    low, value, high = interval_of(drop_gain)
    assert 0.1 < low < value < high < 0.7


@pytest.mark.parametrize("right", [(True, True), (False, False), (True, False), (False, True)])
def test_gains_that_are_equal_on_all_images_have_intervals(right: tuple[bool, bool]) -> None:
    """Reaches of classes are joined as independent ones are. A gain of 1 or -1 can only be nearer
    to 0."""
    subject = subject_of([20, 30])
    comparison = compared(subject, np.tile(right, (len(subject.keys), 1)))
    gain = int(right[0]) - int(right[1])

    def interval(sizes: list[int], signs: list[int]) -> tuple[float, float]:
        """Return the ends for classes of these sizes, whose gains are added or subtracted."""
        squares = np.zeros(2)
        for size, sign in zip(sizes, signs, strict=True):
            if gain:
                reach = proportion_confint(0, size, method="wilson")[1]
                squares[0 if gain * sign > 0 else 1] += reach**2
            else:
                squares += 1.959964**2 / (sum(sizes) + 2) / size
        below, above = np.sqrt(squares) / 2
        return -below, above

    sizes = {
        (label, group): int(((subject.labels == label) & (subject.shifts == group)).sum())
        for label in (0, 1)
        for group in (0, 1)
    }
    drop_gain = comparison.groups[1].drop_gain
    assert drop_gain is not None and drop_gain.value == 0
    expected = interval(list(sizes.values()), [-1, 1, -1, 1])
    assert (drop_gain.low, drop_gain.high) == pytest.approx(expected, rel=1e-5)
    below = 0.0
    above = 0.0
    for index in (0, 1):
        low, high = interval([sizes[0, index], sizes[1, index]], [1, 1])
        measured = comparison.groups[index].gain
        assert (measured.low, measured.high) == pytest.approx(
            (max(gain + low, -1), min(gain + high, 1)), rel=1e-5
        )
        below = below + low / 2
        above = above + high / 2
    # Both groups may have the same images, so the average of their reaches is that of the average
    # gain.
    average = comparison.average
    assert average is not None and average.value == gain
    assert (average.low, average.high) == pytest.approx(
        (max(gain + below, -1), min(gain + above, 1)), rel=1e-5
    )


def test_a_class_with_equal_gains_reaches_as_far_as_the_other_classes_suggest() -> None:
    """Gains differ from 0 on eight of forty images of one class, and on none of the other's
    forty."""
    subject = subject_of([40, 40])
    right = np.ones((len(subject.keys), 2), dtype=bool)
    varied = np.flatnonzero((subject.labels == 0) & (subject.shifts == 1))
    right[varied[:4], 0] = right[varied[4:8], 1] = False
    gain = compared(subject, right).groups[1].gain
    assert gain.value == 0 and gain.high is not None
    assert gain.high == pytest.approx(1.96 * np.sqrt(8 / 40 / 40 + 9 / 82 / 40) / 2, rel=0.1)


def test_accuracies_have_the_gain_as_their_difference_also_where_a_class_is_near_chance() -> None:
    subject = subject_of([20, 20])
    correct = np.ones((len(subject.keys), 2), dtype=bool)
    correct[subject.labels == 1] = (True, False)  # class b, which only the mended model knows
    result = compared(
        subject, correct, near=NearChance(np.array([False, True]), {CLASSES[1].id: 0.1})
    )
    for group in result.groups:
        assert group.accuracies == (1.0, 0.5)
        assert group.gain.value == 0.5 and group.only_mended == 20
    assert result.groups[1].drop_gain is not None and result.groups[1].drop_gain.value == 0
    table = comparison_table(result.comparison, result.rows)
    assert [[cell.text for cell in row.cells[2:5]] for row in table.rows] == [
        ["50.0", "100.0", "+50.0"]
    ] * 2
    comparison = result.comparison
    assert (comparison.near_chance, comparison.classes_near_chance) == (("original",), ("b",))
    text = " ".join(result.verdict)
    assert "original is near chance on the base" in text and "near chance on the base (b)" in text
    whole = compared(subject, correct)
    assert whole.groups[0].accuracies == (1.0, 0.5) and "near chance" not in " ".join(whole.verdict)


def test_the_two_turned_round_give_the_opposite() -> None:
    subject = subject_of([20, 20])
    correct = np.random.default_rng(1).random((len(subject.keys), 2)) < 0.5
    forward = compared(subject, correct)
    backward = compared(subject, correct[:, ::-1])
    for group, other in zip(forward.groups, backward.groups, strict=True):
        assert (
            other.gain.value is not None
            and group.gain.low is not None
            and other.gain.high is not None
        )
        assert group.gain.value == pytest.approx(-other.gain.value)
        assert group.gain.low == pytest.approx(-other.gain.high)
        assert (group.gain.p, group.only_mended) == (other.gain.p, other.only_original)


def test_a_head_that_loses_more_elsewhere_than_it_gains_is_said_to() -> None:
    subject = subject_of([60, 60, 60])
    correct = np.ones((len(subject.keys), 2), dtype=bool)
    in_group = subject.shifts == 1
    correct[in_group & (subject.indices < 24), 1] = False  # 40 points gained in one group
    correct[~in_group & (subject.indices < 36), 0] = False  # 60 lost in each of two
    result = compared(subject, correct)
    assert [group.says for group in result.groups] == ["loses", "gains", "loses"]
    assert result.verdict[0] == (
        "It loses more than it gains: 40.0 points gained, summed over 1 group; 120.0 points lost, summed"
        " over 2 groups."
    )
    better = compared(subject, correct[:, ::-1])
    assert better.verdict[0].startswith("It gains more than it loses: 120.0 points gained")
    correct[:, 0] = correct[:, 1]
    equal = compared(subject, correct)
    assert equal.verdict[0] == "Both models are right equally often in every group."
    assert {group.gain.p for group in equal.groups} == {1.0}


@pytest.mark.parametrize("side", [0, 1])
def test_what_the_averages_interval_leaves_open_is_not_decided(side: int) -> None:
    """Forty of sixty are gained in one group and forty-four lost in the other: either sum can be
    larger."""
    subject = subject_of([60, 60])
    correct = np.ones((len(subject.keys), 2), dtype=bool)
    correct[(subject.shifts == 0) & (subject.indices < 40), side] = False
    correct[(subject.shifts == 1) & (subject.indices >= 16), 1 - side] = False
    result = compared(subject, correct)
    low, _, high = interval_of(result.average)
    assert low < 0 < high
    sentences = result.verdict
    assert sentences[0].startswith("It is not clear whether it gains more than it loses: ")
    assert "may be chance" in sentences[1]


def test_images_of_one_unit_are_drawn_together() -> None:
    """Eight copies of each image under one unit give the interval of the image alone."""
    copies = 8
    single = subject_of([12])
    correct = np.random.default_rng(2).random((len(single.keys), 2)) < 0.5
    # Two classes in turn, so that copies of an image are 24 rows apart.
    units = tuple(str(row % len(single.keys)) for row in range(copies * len(single.keys)))
    with_units = subject_of([12 * copies], units=units)
    as_units = compared(with_units, np.tile(correct, (copies, 1))).groups[0].gain
    apart = compared(subject_of([12 * copies]), np.tile(correct, (copies, 1))).groups[0].gain
    alone = compared(single, correct).groups[0].gain
    assert as_units.value == pytest.approx(alone.value)
    widths = []
    for gain in (as_units, apart, alone):
        low, _, high = interval_of(gain)
        widths.append(high - low)
    assert widths[0] == pytest.approx(widths[2], rel=0.15)
    assert widths[1] < 0.5 * widths[2]


@pytest.mark.parametrize(("mended", "original"), [(0, 1), (1, 0)])
@pytest.mark.parametrize(("count", "first"), [(8, 5), (12, 7)])
def test_images_of_few_units_are_no_chance_ruled_out(
    mended: int, original: int, count: int, first: int
) -> None:
    """Ten images a class of each unit: one model is right about five of eight units, or seven of
    twelve."""
    units = tuple(str(row // 2 % count) for row in range(20 * count))
    subject = subject_of([10 * count], units=units)
    correct = np.zeros((20 * count, 2), dtype=bool)
    ahead = np.asarray([int(unit) < first for unit in units])
    correct[ahead, mended] = True
    correct[~ahead, original] = True
    group = compared(subject, correct).groups[0]
    assert group.gain.q is not None and group.gain.q < 0.02  # as for independent images
    if count < 10:
        assert group.gain.low is None and group.gain.high is None
    else:
        low, _, high = interval_of(group.gain)
        assert low < 0 < high
    assert group.says == "within chance"
    apart = compared(subject_of([10 * count]), correct).groups[0]
    assert apart.says == ("gains" if mended == 0 else "loses")


def test_a_group_with_too_few_images_is_not_measured() -> None:
    subject = subject_of([10, 2])
    result = compared(
        subject, np.random.default_rng(3).random((len(subject.keys), 2)) < 0.5, min_images=5
    )
    few = result.groups[1]
    assert (few.classes, few.gain.n, few.gain.value, few.gain.p, few.gain.q) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert few.drop_gain is None and few.says == "not measured"
    nothing = compared(subject, np.ones((len(subject.keys), 2), dtype=bool), min_images=50)
    assert nothing.average is None and nothing.verdict == [
        "No group has a class with enough images, so the models cannot be compared."
    ]


def test_evaluate_compares_two_models(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    pair = (models["sharp"], models["no_green"])
    result = evaluate(dataset, compare=pair, out=tmp_path, device="cpu", reference=False)
    assert [model.name for model in result.models] == [*pair]
    base, dusk, swap = comparison_of(result.results).groups
    for group in (base, dusk):
        # A third of the classes is green.
        assert group.gain.value == pytest.approx(1 / 3)
        assert (group.only_mended, group.only_original) == (12, 0)
    # Under swap four of the twelve greens are blue.
    assert swap.gain.value == pytest.approx(8 / 36)
    assert (swap.only_mended, swap.only_original) == (8, 0)
    scores = [result.score(name, "swap").drop for name in pair]
    drops = [drop.value for drop in scores if drop]
    assert swap.drop_gain is not None and swap.drop_gain.value == pytest.approx(drops[1] - drops[0])
    rows = csv_rows(tmp_path / "compare.csv")
    assert [row["shift"] for row in rows] == ["base", "dusk", "swap", ""]
    assert [row["only_model_right"] for row in rows] == ["12", "12", "8", ""]
    assert float(rows[0]["gain"]) == pytest.approx(100 / 3, abs=1e-3)
    assert float(rows[0]["different_answers"]) == pytest.approx(100 / 3, abs=1e-3)
    assert 0 < float(rows[0]["largest_difference"]) <= 100
    for row in rows[:3]:  # green, near chance, counts on both sides
        assert float(row["model_accuracy"]) - float(row["other_accuracy"]) == pytest.approx(
            float(row["gain"]), abs=2e-3
        )
    page = (tmp_path / "report.html").read_text()
    assert "Two models compared" in page and "It only gains" in page
    # None of two plain models is mended: columns have their own names.
    heads = page.partition("<body")[2].partition("<script")[0]
    assert not re.search("mended|original", heads, re.IGNORECASE)
    assert "mended" not in (tmp_path / "compare.csv").read_text().splitlines()[0]
    assert json.loads(json.dumps(result.to_json()))["comparison"]["groups"][2]["name"] == "swap"
    table = comparison_table(comparison_of(result.results).comparison, result.results.rows)
    labels = [column.label for column in table.columns]
    assert labels[2:4] == ["no_green (%)", "sharp (%)"] and "only sharp right" in labels
    assert [row.cells[5].text for row in table.rows] == ["–", "0.0", "0.0"], (
        "as green is near chance"
    )


def test_without_compare_nothing_is_compared(evaluation: Evaluation) -> None:
    assert "comparison" not in evaluation.to_json() and "compare" not in evaluation.files
    assert "Two models compared" not in evaluation.files["report"].read_text()


def test_what_an_evaluation_does_not_write_is_not_left_beside_its_report(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    """Files of an earlier evaluation are removed, and files of a person never."""
    sharp = models["sharp"]
    no_green = models["no_green"]
    at_times = ("compare.csv", "transfer.csv", "distances.csv", "findings.csv")
    for name in (*at_times, "eval_results/own.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine\n")
    options: Any = {"out": tmp_path, "device": "cpu", "reference": False}
    first = evaluate(dataset, [sharp, no_green], repo="somebody/set", **options)
    assert all((tmp_path / name).read_text() == "mine\n" for name in at_times)
    entries = {path.name for path in first.files["entries"].iterdir()} - {"own.yaml"}
    assert len(entries) == 2
    evaluate(dataset, compare=(sharp, no_green), repo="somebody/set", **options)
    assert (tmp_path / "compare.csv").read_text() != "mine\n"
    assert all((tmp_path / name).read_text() == "mine\n" for name in at_times[1:])
    (tmp_path / "notes.csv").write_text("mine\n")
    last = evaluate(dataset, [sharp], **options)
    assert "compare" not in last.files and "entries" not in last.files
    assert not (tmp_path / "compare.csv").exists() and (tmp_path / "notes.csv").exists()
    assert [path.name for path in (tmp_path / "eval_results").iterdir()] == ["own.yaml"]


def test_the_command_prints_the_verdict(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    words = [
        "evaluate",
        str(dataset),
        "--models",
        models["sharp"],
        "--compare",
        models["no_red"],
        models["sharp"],
    ]
    done = succeed(*words, "--device", "cpu", "--no-reference", "--out", str(tmp_path))
    assert "It only loses" in done.stdout and "compare:" in done.stdout


def test_what_cannot_be_compared_is_reported(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    sharp = models["sharp"]
    with refuses("invalid-option", "compare"):
        measured(dataset, compare=(sharp, sharp))
    with refuses("unlisted-model", "compare", "'nine'"):
        measured(dataset, {"mine": sharp, "none": models["no_red"]}, compare=("mine", "nine"))
    listed = tmp_path / "list.txt"
    listed.write_text(f"{models['no_red']}\n")
    with refuses("unlisted-model", "compare", "list.txt"):
        measured(dataset, compare=(str(listed), sharp))


def test_names_of_given_models_are_compared(dataset: Path, models: dict[str, str]) -> None:
    given_models = {"new": models["sharp"], "old": models["no_blue"]}
    result = measured(dataset, given_models, compare=("new", "old"))
    assert comparison_of(result.results).comparison.mended == "new"
    assert min(group.gain.value or 0.0 for group in comparison_of(result.results).groups) >= 0


def test_independent_noise_draws_each_group_by_itself(
    models: dict[str, str], tmp_path: Path
) -> None:
    built = build_colours(tmp_path / "dataset", "samples.noise=independent")
    result = measured(built, compare=(models["sharp"], models["no_red"]))
    assert not result.results.paired
    assert comparison_of(result.results).groups[0].gain.value == pytest.approx(1 / 3)
