"""A gate: its grammar, its three answers against counts and formulas, what is undecided, and what
is written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from counterfoil.accuracy_stats import NearChance
from counterfoil.cli.main import app
from counterfoil.cli.terminal import make_console, print_json, print_line
from counterfoil.errors import UserError, raise_together
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.gate import (
    FAILED,
    UNDECIDED,
    GateLine,
    GateResult,
    Judged,
    gate_junit,
    gate_markdown,
    gate_sentence,
    gate_table,
    judge_gate,
    models_of,
    name_problems,
    read_gate,
    verdict_reason,
)
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.lines import ClassLines, line_measures
from counterfoil.report.labels import CheckedShare, JudgedLabels, LabelChecks, ShiftChecks
from counterfoil.report.terminal_tables import print_table
from counterfoil.stats import Estimate, wilson_interval
from prove_intervals import answered_of, gate_world, gated
from support.estimates import interval_of
from support.measured import measured
from support.refusals import problems_of, refuses, states, succeed

# How the images of the fixture `weather` are read.
WEATHER: Any = {"recipe": "wardrobe-mini", "groups": "weather", "base": "clear"}


def answered(counts: dict[str, tuple[int, int]], classes: int = 4, images: int = 50) -> AllAnswers:
    """Make answers; `counts` are, by group, the images of each class that `new` and `old` get
    right."""
    right = np.zeros((len(counts), classes, images, 2), bool)
    for group, pair in enumerate(counts.values()):
        for model, count in enumerate(pair):
            right[group, :, :count, model] = True
    return answered_of(right)


def lines_of(gate: Path | Sequence[str], subject: Subject | None = None) -> list[GateLine]:
    """Return the lines of a gate. Raise UserError with every problem, also those of names if a
    subject is given."""
    lines, errors = read_gate(
        gate,
        lambda line: () if subject is None else name_problems(line, subject, subject.classes),
        line_measures(),
    )
    raise_together(errors)
    return lines


def judged(
    answers: AllAnswers, *lines: str, checks: LabelChecks | None = None, **options: Any
) -> tuple[Judged, ...]:
    return judge_gate(ClassLines(answers, checks), lines_of(lines), ["new"], **options).judged


# ---- Lines


def test_lines_are_read_from_a_file_and_from_texts(tmp_path: Path) -> None:
    texts = [
        "accuracy(base) >= 80",
        " drop( at_night )<=10.5",
        "worse_than(local-dir:models/old, any) <= -1",
        'drop("a (b), c") <= 0',
        "relative_drop(fog) <= 10%",
        'accuracy(any, class="coffee mug") >= 90 %',
        "advisory: worse_than(main/results.json, fog, class = mug) <= 2",
    ]
    file = tmp_path / "gate.yaml"
    file.write_text("".join(f"- {json.dumps(text)}\n" for text in texts))
    lines = lines_of(file)
    assert lines == lines_of(texts)
    parts = [(line.measure, line.other_model, line.group, line.limit) for line in lines]
    assert parts == [
        ("accuracy", "", "base", 0.8),
        ("drop", "", "at_night", 0.105),
        ("worse_than", "local-dir:models/old", "any", -0.01),
        ("drop", "", "a (b), c", 0.0),
        ("relative_drop", "", "fog", 0.1),
        ("accuracy", "", "any", 0.9),
        ("worse_than", "main/results.json", "fog", 0.02),
    ]
    assert [line.class_name for line in lines[-3:]] == ["", "coffee mug", "mug"]
    assert [line.advisory for line in lines] == [False] * 6 + [True]
    assert models_of(lines) == ("local-dir:models/old",), "a stored evaluation is no model to score"


def test_yaml_needs_no_quotes_around_an_advisory_line_or_a_class(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text('- advisory: drop(fog) <= 10\n- accuracy(base, class="coffee mug") >= 90\n')
    assert lines_of(file) == lines_of(
        ["advisory: drop(fog) <= 10", 'accuracy(base, class="coffee mug") >= 90']
    )


def test_a_limit_below_one_needs_its_unit() -> None:
    """WRONG has the refusals."""
    limits = {
        "accuracy(base) >= 0.8 %": 0.008,
        "accuracy(base) ≥ .8%": 0.008,
        "accuracy(base) >= 1": 0.01,
        "accuracy(base) >= 0": 0.0,
        "accuracy(base) >= 100.": 1.0,
        "relative_drop(fog) <= 0.5 %": 0.005,
        "drop(fog) <= 0.5 points": 0.005,
        "drop(fog) <= 1 point": 0.01,
        "drop(fog) <= 7points": 0.07,
        "drop(fog) ≤ −0.5 points": -0.005,
        "drop(fog) <= 33.33333333333333": 1 / 3,
    }
    read = {text: lines_of([text])[0].limit for text in limits}
    assert read == pytest.approx(limits)


WRONG = {
    "__import__('os').system('true') <= 1": "expected MEASURE",
    "drop(at_night)": "expected MEASURE",
    "drop(at_night) <=": "expected MEASURE",
    "drop(at_night) <= 10 and accuracy(base) >= 1": "the limit is '10 and accuracy(base) >= 1'",
    "drops(at_night) <= 10": "no measure 'drops'; did you mean 'drop'",
    "drop(at_night) >= 10": "drop takes <=, not >=",
    "accuracy(base) > 80": "accuracy takes >=, not >",
    "drop(at_night) <= ten": "the limit is 'ten'",
    "drop(at_night) <= ١٠": "the limit is '١٠'",
    "drop(at_night) <= １０": "the limit is '１０'",
    "drop(at_night) <= 1e1": "the limit is '1e1'",
    "drop(at_night) <= nan": "the limit is 'nan'",
    "drop(at_night) <= inf": "the limit is 'inf'",
    "drop(at_night) <= 5 pp": "the limit is '5 pp'",
    f"drop(at_night) <= {'9' * 400}": "expected a number such as 2.5, from -100 to 100",
    "drop(at_night) <= 101": "expected a number such as 2.5, from -100 to 100",
    "accuracy(base) >= -1": "expected a number such as 2.5, from 0 to 100",
    "worse_than(any) <= 2": "worse_than takes a model and a group",
    "drop(old, any) <= 2": "drop takes one group",
    "drop(base) <= 2": "the base has no drop",
    'drop("") <= 2': "drop takes one group",
    "drop(red) <= 5": "has the same comparison as gate, line 1: drop(red) <= 10",
    "drop(red) <= 5%": "drop takes points: write 5 points, or relative_drop",
    "worse_than(old, red) <= 5 %": "worse_than takes points",
    "differs(any) <= 2": "differs takes a model and a group",
    "differs(old, red) <= 5 points": "differs takes percent: write 5 %",
    "differs(old, red) <= -1": "expected a number such as 2.5, from 0 to 100",
    "differs(old, red, accuracy) <= 2": "differs takes a model and a group",
    "accuracy(red) >= 5 points": "accuracy takes percent: write 5 %",
    "accuracy(red) >= 0.8": "0.8 would be 0.8 %: write 80 for 80 %, or 0.8 % if you mean it",
    "accuracy(red) >= .29": "write 29 for 29 %, or .29 % if you mean it",
    "relative_drop(at_night) <= 0.1": "write 10 for 10 %, or 0.1 % if you mean it",
    "drop(at_night) <= 0.05": "0.05 would be 0.05 points: write 5 for 5 points, or 0.05 points if"
    " you mean it",
    "worse_than(old, red) <= −0.5": "write -50 for -50 points, or -0.5 points if you mean it",
    "accuracy(class=mug) >= 5": "accuracy takes one group, and perhaps class=NAME",
    'drop(red, class="") <= 5': "drop takes one group",
    "drop(class=mug, red) <= 5": "drop takes one group",
    "relative_drop(base) <= 5": "the base has no drop",
    "advisery: drop(red) <= 5": "expected MEASURE",
}


def test_every_wrong_line_is_told_at_once() -> None:
    texts = ["drop(red) <= 10", *WRONG]
    problems = problems_of(lines_of, texts)
    assert len(problems) == len(WRONG)
    for number, (problem, words) in enumerate(zip(problems, WRONG.values(), strict=True), start=2):
        assert problem.startswith(f"gate, line {number}: ") and words in problem


@pytest.mark.parametrize(
    "text",
    [
        "drop(red) <= 10",
        "[]",
        "- {drop: 10}",
        "- {advisory: 1, drop: 2}",
        "- 3",
        "- !!python/object:os.system x",
        "",
    ],
)
def test_a_file_that_is_no_list_of_lines_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(text)
    with pytest.raises(UserError, match=r"gate\.yaml"):
        lines_of(tmp_path / "gate.yaml")


def test_a_line_alone_is_a_gate_of_one_line() -> None:
    assert read_gate("drop(red) <= 5", lambda line: (), line_measures()) == read_gate(
        ["drop(red) <= 5"], lambda line: (), line_measures()
    )


def test_a_class_is_meant_by_its_name_before_an_id() -> None:
    """Folders 0001, 0002 and so on are named like ids of the folders before them."""
    right = np.zeros((1, 4, 50, 2), bool)
    right[0, 2] = True
    answers = answered_of(right)
    classes = tuple(
        replace(cls, name=f"{label + 1:02d}") for label, cls in enumerate(answers.subject.classes)
    )
    assert [cls.id for cls in classes] == ["00", "01", "02", "03"]
    answers = replace(answers, subject=replace(answers.subject, classes=classes))
    named, by_id = judged(
        answers, "accuracy(base, class=03) >= 50", "accuracy(base, class=00) >= 50"
    )
    assert named.estimate and named.estimate.value == 1
    assert by_id.estimate and by_id.estimate.value == 0


def test_a_model_of_a_gate_is_no_list_of_models(weather: Path, tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("lab:resnet10t\n")
    gate = [f"worse_than({tmp_path}/results.csv, any) <= 2"]
    with pytest.raises(UserError, match=r"model '.*results\.csv'"):
        measured(weather, ["lab:resnet10t"], gate=gate, **WEATHER)


def test_problems_of_syntax_names_models_and_files_are_told_at_once(
    weather: Path, tmp_path: Path
) -> None:
    """Each at its line of the file, in the order of the lines; then models, then files."""
    texts = [
        "# limits",
        "",
        "- accuracy(base) >= 0.8",
        "- drop(gray) <= 5",
        "- 7",
        "- accuracy(any, class=mugg) => 5",
        "- accuracy(any, class=mugg) >= 5",
        "- worse_than(lab:resnet99t, any) <= 2",
        f"- worse_than({tmp_path}/released.json, dawn) <= 2",
    ]
    gate = tmp_path / "gate.yaml"
    gate.write_text("\n".join(texts))
    options = {"gate": gate, "out": tmp_path / "out", **WEATHER}
    problems = problems_of(evaluate, weather, ["lab:resnet98t"], **options)
    numbered = [problem.removeprefix(str(gate)).partition(":")[2] for problem in problems[:6]]
    assert [problem.partition(":")[0] for problem in numbered] == ["3", "4", "5", "6", "7", "9"]
    for problem, words in zip(
        numbered, ("80", "'grey'", "text", ">=, not =>", "'mugg'", "'dawn'"), strict=True
    ):
        assert words in problem
    assert (
        "resnet98t" in problems[6] and "resnet99t" in problems[7] and "released.json" in problems[8]
    )
    assert len(problems) == 9 and not (tmp_path / "out").exists()


# ---- Answers


def test_a_line_passes_fails_or_is_undecided_by_its_whole_interval() -> None:
    answers = answered({"base": (45, 45), "shift_1": (30, 40)})
    verdicts = []
    for limit in range(32, 90, 8):  # one line a gate: a gate takes no comparison twice
        [line] = judged(answers, f"accuracy(shift_1) >= {limit}")
        low, _, high = interval_of(line.estimate)
        least = limit / 100
        expected = "pass" if low >= least else "fail" if high < least else "undecided"
        assert line.verdict == expected
        assert (line.needed is not None) == (line.verdict == "undecided")
        verdicts.append(line.verdict)
    assert verdicts[0] == "pass" and verdicts[-1] == "fail" and "undecided" in verdicts


def test_a_group_called_any_is_meant_by_quotes() -> None:
    answers = answered({"base": (45, 40), "shift_1": (30, 41), "shift_2": (20, 41)})
    groups = (*answers.subject.groups[:2], replace(answers.subject.groups[2], name="any"))
    answers = replace(answers, subject=replace(answers.subject, groups=groups))
    shown = {
        text: [line.group for line in judged(answers, text)]
        for text in ("drop(any) <= 1", 'drop("any") <= 1')
    }
    assert shown == {"drop(any) <= 1": ["shift_1", "any"], 'drop("any") <= 1': ["any"]}
    assert len(judged(answers, *shown)) == 3, "one does not repeat the other"


def test_estimates_are_differences_of_class_averages() -> None:
    answers = answered({"base": (45, 40), "shift_1": (30, 41)})
    drop, worse, base = judged(
        answers, "drop(shift_1) <= 1", "worse_than(old, shift_1) <= 1", "accuracy(base) >= 1"
    )
    values = [line.estimate.value for line in (drop, worse, base) if line.estimate]
    assert values == pytest.approx([0.9 - 0.6, 0.82 - 0.6, 0.9])


def test_intervals_of_large_sets_are_those_of_the_paired_formula() -> None:
    """One comparison: the variance of the paired difference of each class, divided by its
    images."""
    rng = np.random.default_rng(1)
    base = rng.random((5, 2000)) < np.linspace(0.6, 0.95, 5)[:, None]
    shift = base ^ (rng.random(base.shape) < 0.15)
    right = np.stack([base, shift])[..., None].repeat(2, axis=3)
    [line] = judged(answered_of(right), "drop(shift_1) <= 1")
    differences = base.astype(float) - shift
    error = math.sqrt(float((differences.var(axis=1, ddof=1) / 2000).sum())) / 5
    low, _, high = interval_of(line.estimate)
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.06)


def test_a_longer_gate_has_wider_intervals_that_bonferroni_bounds() -> None:
    rng = np.random.default_rng(2)
    right = rng.random((13, 4, 200, 2)) < 0.7
    answers = answered_of(right)
    [alone] = judged(answers, "drop(shift_1) <= 1")
    together = judged(answers, "drop(any) <= 1")
    assert len(together) == 12
    widths = []
    for line in (alone, together[0]):
        assert line.estimate is not None
        widths.append(line.estimate.high - line.estimate.low)  # type: ignore[operator]
    assert 1.2 < widths[1] / widths[0] < 2.87 / 1.96 + 0.05  # the normal quantile of 0.05 / 24


def test_no_interval_is_without_width() -> None:
    answers = answered({"base": (50, 50), "shift_1": (50, 50)})
    for line in judged(
        answers,
        "accuracy(base) >= 99.9",
        "drop(shift_1) <= 0",
        "worse_than(old, any) <= 0.1 points",
    ):
        assert line.verdict == "undecided" and line.estimate is not None
        assert line.estimate.low < line.estimate.high  # type: ignore[operator]


@pytest.mark.parametrize("limit", [12, 24])
def test_as_many_images_as_are_said_to_be_needed_decide(limit: int) -> None:
    """Tile images in one order to about the number that the gate names, so that shares stay
    equal."""
    turn = np.random.default_rng(0).permutation(50)

    def repeated(times: int) -> Judged:
        base = turn < 45
        shift = np.random.default_rng(1).permutation(turn) < 36
        right = np.tile(np.stack([base, shift])[:, None, :, None], (1, 4, times, 2))
        return judged(answered_of(right), f"drop(shift_1) <= {limit}")[0]

    few = repeated(1)
    assert few.verdict == "undecided" and few.needed is not None and few.images == 50
    assert repeated(math.ceil(1.3 * few.needed / 50)).verdict == ("fail" if limit < 18 else "pass")
    assert repeated(max(1, math.floor(0.5 * few.needed / 50))).verdict == "undecided"


def test_a_class_that_a_model_forgot_counts() -> None:
    """Averages of the report leave it out, because it is near chance for the only scored model."""
    right = np.ones((2, 4, 50, 2), bool)
    right[:, 0, :, 0] = False
    near = NearChance(np.zeros(2, bool), {"00": 0.0}, {"00": 0.25})
    answers = answered_of(right)
    object.__setattr__(answers, "near_chance", near)
    accuracy, worse, drop = judged(
        answers, "accuracy(base) >= 80", "worse_than(old, base) <= 2", "drop(any) <= 10"
    )
    assert accuracy.verdict == worse.verdict == "fail"
    assert accuracy.estimate and accuracy.estimate.value == 0.75
    assert drop.verdict == "pass"


def test_a_misspelt_prefix_is_a_problem_of_its_line(tmp_path: Path) -> None:
    (tmp_path / "gate.yaml").write_text(
        "- advisery: drop(fog) <= 5\n- drup(fog) <= 5\n- drop(fog) <= 5\n"
    )
    problems = problems_of(lines_of, tmp_path / "gate.yaml")
    first, second = (problem.partition("gate.yaml:")[2] for problem in problems)
    assert first.startswith("1: advisery: drop(fog) <= 5: expected MEASURE") and "advisory" in first
    assert second.startswith("2: drup(fog) <= 5: there is no measure 'drup'")


def test_a_class_that_another_model_guesses_counts_in_a_drop() -> None:
    """Reports leave it out for all models. A gate judges one model, whatever is named beside it."""
    right = np.ones((2, 4, 50, 2), bool)
    right[1, 0, :, 0] = False
    right[:, 0, :, 1] = np.arange(50) % 4 == 0
    answers = answered_of(right)
    cells = {"00": np.array([False, True])}
    near = NearChance(np.zeros(2, bool), {"00": 0.6}, {"00": 0.25}, cells)
    object.__setattr__(answers, "near_chance", near)
    whole, of_class = judged(answers, "drop(shift_1) <= 10", "drop(shift_1, class=00) <= 10")
    assert whole.estimate and whole.estimate.value == 0.25 and whole.verdict == "fail"
    assert of_class.estimate and of_class.estimate.value == 1 and of_class.verdict == "fail"


def test_a_gate_at_all_its_limits_rarely_fails() -> None:
    """40 gates of 24 lines: at a rate of one in twenty, more than six fail in one of 300 runs of
    this test."""
    shares, lines = gate_world("drops, worse_than", 24, 0.8, 0.9)
    rng = np.random.default_rng(7)
    failed = [gated(rng, shares, np.full(10, 20), lines).verdict == "fail" for _ in range(40)]
    assert sum(failed) <= 6


def test_classes_of_few_images_are_not_taken_for_certain() -> None:
    """Of 60 lines at the truth, 1.5 should pass wrongly; with few images of the hard class, 10 once
    did."""
    shares = np.array([0.99] * 9 + [0.7])[None, :, None].repeat(2, axis=2)
    limit = float(shares[0, :, 0].mean())
    rng = np.random.default_rng(3)
    counts = np.array([200] * 9 + [5])
    results = [
        gated(rng, shares, counts, [GateLine("", "accuracy", "base", limit)]) for _ in range(60)
    ]
    assert sum(result.verdict == "pass" for result in results) <= 5


# ---- Relative drops, classes, advice


def test_a_relative_drop_is_the_drop_over_the_base_and_its_interval_is_fiellers() -> None:
    """In large sets: the shares d for which (1 - d)·base - shift can be zero, by the variances of
    paired shares."""
    rng = np.random.default_rng(4)
    base = rng.random((5, 3000)) < np.linspace(0.5, 0.9, 5)[:, None]
    shift = base & (rng.random(base.shape) < 0.85) | (rng.random(base.shape) < 0.05)
    right = np.stack([base, shift])[..., None].repeat(2, axis=3)
    [line] = judged(answered_of(right), "relative_drop(shift_1) <= 10%")
    means = base.mean(), shift.mean()
    covariance = (
        np.sum([np.cov(base[label], shift[label]) for label in range(5)], axis=0) / 3000 / 25
    )
    # Fieller (1954): roots of (shift - r·base)² = 1.96² (v_ss - 2 r v_bs + r² v_bb).
    square = 1.96**2
    polynomial = [
        means[0] ** 2 - square * covariance[0, 0],
        -2 * (means[0] * means[1] - square * covariance[0, 1]),
        means[1] ** 2 - square * covariance[1, 1],
    ]
    expected = sorted(1 - np.roots(polynomial).real)
    assert line.estimate is not None and line.estimate.value == pytest.approx(
        1 - means[1] / means[0]
    )
    width = expected[1] - expected[0]
    assert line.estimate.low == pytest.approx(expected[0], abs=0.05 * width)
    assert line.estimate.high == pytest.approx(expected[1], abs=0.05 * width)


@pytest.mark.parametrize(("base", "shift"), [(50, 0), (50, 50), (1, 0), (25, 50)])
def test_a_relative_drop_at_an_end_keeps_a_width(base: int, shift: int) -> None:
    [line] = judged(
        answered({"base": (base, 50), "shift_1": (shift, 50)}), "relative_drop(shift_1) <= 10%"
    )
    assert line.estimate is not None and line.estimate.value == pytest.approx(1 - shift / base)
    low = line.estimate.low
    high = line.estimate.high
    assert low is not None and high is not None
    assert (low <= line.estimate.value <= high) and low < high <= 1.0


def test_who_is_never_right_on_the_base_has_no_relative_drop() -> None:
    [line] = judged(
        answered({"base": (0, 50), "shift_1": (10, 50)}), "relative_drop(shift_1) <= 10%"
    )
    assert (
        line.verdict == "undecided"
        and line.reason == "new is right on no image of the base"
        and not line.estimate
    )


def test_a_line_of_a_class_is_of_its_images_alone() -> None:
    rng = np.random.default_rng(5)
    right = rng.random((3, 4, 60, 2)) < np.array([0.9, 0.6, 0.5])[:, None, None, None]
    answers = answered_of(right)
    accuracy, *drops, worse = judged(
        answers,
        'accuracy(base, class="class 2") >= 50',
        "drop(any, class=02) <= 1",
        "worse_than(old, shift_1, class=02) <= 1",
    )
    mean = right[:, 2].mean(axis=1)
    expected = [
        mean[0, 0],
        mean[0, 0] - mean[1, 0],
        mean[0, 0] - mean[2, 0],
        mean[1, 1] - mean[1, 0],
    ]
    values = [line.estimate.value for line in (accuracy, *drops, worse) if line.estimate]
    assert values == pytest.approx(expected) and {
        line.classes for line in (accuracy, *drops, worse)
    } == {(1, 1)}
    # The only share has Wilson's interval of its images.
    [alone] = judged(answers, "accuracy(base, class=02) >= 50")
    low, high = wilson_interval(int(right[0, 2, :, 0].sum()), 60)
    assert alone.estimate is not None and alone.estimate.low == pytest.approx(low, abs=0.02)
    assert alone.estimate.high == pytest.approx(high, abs=0.02)


def test_a_class_that_a_shift_lacks_is_passed_over_by_any_and_undecided_by_name() -> None:
    answers = answered({"base": (45, 45), "shift_1": (30, 45), "shift_2": (30, 45)})
    groups = (*answers.subject.groups[:2], replace(answers.subject.groups[2], class_labels=(0, 1)))
    answers = replace(answers, subject=replace(answers.subject, groups=groups))
    lines = judged(answers, "drop(any, class=03) <= 1", "accuracy(shift_2, class=03) >= 50")
    assert [(line.group, line.verdict) for line in lines] == [
        ("shift_1", "fail"),
        ("shift_2", "undecided"),
    ]
    assert lines[1].reason == "03 has fewer than 1 images"


def test_a_line_tells_of_classes_that_its_group_lacks() -> None:
    right = np.ones((2, 4, 50, 2), bool)
    right[0, :, 45:] = right[1, :, 40:] = False
    present = np.ones(right.shape[:3], bool)
    present[1, 3] = False
    answers = answered_of(right, present)
    base, shift = answers.subject.groups
    lines = ("drop(shift_1) <= 50", "accuracy(shift_1) >= 60")
    for prompt, over in (("", "; over 3 of 4 classes"), ("in {}", "")):
        of_shift = replace(shift, class_labels=(0, 1, 2), prompt=prompt)
        subject = replace(answers.subject, groups=(base, of_shift))
        drop, accuracy = judged(replace(answers, subject=subject), *lines)
        assert drop.verdict == accuracy.verdict == "pass"
        assert verdict_reason(drop).endswith("; over 3 of 4 classes, from 90.0 %")
        assert verdict_reason(accuracy) == f"the whole interval is at least 60.0{over}"


@pytest.mark.parametrize("limit", ["10.0", "0.25", "0.05", "12.345"])
def test_a_reason_has_the_limit_as_it_is_written(limit: str) -> None:
    answers = answered({"base": (45, 45), "shift_1": (5, 45)})
    [line] = judged(answers, f"drop(shift_1) <= {limit} points")
    assert verdict_reason(line) == f"the whole interval is above {limit}"


def test_an_advisory_line_is_answered_and_never_fails() -> None:
    answers = answered({"base": (45, 45), "shift_1": (20, 40)})
    lines = lines_of(
        ["accuracy(base) >= 50", "advisory: drop(shift_1) <= 10", "advisory: accuracy(base) >= 90"]
    )
    result = judge_gate(ClassLines(answers), lines, ["new"])
    assert [line.verdict for line in result.judged] == ["pass", "fail", "undecided"]
    assert result.verdict == "pass" and result.exit_code == 0
    result.raise_if_failed()
    assert [line["advisory"] for line in result.to_json()["lines"]] == [False, True, True]
    sentence = (
        "The gate says pass for new (1 comparison: 1 pass; 2 advisory comparisons: 1 fail,"
        " 1"
        " undecided)."
    )
    assert gate_sentence(result) == sentence
    suite = ElementTree.fromstring(gate_junit(result).encode())
    assert [[child.tag for child in case] for case in suite] == [[], ["skipped"], ["skipped"]]
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "2")
    assert [row.cells[3].text for row in gate_table(result).rows] == ["pass", "fail", "undecided"]
    # The interval is corrected for advisory lines too.
    alone = judge_gate(ClassLines(answers), lines[:1], ["new"]).judged[0].estimate
    together = result.judged[0].estimate
    assert alone is not None and together is not None
    assert together.high - together.low > alone.high - alone.low  # type: ignore[operator]


# ---- What is undecided


def test_what_says_nothing_is_undecided() -> None:
    answers = answered({"base": (45, 45), "shift_1": (10, 45), "shift_2": (10, 45)})
    object.__setattr__(answers, "near_chance", NearChance(np.array([True, True])))
    share = CheckedShare(0.0, 0.0, 0.1)
    checked = [ShiftChecks(name, JudgedLabels(50, 0, share, None)) for name in ("base", "shift_1")]
    checks = LabelChecks("judge", 10, tuple(checked))
    lines = [
        "drop(shift_1) <= 5",
        "worse_than(old, shift_1) <= 5",
        "accuracy(shift_2) >= 50",
        "accuracy(base) >= 50",
    ]
    judged_lines = judged(answers, *lines, checks=checks)
    assert [line.verdict for line in judged_lines] == ["undecided"] * 3 + ["pass"]
    reasons = [line.reason for line in judged_lines]
    assert reasons[:2] == ["new is near chance on the base", "old is near chance on the base"]
    assert reasons[2] == "nobody checked its labels"
    assert all(line.estimate is not None and line.needed is None for line in judged_lines[:3])
    # where labels are the images' own
    assert [line.verdict for line in judged(answers, lines[2])] == ["fail"]


def test_no_shift_and_too_few_images_are_undecided() -> None:
    alone = answered({"base": (45, 45)})
    [line] = judged(alone, "drop(any) <= 5")
    assert line.verdict == "undecided" and line.reason == "the dataset has no shift"
    object.__setattr__(alone, "min_images", 51)
    [few] = judged(alone, "accuracy(base) >= 50")
    assert few.verdict == "undecided" and few.reason == "no class has 51 images"


def test_a_group_of_which_most_classes_lack_images_is_undecided() -> None:
    right = np.ones((2, 10, 50, 2), bool)
    present = np.ones(right.shape[:3], bool)
    for lacking, verdict in ((4, "pass"), (6, "undecided")):
        present[1, :lacking, 4:] = False
        answers = answered_of(right, present)
        object.__setattr__(answers, "min_images", 5)
        lines = judged(
            answers,
            "accuracy(shift_1) >= 50",
            "drop(shift_1) <= 50",
            "worse_than(old, shift_1) <= 50",
        )
        assert [line.verdict for line in lines] == [verdict] * 3
        drop, *accuracies = lines[1], lines[0], lines[2]
        assert (drop.classes, *(line.classes for line in accuracies)) == (
            (10 - lacking, 10),
            (10, 10),
            (10, 10),
        )
        with_classes = lines if verdict == "undecided" else [drop]
        assert all(
            f"{10 - lacking} " in verdict_reason(line) and "10 classes" in verdict_reason(line)
            for line in with_classes
        )


def test_images_that_a_judge_chose_do_not_judge_it() -> None:
    answers = answered({"base": (45, 45), "shift_1": (45, 0)})
    judges: Any = SimpleNamespace(shifts=(SimpleNamespace(index=1, judges=("old",)),))
    pins = {"old": {"architecture": "a", "sha256": "old", "targets": [[0]]}}
    scored: Any = tuple(
        SimpleNamespace(
            classifier=SimpleNamespace(name=name, architecture="a", sha256=name),
            class_map=SimpleNamespace(targets=((0,),)),
        )
        for name in answers.models
    )
    answers = replace(
        answers, scored=scored, subject=replace(answers.subject, judged=judges, pins=pins)
    )
    worse, accuracy = judged(answers, "worse_than(old, shift_1) <= 5", "accuracy(shift_1) >= 50")
    assert (
        worse.verdict == "undecided"
        and worse.reason == "its images were chosen because old gets them wrong"
    )
    assert accuracy.verdict == "pass"


def test_a_line_does_not_fail_by_less_than_what_wrong_labels_may_cost() -> None:
    """Answer undecided, with the share of wrong labels, where a failing line would not fail without
    them."""
    answers = answered({"base": (45, 45), "shift_1": (25, 45)})  # the drop is 40 points

    def checks(wrong: float) -> LabelChecks:
        judge = JudgedLabels(
            50, 0, CheckedShare(0.0, 0.0, 0.1), CheckedShare(wrong, wrong - 0.1, wrong + 0.1)
        )
        return LabelChecks("judge", 10, (ShiftChecks("base", judge), ShiftChecks("shift_1", judge)))

    lines = (
        "drop(shift_1) <= 10",
        "relative_drop(shift_1) <= 10%",
        "accuracy(shift_1) >= 80",
        "worse_than(old, shift_1) <= 5",
    )
    assert [line.verdict for line in judged(answers, *lines, checks=checks(0.1))] == ["fail"] * 4
    doubted = judged(answers, *lines, checks=checks(0.42))
    assert [line.verdict for line in doubted] == ["undecided"] * 3 + ["fail"], (
        "two models share their wrong labels"
    )
    assert {line.reason for line in doubted[:3]} == {"42 % (32 to 52) of its labels may be wrong"}


def test_a_drop_needs_the_labels_of_both_sides() -> None:
    share = CheckedShare(0.0, 0.0, 0.1)
    checks = LabelChecks("judge", 10, (ShiftChecks("shift_1", JudgedLabels(50, 0, share, None)),))
    answers = answered({"base": (45, 45), "shift_1": (45, 45)})
    drop, accuracy = judged(
        answers, "drop(shift_1) <= 50", "accuracy(shift_1) >= 50", checks=checks
    )
    assert drop.reason == "nobody checked the labels of the base" and accuracy.verdict == "pass"


def test_names_that_the_images_lack_are_mistakes_of_the_gate() -> None:
    answers = answered({"base": (45, 45), "shift_1": (45, 45)})
    groups = (replace(answers.subject.groups[0], name="clear"), answers.subject.groups[1])
    classes = (
        *answers.subject.classes[:2],
        *(replace(cls, name="mug") for cls in answers.subject.classes[2:]),
    )
    subject = replace(answers.subject, groups=groups, classes=classes)
    wrong = {
        "drop(shift_11) <= 5": "has no shift or group 'shift_11'; did you mean 'shift_1'?",
        "drop(clear) <= 5": "'clear' is the base, which has no drop",
        "accuracy(base, class=clas_1) >= 5": "has no class 'clas_1'; did you mean 'class 1'?",
        "accuracy(any, class=mug) >= 5": "2 classes are called 'mug'; give an id",
    }
    right = [
        "accuracy(base) >= 5",
        "drop(any, class=02) <= 5",
        'accuracy(clear, class="class 1") >= 5',
    ]
    assert len(lines_of(right, subject)) == len(right)
    problems = problems_of(lines_of, [*right, *wrong], subject)
    assert len(problems) == len(wrong)
    for problem, words in zip(problems, wrong.values(), strict=True):
        assert words in problem
    with refuses("unfit-line", "gate, line 1"):
        lines_of(["drop(any) <= 5"], replace(subject, base=False))
    answers = replace(answers, subject=subject)
    first, second = judged(answers, "accuracy(base) >= 50", "accuracy(clear) >= 51")
    assert first.group == second.group == "clear" and first.verdict == second.verdict == "pass"


def test_the_images_that_are_told_are_those_of_the_side_that_has_fewer() -> None:
    right = np.ones((2, 4, 300, 2), bool)
    present = np.ones((2, 4, 300), bool)
    present[0, :, 8:] = False
    [line] = judged(answered_of(right, present), "drop(shift_1) <= 4")
    assert line.images == 8 and line.verdict == "undecided"


def result_of(
    *verdicts: str,
    allow: bool = False,
    text: str = "drop(x) <= 1",
    name: str = "m",
    reason: str = "",
) -> GateResult:
    line = GateLine(text, "drop", name, 0.01)
    estimate = Estimate(0.0, -0.1, 0.1)
    answers: Any = verdicts
    rows: Any = [
        Judged(line, name, name, verdict, estimate, 10.0, 20, reason * (verdict == "undecided"))
        for verdict in answers
    ]
    return GateResult(name, (name,), tuple(rows), allow)


def test_a_failed_line_goes_before_an_undecided_one() -> None:
    codes = [
        result_of(*verdicts, allow=allow).exit_code
        for verdicts in (("pass",), ("pass", "undecided"), ("undecided", "fail"))
        for allow in (False, True)
    ]
    assert codes == [0, 0, UNDECIDED, 0, FAILED, FAILED]


# ---- What is written

HOSTILE = (
    "<img src=x>|]]>&\x00\n::error::`@you`[a](http://x.example) https://y.example"
    " www.z.example o/r#12 GH-12 gh-3 :tada: :+1:"
)


def test_junit_and_markdown_hold_names_as_text() -> None:
    result = result_of("fail", "undecided", "pass", text=HOSTILE, name=HOSTILE, reason=HOSTILE)
    suite = ElementTree.fromstring(gate_junit(result).encode())
    assert [[child.tag for child in case] for case in suite] == [["failure"], ["error"], []]
    assert {case.get("classname") for case in suite} == {
        HOSTILE.replace("\x00", " ").replace("\n", " ")
    }
    allowed = ElementTree.fromstring(gate_junit(result_of("undecided", allow=True)).encode())
    assert allowed[0][0].tag == "skipped" and allowed.get("errors") == "0"
    text = gate_markdown(result)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<tr>") == 4 and html.count("<td") == 3 * 5
    assert "<img" not in html and "href" not in html
    assert not re.search(
        r"@you|#12|(?i:gh)-\d|:tada:|:\+1:|://|www\.", re.sub(r"(`+).+?\1", "", text)
    )


def test_a_line_that_is_copied_from_markdown_is_a_line_of_a_gate() -> None:
    """Find visible characters alone in gate.md, and each line as it was written."""
    lines = [
        "worse_than(python:package.module:function, any) <= 2",
        "accuracy(www.a, class=b:c) >= 80",
    ]
    for line in lines:
        text = gate_markdown(result_of("pass", text=line))
        assert f"`{line}`" in text and text.replace("\n", "").isprintable()
        assert [read.text for read in lines_of([line])] == [line]


# ---- The lab's models


GATES = {
    0: ["accuracy(base) >= 50", "drop(grey) <= 99", "worse_than(lab:resnet14t, base) <= 40"],
    FAILED: ["accuracy(base) >= 50", "drop(any) <= 5", "relative_drop(grey) <= 1%"],
    UNDECIDED: ["accuracy(base) >= 90", "advisory: drop(grey) <= 5"],
}


def command(weather: Path, out: Path) -> list[str]:
    options = [word for name, value in WEATHER.items() for word in (f"--{name}", value)]
    words = ["evaluate", str(weather), *options, "--device", "cpu", "--models", "lab:resnet10t"]
    return [*words, "--out", str(out)]


@pytest.mark.parametrize("code", GATES)
def test_the_command_ends_with_the_answer(code: int, weather: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate.yaml"
    out = tmp_path / "out"
    gate.write_text("".join(f"- {line}\n" for line in GATES[code]))
    done = CliRunner().invoke(app, [*command(weather, out), "--gate", str(gate)])
    assert done.exit_code == code, done.output
    assert [text for text in GATES[code] if text not in done.stdout] == []
    table, _, _ = (out / "gate.md").read_text().partition("#### ")
    assert table.count("\n| ") == 1 + len(GATES[code])
    cases = ElementTree.parse(out / "gate.xml").getroot()
    assert {case.get("classname") for case in cases} == {"lab:resnet10t"}


def test_python_prints_what_the_command_prints(
    weather: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate.yaml"
    gate.write_text("".join(f"- {line}\n" for line in GATES[UNDECIDED]))
    words = command(weather, tmp_path / "out")
    done = succeed(*words, "--gate", str(gate), "--allow-undecided")
    result = measured(weather, ["lab:resnet10t"], gate=gate, **WEATHER)
    assert result.gate is not None
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert f"{result.gate}\n" in done.stdout
    assert GATES[UNDECIDED][0] in str(result.gate) and "says undecided" in str(result.gate)


def test_python_has_the_answers(weather: Path) -> None:
    models = {"new": "lab:resnet10t", "old": "lab:resnet14t"}
    gate = ["worse_than(old, any) <= 50", "drop(any) <= 5"]
    result = measured(weather, models, gate=gate, **WEATHER)
    assert (
        result.gate is not None and result.gate.models == ("new",) and result.gate.verdict == "fail"
    )
    assert [line.group for line in result.gate.judged] == ["clear", "grey", "grey"]
    lines = result.to_json()["gate"]["lines"]
    score = result.score("new", "grey")
    assert score.drop is not None and lines[2]["value"] == pytest.approx(score.drop.value)
    # With six images a class and two lines, no narrower than the report's interval, which is for
    # one.
    assert lines[2]["high"] - lines[2]["low"] > (score.drop.high or 0) - (score.drop.low or 0)
    assert lines[2]["low"] < score.drop.value < lines[2]["high"]


def test_a_gate_that_judges_nobody_is_refused(weather: Path, tmp_path: Path) -> None:
    gate = ["worse_than(lab:resnet14t, any) <= 2"]
    with refuses("missing-model", "", "judges no model"):
        measured(weather, ["lab:resnet14t"], gate=gate, **WEATHER)
    gate = ["worse_than(old, any) <= 2"]
    with refuses("unlisted-model", "gate", "'old'"):
        measured(weather, {"new": "lab:resnet10t"}, gate=gate, **WEATHER)
    refused = CliRunner().invoke(app, ["evaluate", str(weather), "--allow-undecided"])
    assert isinstance(refused.exception, UserError)
    assert states(refused.exception, "unfit-option", "allow_undecided")
    keys = CliRunner().invoke(
        app, ["evaluate", str(weather), "--write-keys", str(tmp_path / "k"), "--allow-undecided"]
    )
    assert isinstance(keys.exception, UserError)
    assert "--allow-undecided does not go with --write-keys" in str(keys.exception)


@pytest.mark.parametrize("width", [30, 200])
def test_no_line_of_output_is_a_command_to_a_runner(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    name = ":::add-mask::x ##[group]y :::stop-commands:::z"
    print_line(name)
    assert name in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    print_line(name)
    table = gate_table(result_of("fail", text=name, name=name))
    rows = tuple(replace(row, cells=row.cells[1:]) for row in table.rows)
    # a group in the first column
    for shown in (table, replace(table, columns=table.columns[1:], rows=rows)):
        print_table(make_console(width), shown)
    print_json({name: name})
    out = capsys.readouterr().out
    assert "##[" not in out and not [
        line for line in out.splitlines() if line.lstrip().startswith("::")
    ]
    assert json.loads(out[out.index("{\n") :]) == {name: name}
