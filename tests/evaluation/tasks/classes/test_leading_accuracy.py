"""The accuracy that leads is one number over all classes, wherever it stands; a headline says what
intervals allow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from colour_world import CANDIDATES, build_colours
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.report import drops_table
from counterfoil.evaluation.trackers import tracked_run
from counterfoil.plan.layout import Sample
from counterfoil.report.headline import loss_sentence
from counterfoil.report.results import ResultRow
from counterfoil.report.terminal_tables import print_table
from results_examples import results
from support.estimates import interval_of
from support.tables import csv_rows


def accuracy_by_hand(
    predictions: Path, model: str, group: str, classes: set[str] | None = None
) -> float:
    """Average over classes, in a plain loop over all rows, the share of images that are right."""
    right_of_class: dict[str, list[bool]] = {}
    for answer in pq.read_table(predictions).to_pylist():
        if answer["shift"] == group and (classes is None or answer["class_id"] in classes):
            right_of_class.setdefault(answer["class_id"], []).append(answer[f"right.{model}"])
    shares = [sum(right) / len(right) for right in right_of_class.values()]
    return sum(shares) / len(shares)


def one_of_few(sample: Sample) -> bool:
    """Keep two images of green on the base, fewer than a drop needs."""
    return not (sample.shift == "base" and sample.label == 1 and sample.index >= 2)


def every(sample: Sample) -> bool:
    return True


# Name of a case → its model, its images, and the right accuracy on the base.
CASES = {
    "a class near chance": ("no_green", every, 2 / 3),
    "a constant answer": ("only_blue", every, 1 / 3),
    "a class of few images": ("no_green", one_of_few, 2 / 3),
}


@pytest.mark.parametrize("case", CASES)
def test_the_accuracy_that_leads_is_over_all_classes_in_every_output(
    case: str, tmp_path: Path, models: Mapping[str, str]
) -> None:
    name, keep, right = CASES[case]
    dataset = build_colours(tmp_path / "d", keep=keep)
    model = models[name]
    gate = ["accuracy(base) >= 10", "drop(swap) <= 90"]
    result = evaluate(
        dataset,
        [model],
        device="cpu",
        out=tmp_path / "out",
        reference=False,
        gate=gate,
        into_card=True,
    )
    expected = accuracy_by_hand(result.files["predictions"], model, "base")
    assert expected == pytest.approx(right)
    base = result.results.base_number(model)
    low, _, high = interval_of(base)
    assert low <= expected <= high and low < high
    assert_told(result, model, expected, dataset)
    for shift in result.shifts:
        accuracy = result.score(model, shift.name).accuracy
        assert accuracy == pytest.approx(
            accuracy_by_hand(result.files["predictions"], model, shift.name)
        )
        assert_drop_names_its_classes(result, model, shift.name)


def assert_told(result: Evaluation, model: str, expected: float, dataset: Path) -> None:
    """Assert that each output has this accuracy beside its number for the base."""
    shown = f"{100 * expected:.1f} %"
    files = result.files
    console = Console(record=True, width=200)
    print_table(console, drops_table(result.results, result.models))
    [line] = [
        line for line in console.export_text().splitlines() if line.strip().startswith("base ")
    ]
    assert shown in line
    index = (files["report"].parent / "index.html").read_text()
    tile = re.search(
        r'<dt>accuracy on the base</dt><dd class="value">([^<]*)<', files["report"].read_text()
    )
    assert tile is not None and tile[1] == shown
    assert shown in repr(result) and f"an accuracy of {shown} on the base" in index
    [line] = [
        line
        for line in (dataset / "README.md").read_text().splitlines()
        if "| loses most under |" in line.lower()
    ]
    card = (dataset / "README.md").read_text().split(line)[1].splitlines()[2]
    assert card.split("|")[2].strip().startswith(shown)
    assert csv_rows(files["results"])[0]["base"] == f"{100 * expected:.3f}"
    assert {row["base_accuracy"] for row in csv_rows(files["robustness"])} == {
        f"{100 * expected:.3f}"
    }
    rows = json.loads(files["document"].read_text())["rows"]
    [document] = [row for row in rows if (row["measure"], row.get("group")) == ("accuracy", "base")]
    assert document["value"] == pytest.approx(expected, abs=1e-6)
    metrics = tracked_run(result.results, files, result.gate, None).metrics
    assert metrics[f"{result.models[0].short_name}/base/accuracy"] == pytest.approx(expected)
    assert result.gate is not None and result.gate.judged[0].estimate is not None
    assert result.gate.judged[0].estimate.value == pytest.approx(expected)


def assert_drop_names_its_classes(result: Evaluation, model: str, shift: str) -> None:
    """Assert that a drop is the difference of two accuracies over the classes that its note
    counts."""
    drop = result.results.rows.one("drop", model=model, group=shift)
    if drop is None:
        return
    group = next(group for group in result.shifts if group.name == shift)
    left_out = {cls.class_id for cls in group.left_out}
    classes = {cls.id for cls in result.results.classes} - left_out
    base, shifted = (
        accuracy_by_hand(result.files["predictions"], model, side, classes)
        for side in ("base", shift)
    )
    assert result.score(model, shift).drop_base == pytest.approx(base)
    assert drop.value == pytest.approx(base - shifted)
    assert drop.note == (f"over {len(classes)} of 3 classes" if left_out else "")
    page = result.files["report"].read_text()
    assert (drop.note in page) or not left_out
    judged = (
        [judged for judged in result.gate.judged if judged.group == shift] if result.gate else []
    )
    assert all(line.base == pytest.approx(base) for line in judged if line.base is not None)


def of_shift(
    name: str, value: float, low: float | None, high: float | None, note: str = ""
) -> ResultRow:
    return ResultRow(
        "drop",
        group=name,
        value=value,
        low=low,
        high=high,
        note=note,
    )


# Drops → what a headline may say of them.
HEADLINES = [
    (
        [of_shift("fog", 0.12, 0.08, 0.15)],
        "It loses most under fog: 12.0 points of AP (8.0 to 15.0).",
    ),
    (
        [of_shift("fog", 0.12, -0.01, 0.25)],
        "It may lose most under fog: 12.0 points of AP (−1.0 to 25.0). The interval includes 0.",
    ),
    (
        [of_shift("fog", 0.0, -0.215, 0.215)],
        "It shows no loss of AP under any shift, but the intervals allow a loss of up to 21.5"
        " points (fog).",
    ),
    (
        [of_shift("fog", -0.01, -0.05, 0.03), of_shift("at_night", -0.02, -0.14, 0.1)],
        "It shows no loss of AP under any shift, but the intervals allow a loss of up to 10.0"
        " points (at night).",
    ),
    ([of_shift("fog", -0.1, -0.15, -0.05)], "It loses no AP under any shift."),
    (
        [of_shift("fog", 0.1, None, None)],
        "It may lose most under fog: 10.0 points of AP. There are too few images for an interval.",
    ),
    (
        [of_shift("fog", 0.0, None, None)],
        "It shows no loss of AP under any shift, but has too few images for an interval.",
    ),
    (
        [of_shift("fog", 0.1, 0.05, 0.15, "over 2 of 3 labels"), of_shift("rain", 0.02, 0.0, 0.04)],
        "It loses most under fog: 10.0 points of AP (5.0 to 15.0), over 2 of 3 labels.",
    ),
]


@pytest.mark.parametrize(("drops", "sentence"), HEADLINES)
def test_a_headline_says_what_the_intervals_allow(drops: list[ResultRow], sentence: str) -> None:
    assert loss_sentence(results(1, 1), "It", "AP", drops) == sentence


def test_a_model_near_chance_shows_its_accuracy_beside_the_others(evaluation: Evaluation) -> None:
    page = evaluation.files["report"].read_text()
    assert '<dd class="value">33.3–100.0 %</dd>' in page and "only_blue, near chance" in page
    assert evaluation.groups[0].images == CANDIDATES * 3
