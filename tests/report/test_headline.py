"""A headline names the shift that loses most after what is known of its labels, in every output by
one rule."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from counterfoil.dataset.card.sections import robustness_of
from counterfoil.evaluation.entries import drop_words
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.report import drops_table
from counterfoil.report.comparison import ComparedGroup, ModelComparison, comparison_sentences
from counterfoil.report.headline import by_loss, headline_of
from counterfoil.report.labels import (
    CheckedShare,
    JudgedLabels,
    LabelChecks,
    SelectedByPeople,
    ShiftChecks,
)
from counterfoil.report.results import ResultRow, ResultRows, Results, estimate_row
from counterfoil.report.words import Table, TableColumn, csv_percent
from counterfoil.stats import Estimate
from results_examples import group, model, results
from support.reports import evaluation_html

NOTE = "42 % (34 to 50) of its labels may be wrong"


def judged(shift: str, wrong: float | None, images: int = 150) -> ShiftChecks:
    share = None if wrong is None else CheckedShare(wrong, max(0.0, wrong - 0.08), wrong + 0.08)
    return ShiftChecks(shift, JudgedLabels(images, 0, CheckedShare(0.0, 0.0, 0.1), share))


def seen_by_people(shift: str, seen: float, judge: ShiftChecks) -> ShiftChecks:
    people = SelectedByPeople(20, CheckedShare(seen, seen - 0.05, seen + 0.05), None, 0, None, None)
    return replace(judge, people=people)


def measured(drops: dict[str, float], *checks: ShiftChecks, models: int = 1) -> Results:
    """Return results of these drops with intervals of 6 points to either side, and these checks of
    labels."""
    made = results(models, 0)
    rows = [
        ResultRow("accuracy", model=model.name, group="base", value=0.9, low=0.8, high=1.0)
        for model in made.models
    ]
    for name, value in drops.items():
        ends = {"value": value, "low": value - 0.06, "high": value + 0.06}
        rows += [ResultRow("impact", group=name, **ends)]
        rows += [ResultRow("drop", model=model.name, group=name, **ends) for model in made.models]
        rows += [
            ResultRow("drop_base", model=model.name, group=name, value=0.9) for model in made.models
        ]
    return replace(
        made,
        groups=(made.groups[0], *(group(name) for name in drops)),
        rows=ResultRows(rows),
        label_checks=LabelChecks("judge", 10, (judged("base", 0.0), *checks)) if checks else None,
    )


DOUBTED = measured(
    {"sketch": 0.387, "snow": 0.263, "red": 0.145},
    judged("sketch", 0.42),
    judged("snow", 0.05),
    judged("red", 0.0),
)

FIRST = (
    "snow: 26.3 points of accuracy (20.3 to 32.3); 5 % (0 to 13) of its labels may be wrong;"
    " sketch shows 38.7"
)


def test_wrong_labels_count_before_the_largest_drop_is_named() -> None:
    assert headline_of(DOUBTED) == f"model-0 loses most under {FIRST} points, but {NOTE}."
    assert DOUBTED.label_checks is not None
    checks = DOUBTED.label_checks.shifts[1:]
    several = headline_of(measured({"sketch": 0.387, "snow": 0.263}, *checks, models=2))
    assert several.startswith(
        "The models lose most under snow: 26.3 points of accuracy on average ("
    )


def test_a_rounding_error_at_0_makes_no_loss_certain() -> None:
    # A sum of differences of shares, such as (0.7 - 0.6) + (0.8 - 0.9), may miss 0 by 3e-17.
    rows = measured({"snow": 0.1}).rows
    impact = estimate_row("impact", Estimate(0.1, 3e-17, 0.2), group="snow")
    others = [row for row in rows if row.measure != "impact"]
    made = replace(measured({"snow": 0.1}), rows=ResultRows([*others, impact]))
    assert headline_of(made).startswith("model-0 may lose most under snow: 10.0 points")
    assert "The interval includes 0." in headline_of(made)
    nothing = estimate_row(
        "impact",
        Estimate(1e-16, -0.1, 0.1),
        group="snow",
    )
    made = replace(made, rows=ResultRows([*others, nothing]))
    assert headline_of(made).startswith("model-0 shows no loss of accuracy under any shift")


def test_no_number_is_minus_0() -> None:
    drop = estimate_row(
        "drop",
        Estimate(-4e-7, -0.0, 0.1),
        model="model-0",
        group="snow",
    )
    made = replace(measured({"snow": 0.1}), rows=ResultRows([drop]))
    (written,) = made.to_json()["rows"]
    assert [math.copysign(1.0, written[name]) for name in ("value", "low")] == [1.0, 1.0]
    texts = (
        csv_percent(drop.value),
        drop_words(
            Estimate(-4e-7, -4e-7, 0.1),
            0.9,
            "",
        ),
    )
    assert texts == (
        "0.000",
        "; drop from the base 0.0 points of 90.0 %, 95 % interval 0.0 to 10.0",
    )


def test_every_output_headlines_by_the_same_rule() -> None:
    text = evaluation_html(DOUBTED)
    sentence = headline_of(DOUBTED)
    evaluation = Evaluation(DOUBTED, "set", None, (), {})
    assert sentence in text and evaluation.to_json()["headline"] == sentence
    assert repr(evaluation).index("26.3") < repr(evaluation).index(
        "sketch shows 38.7 points, but 42 %"
    )
    card = robustness_of(DOUBTED)
    assert card.sentences[0] == sentence
    assert [cell.text for cell in card.summary.rows[0].cells[-2:]] == ["snow: 26.3", "red: 14.5"]


def test_people_are_asked_before_the_judge() -> None:
    checks = [seen_by_people("sketch", 0.95, judged("sketch", 0.42)), judged("snow", 0.05)]
    trusted = headline_of(measured({"sketch": 0.387, "snow": 0.263}, *checks))
    assert (
        "most under sketch: 38.7" in trusted
        and "5 % (0 to 10) of its labels may be wrong." in trusted
    )


@pytest.mark.parametrize(
    "checks",
    [
        pytest.param(judged("sketch", None), id="no estimate"),
        pytest.param(judged("sketch", 0.42, images=5), id="few images"),
        pytest.param(replace(judged("sketch", 0.42), picked=True), id="picked by the judge"),
    ],
)
def test_what_is_not_known_of_labels_takes_nothing(checks: ShiftChecks) -> None:
    doubted = measured({"sketch": 0.387}, checks)
    assert [row.group for row in by_loss(doubted, doubted.rows.where("impact"))] == ["sketch"]
    assert "sketch: 38.7" in headline_of(doubted) and "may be wrong" not in headline_of(doubted)


def test_unchecked_labels_are_no_headline_beside_checked_ones() -> None:
    assert "under snow" in headline_of(measured({"fog": 0.5, "snow": 0.263}, judged("snow", 0.0)))
    assert headline_of(measured({"fog": 0.5, "snow": 0.263})).endswith(
        "(44.0 to 56.0). The labels are unchecked."
    )


def test_a_drop_that_wrong_labels_may_explain_is_no_certain_one() -> None:
    assert headline_of(measured({"sketch": 0.387}, judged("sketch", 0.42))) == (
        f"model-0 may lose most under sketch: 38.7 points of accuracy (32.7 to 44.7); {NOTE}."
    )


def test_a_table_without_a_drop_says_why() -> None:
    """Say in terminal, report and JSON why every drop is a dash: classes of four images, or a model
    that guesses."""
    few = replace(results(1, 1), groups=(group("base"), replace(group("fog"), classes=0)))
    sentence = (
        "No drop can be measured: no class has 5 images under a shift and on the base"
        " (--min-images)."
    )
    assert headline_of(few) == sentence and sentence in evaluation_html(few)
    guessing = replace(results(1, 1), models=(model("model-0", near_chance=True),))
    assert (
        headline_of(guessing) == "No drop can be measured: every model is near chance on the base."
    )


def test_one_model_shows_each_drop_once() -> None:
    """Show a drop of one model without the average over models, its slope, or the base again, on
    page and terminal."""
    alone, pair = (measured({"fog": 0.2}, models=models) for models in (1, 2))
    drops = re.search(r'<table class="drops">.*?</table>', evaluation_html(alone), re.DOTALL)
    # and in its label
    assert drops is not None and drops[0].count("20.0</a>") == 1 and drops[0].count("20.0") == 2
    assert "of 90.0" not in drops[0] and "impact" not in drops[0]
    for shown, heads in (
        (alone, ["shift", "model-0", "relative drop"]),
        (pair, ["shift", "model-0", "model-1"]),
    ):
        table = drops_table(shown, shown.models)
        assert [column.label for column in table.columns][: len(heads)] == heads
        assert "slope" not in [column.label for column in table.columns]
    assert len(drops_table(alone, alone.models).columns) == 3


def test_the_report_shows_the_gate_and_folds_what_most_readers_skip() -> None:
    sentence = "The gate says fail for m."
    table = Table("The gate", (TableColumn("line", "name"),), ())
    text = evaluation_html(DOUBTED, gate=(sentence, table))
    assert text.index(sentence) < text.index(
        "Drop in accuracy"
    ) and sentence not in evaluation_html(DOUBTED)
    folded = " ".join(re.findall(r'<details class="fold">.*?</details>', text, re.DOTALL))
    assert all(
        f">{title}</h2>" in folded for title in ("Shifts", "Models", "How each number is computed")
    )
    assert not any(
        f">{title}</h2>" in folded for title in ("Drop in accuracy", "Are the labels still true?")
    )


def test_a_comparison_says_it_beside_the_gain() -> None:
    pair = ModelComparison("new", "old", (ComparedGroup("sketch", None, False, 3),))
    key = {"model": "new", "against": "old"}
    gain = {"value": 0.2, "low": 0.1, "high": 0.3}
    rows = [
        ResultRow("gain", **key, **gain),
        ResultRow("gain", group="sketch", q=0.001, n=9, **key, **gain),
    ]
    rows += [ResultRow("only_right", group="sketch", value=0.3, n=100, **key)]
    sentences = " ".join(comparison_sentences(pair, ResultRows(rows), DOUBTED.label_checks))
    assert f"more often right in sketch (+20.0; {NOTE})." in sentences
