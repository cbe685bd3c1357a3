"""A measure is a line in a table, and then stands in every output; those of classes and of
confidence are right."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from colour_world import build_colours
from counterfoil.cli.main import app
from counterfoil.dataset.label_checks import judged_checks
from counterfoil.documents import csv_text
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, AnsweredGroup
from counterfoil.evaluation.tasks.classes.measures import (
    EVERYWHERE,
    MEASURES,
    NESTED_MEASURES,
    Measure,
    NestedMeasure,
)
from counterfoil.evaluation.tasks.classes.measures.label_checks import with_scored_judge
from counterfoil.evaluation.tasks.classes.report import terminal_lines
from counterfoil.report import results
from counterfoil.report.labels import labels_text
from counterfoil.report.published import PublishedResults
from counterfoil.report.results import NESTED, ResultRow, estimate_row, results_from
from counterfoil.report.sections import ReportSection, Shown
from counterfoil.report.words import Table, TableColumn, TableRow, text_cell
from support.estimates import interval_of
from support.measured import measured
from support.refusals import succeed
from support.tables import csv_rows


def answers_of(answered: AllAnswers) -> Iterator[ResultRow]:
    for shift in answered.shifts:
        for model in answered.models:
            images = len(answered.rows(shift))
            yield estimate_row(
                "brightness", images / 100, model=model, group=answered.group(shift).name, n=images
            )


def test_a_measure_of_ones_own_is_in_every_output(
    tmp_path: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Measure(
        answers_of, "Brightness of it all", "plain", "How bright a group is.", EVERYWHERE
    )
    monkeypatch.setitem(MEASURES.bundled, "brightness", measure)
    dataset = build_colours(tmp_path / "d")
    out = tmp_path / "out"
    result = evaluate(
        dataset, [models["sharp"]], device="cpu", out=out, into_card=True, reference=False
    )
    document = results_from((out / "results.json").read_bytes(), "results.json")
    assert document.rows.value("brightness", model=models["sharp"], group="swap") == 0.36
    lines = csv_rows(out / "measures.csv")
    assert {line["value"] for line in lines if line["measure"] == "brightness"} == {"0.36"}
    assert {line["brightness"] for line in csv_rows(out / "robustness.csv")} == {"36.000"}
    assert result.to_pandas()["brightness"].tolist() == [0.36, 0.36]
    assert result.scores[0].get("brightness") == result.number(
        "brightness", model=models["sharp"], group="dusk"
    )
    for page in ((out / "report.html").read_text(), (dataset / "README.md").read_text()):
        assert (
            "Brightness of it all" in page and "How bright a group is." in page and "0.36" in page
        )
    words = [
        "evaluate",
        str(dataset),
        "--models",
        models["sharp"],
        "--device",
        "cpu",
        "--no-reference",
    ]
    shown = CliRunner().invoke(app, words)
    assert "Brightness of it all" in " ".join(shown.stdout.split()) and "0.36" in shown.stdout
    message = result.to_json()
    assert [entry["value"] for entry in message["rows"] if entry["measure"] == "brightness"] == [
        0.36,
        0.36,
    ]


def test_a_nested_measure_of_ones_own_is_in_every_output(
    dataset: Path, tmp_path: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(answered: AllAnswers) -> tuple[PublishedResults, list[ResultRow]]:
        facts = PublishedResults("a" * 40, (), dict.fromkeys(answered.models, "made here"))
        return facts, [estimate_row("glare", 0.25, model=answered.models[0], group="swap")]

    table = Table(
        "Glare of each model",
        (TableColumn("model", "name"),),
        (TableRow((text_cell("only one"),)),),
    )
    shown = Shown(
        after="impact",
        section=lambda results, drawn: ReportSection(
            title="How much glare",
            sentences=["A quarter."],
            tables=[table],
            figures=drawn,
            alert="It glares",
        ),
        terminal=lambda results, most_models: ["glare: a quarter", table],
        warnings=lambda results: ["the glare is strong"],
        skipped=lambda results: ["No glare in the dark"],
        file="glare.csv",
        csv=lambda results: csv_text(
            [{"glare": entry.value} for entry in results.rows.where("glare")]
        ),
    )
    monkeypatch.setitem(NESTED, "published", shown)  # type: ignore[arg-type]
    nested = NestedMeasure(measure, lambda results: ["<svg>drawn</svg>"])
    monkeypatch.setitem(NESTED_MEASURES, "published", nested)  # type: ignore[arg-type]
    out = tmp_path / "out"
    words = [
        "evaluate",
        str(dataset),
        "--models",
        models["sharp"],
        "--device",
        "cpu",
        "--no-reference",
    ]
    done = succeed(*words, "--out", str(out))
    assert "Warning: the glare is strong" in done.stderr and "glare: a quarter" in done.stdout
    assert "only one" in done.stdout and f"glare:       {out / 'glare.csv'}" in done.stdout
    assert "No glare in the dark" in done.stderr
    document = results_from((out / "results.json").read_bytes(), "results.json")
    assert document.published == PublishedResults("a" * 40, (), {models["sharp"]: "made here"})
    assert document.rows.value("glare", model=models["sharp"], group="swap") == 0.25
    assert csv_rows(out / "glare.csv") == [{"glare": "0.25"}]
    page = (out / "report.html").read_text()
    assert (
        page.index(">Impact of each shift</h2>")
        < page.index(">How much glare</h2>")
        < page.index("accuracy</h2>")
    )
    assert (
        "<strong>A quarter.</strong>" in page
        and "<svg>drawn</svg>" in page
        and "Glare of each model" in page
    )
    assert '<a href="#how-much-glare">It glares</a>' in page and ", glare.csv" in page


def test_every_row_has_the_facts_of_its_measure(graded: Evaluation, evaluation: Evaluation) -> None:
    """Rows of nested measures as well, whose numbers are in separate tables only."""
    nested = {facts.name: facts for shown in NESTED.values() for facts in shown.measures}
    assert len(nested) == sum(len(shown.measures) for shown in NESTED.values()) and not set(
        nested
    ) & set(MEASURES)
    for scored in (graded, evaluation):
        facts = {measure.name for measure in scored.results.measures}
        assert {result.measure for result in scored.results.rows} <= facts
        assert facts - set(MEASURES) <= {result.measure for result in scored.results.rows}
    assert {"severity_drop", "severity_median_lasting"} <= {
        measure.name for measure in graded.results.measures
    }
    assert not any(measure.shown for measure in nested.values())
    with graded.files["robustness"].open() as file:
        assert not set(nested) & set(next(csv.reader(file)))


def test_recall_precision_and_confusion_are_counts_of_answers(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    rows = evaluation.results.rows
    key = {"model": models["sharp"], "group": "swap"}
    # A third of each class is painted as the next class: recall is two thirds, and so is precision.
    for class_id, taken_for in (("00", "01"), ("01", "02"), ("02", "00")):
        for measure in ("recall", "precision"):
            number = rows.one(measure, class_id=class_id, **key)
            assert number is not None and number.low is not None and number.high is not None
            assert (number.value, number.n) == (
                pytest.approx(2 / 3),
                12,
            ) and number.low < 2 / 3 < number.high
        mixed = rows.one("confusion", class_id=class_id, against=taken_for, **key)
        assert mixed is not None and (mixed.value, mixed.n) == (pytest.approx(1 / 3), 4)
    for model in models.values():
        for group in ("base", "dusk", "swap"):
            counts = [entry.n or 0 for entry in rows.where("confusion", model=model, group=group)]
            assert sum(counts) == 36


def test_images_of_few_a_class_have_an_accuracy_with_its_interval(photos: Path, named: str) -> None:
    result = measured(photos, [named], min_images_per_class=100)
    [score] = result.scores
    assert score.accuracy is not None and score.top1 is not None
    low, value, high = interval_of(score.top1)
    assert low < value < high


def test_calibration_error_is_the_mean_distance_of_confidence_from_accuracy() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(500).astype(np.float32)
    right = rng.random(500) < 0.7
    bins = np.minimum((confidence * 15).astype(np.int64), 14)
    naive = 0.0
    for at in range(15):
        in_bin = bins == at
        if in_bin.any():
            naive += in_bin.mean() * abs(
                right[in_bin].mean() - confidence[in_bin].astype(np.float64).mean()
            )
    of_group = MEASURES["calibration_error"].resampled
    assert of_group is not None
    group = AnsweredGroup(
        np.zeros(500, np.int64),
        right,
        right,
        confidence.astype(np.float64),
    )
    [error] = of_group(group, np.ones((1, 500)))
    assert error == pytest.approx(naive, abs=1e-5)


def test_bins_of_confidence_hold_all_images(evaluation: Evaluation, models: dict[str, str]) -> None:
    rows = evaluation.results.rows
    for name in models.values():
        bins = rows.where("calibration", model=name, group="base")
        assert sum(entry.n or 0 for entry in bins) == 36
        error = rows.estimate("calibration_error", model=name, group="base")
        distance = sum(
            (entry.n or 0)
            / 36
            * abs(
                (entry.value or 0)
                - (rows.value("confidence", model=name, group="base", at=entry.at) or 0)
            )
            for entry in bins
        )
        low, value, high = interval_of(error)
        assert value == pytest.approx(distance) and low <= value <= high


def test_a_document_is_read_as_it_was_written_and_an_earlier_one_is_refused_in_words(
    evaluation: Evaluation,
) -> None:
    text = evaluation.files["document"].read_text()
    document: dict[str, Any] = json.loads(text)
    assert results_from(text, "results.json").to_json() == document
    assert not any("class_id" in entry for entry in document["rows"])
    for version, problem in ((None, "version: "), (2, "earlier version")):
        with pytest.raises(UserError, match=problem):
            results_from(json.dumps({**document, "version": version}), "results.json")
    with pytest.raises(UserError, match=r"rows\.0"):
        results_from(
            json.dumps({**document, "rows": [{"measure": "drop", "value": "much"}]}), "results.json"
        )


def test_a_document_without_room_for_every_row_says_how_many_it_leaves_out(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluation.results.to_json()["rows"]
    without_at = [entry for entry in whole if "at" not in entry]
    monkeypatch.setattr(results, "MOST_ROWS", len(without_at))
    document = evaluation.results.to_json()
    assert document["rows"] == without_at, "bins and rules go first"
    assert document["rows_left_out"] == len(whole) - len(without_at) > 0
    assert results_from(json.dumps(document), "results.json").to_json() == document


JUDGE = "lab:resnet14t"
SHIFTS = ["base", "at_night", "red"]
COUNTS = {("base", "a"): (100, 0), ("at_night", "a"): (100, 40), ("red", "a"): (100, 10)}
SURE = {"a": {"a": 150}, "b": {"b": 150}}


def test_one_line_tells_of_the_base_and_of_the_shift_in_most_doubt() -> None:
    text = labels_text(judged_checks(JUDGE, COUNTS, SURE, SHIFTS))
    assert "estimated label error 0.0 % (" in text and "under base" in text and JUDGE in text
    assert (
        "at most 40.0 % (" in text
        and "under at_night" in text
        and "red" not in text
        and "300 validation" in text
    )
    plain = labels_text(judged_checks(JUDGE, COUNTS, None, SHIFTS))
    assert (
        "disagreement with the labels" in plain
        and "error 40" not in plain
        and "own error rate unknown" in plain
    )
    assert "no answer to any accepted image" in labels_text(judged_checks(JUDGE, {}, SURE, SHIFTS))


def test_an_estimate_comes_with_its_assumption_and_with_how_many_shifts_have_none() -> None:
    text = labels_text(judged_checks(JUDGE, COUNTS, SURE, [*SHIFTS, "fog"]))
    assert (
        "1 of 4 has no estimate" in text and "the estimate assumes" in text and "upper" not in text
    )
    whole = labels_text(judged_checks(JUDGE, COUNTS, SURE, SHIFTS))
    assert "no estimate" not in whole and "the estimate assumes" in whole
    assert "the estimate assumes" not in labels_text(judged_checks(JUDGE, COUNTS, None, SHIFTS))


def test_images_that_the_judge_picked_are_no_shift_in_doubt() -> None:
    text = labels_text(judged_checks(JUDGE, COUNTS, SURE, SHIFTS, picked={"at_night"}))
    assert "at_night" not in text and "under red" in text
    alone = labels_text(
        judged_checks(JUDGE, {("red", "a"): (100, 100)}, SURE, ["red"], picked={"red"})
    )
    assert "%" not in alone and "a keep rule chose" in alone


def test_a_judge_that_is_scored_too_is_reported_by_its_weights_or_its_name() -> None:
    checks = judged_checks(JUDGE, COUNTS, SURE, SHIFTS)
    pinned = {"judges": {JUDGE: {"sha256": "a" * 64}}}
    models = [
        ("lab:other", "b" * 64),
        ("local-dir:copy", "a" * 64),
        (JUDGE, "c" * 64),
        (JUDGE, None),
    ]
    reported = with_scored_judge(checks, pinned, models)
    assert reported is not None and reported.also_scored == ("local-dir:copy", JUDGE)
    assert labels_text(reported).endswith("its own drop is part of this estimate")
    other = with_scored_judge(checks, pinned, models[:1])
    assert other is not None and "its own drop" not in labels_text(other)
    assert with_scored_judge(None, pinned, models) is None


def test_a_dataset_without_a_second_judge_is_unchecked(evaluation: Evaluation) -> None:
    lines = [*terminal_lines(evaluation.results)]
    assert any("labels: not checked by a second judge" in str(line) for line in lines)
    document = evaluation.to_json()["label_checks"]
    assert document["judge"] is None
    assert "base" in [entry["shift"] for entry in document["shifts"]]


def test_of_images_that_no_build_made_nothing_is_said(photographed: Evaluation) -> None:
    assert photographed.label_checks is None and "label_checks" not in photographed.to_json()
