"""Evaluating a dataset with levels: tables, page, card and frame show them; other outputs only the
highest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from counterfoil.dataset.card.metadata import benchmark_file
from counterfoil.evaluation.entries import entry_files
from counterfoil.evaluation.gate import gate_table
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.scored_models import with_public_names
from counterfoil.evaluation.tasks.classes.report import class_entry
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.report.results import NESTED, results_from
from counterfoil.report.severity import middle_model, order_changes, severity_words
from counterfoil.store.reading import read_receipts
from support.measured import measured
from support.reports import evaluation_html
from support.tables import csv_rows

BETWEEN = ("swap_25", "swap_50", "swap_75")


def test_only_the_whole_shift_is_in_the_other_tables(
    graded: Evaluation, evaluation: Evaluation
) -> None:
    results = graded.results
    assert [group.name for group in results.groups] == ["base", "dusk", "swap"]
    assert graded.task is not None
    tables = graded.task.all_tables(results)
    for name, (_, text) in tables.items():
        if name != "measures":
            assert not any(level in text for level in BETWEEN), name
    measures = {
        row["measure"] for row in csv_rows(tables["measures"][1]) if row["group"] in BETWEEN
    }
    assert measures == set()
    # The whole shift has the images of the shift without levels, and so its numbers.
    for model in graded.models:
        with_levels, without = (result.score(model.name, "dusk") for result in (graded, evaluation))
        assert with_levels == without
    predictions = graded.failures()
    assert set(BETWEEN) & set(predictions["shift"])


def test_a_gate_measures_the_highest_level_unless_another_is_named(
    graded_dataset: Path,
    models: dict[str, str],
) -> None:
    lines = ["drop(swap) <= 5", "drop(swap_75) <= 5", "drop(swap@25) <= 5"]
    gate = measured(graded_dataset, [models["sharp"]], gate=lines).gate
    assert gate is not None
    values = [judged.estimate.value for judged in gate.judged if judged.estimate is not None]
    assert values == pytest.approx([4 / 12, 3 / 12, 1 / 12])
    groups = [row.cells[1].text for row in gate_table(gate).rows]
    assert sorted(groups) == ["swap, level 1", "swap_25, level 0.25", "swap_75, level 0.75"]


def test_the_numbers_are_those_of_the_painted_images(graded: Evaluation) -> None:
    frame = graded.severity()
    sharp = frame[frame["model"] == graded.models[0].name]
    assert sharp["level"].tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    # At each level one more of twelve images has another colour; at .5 the screen rejected a right
    # one.
    assert sharp["accuracy"].tolist() == pytest.approx([1, 11 / 12, 9 / 11, 9 / 12, 8 / 12])
    assert sharp["drop"].tolist()[1:] == pytest.approx([1 / 12, 2 / 11, 3 / 12, 4 / 12])
    assert sharp["failed"].tolist()[1:] == pytest.approx([1 / 12, 2 / 12, 3 / 12, 4 / 12], abs=1e-4)
    ten = 0.25 + 0.25 * (0.1 - 1 / 12) / (2 / 11 - 1 / 12)
    assert (
        sharp["ten_points"].tolist() == pytest.approx([ten] * 5)
        and sharp["median_failure"].isna().all()
    )
    [severity] = graded.results.severity
    assert [level.lost for level in severity.levels] == [0, 3, 0, 0] and severity.complete == 33
    results = graded.results
    assert (
        results_from(graded.files["document"].read_bytes(), "results").severity == results.severity
    )
    assert order_changes(severity, results) == []


def test_the_page_shows_the_drops_of_classes_and_the_table_has_all(graded: Evaluation) -> None:
    [severity] = graded.results.severity
    section = NESTED["severity"].section(graded.results, [None, []])
    assert section is not None
    [(_, [table, *_])] = section.more["shifts"]
    model = middle_model(severity, graded.results)
    assert (
        model is not None and table.caption == f"Drop by class (points), {model.short_name}: swap"
    )
    assert [column.label for column in table.columns] == [
        "class",
        "accuracy at the base (%)",
        "0.25",
        "0.5",
        "0.75",
        "1",
    ]
    lost = [float(row.cells[-1].sort) for row in table.rows]
    assert lost == sorted(lost, reverse=True)
    assert {row.cells[0].text for row in table.rows} == {cls.name for cls in graded.results.classes}
    assert all(cell.below for row in table.rows for cell in row.cells[1:])
    assert table.caption in graded.files["report"].read_text()
    rows = csv_rows(graded.files["measures"].read_text())
    drops = [row for row in rows if row["measure"] == "severity_drop" and row["class_id"]]
    assert len(drops) == len(graded.models) * 3 * 4
    assert all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in drops)


def test_the_page_shows_curves_and_scenes_and_says_the_message_first(graded: Evaluation) -> None:
    html = graded.files["report"].read_text()
    section = html.partition('id="how-much-is-too-much"')[2].partition("<h2")[0]
    words = severity_words(graded.results)
    assert words[0] in section and "ten points" in words[0] and "swap" in words[0]
    assert 'aria-label="Accuracy of each model against the level of each shift"' in section
    frames = re.findall(
        r'<figure class="frame( marked)?"><img src="data:image/webp;base64,', section
    )
    assert len(frames) == 3 * 5 and 1 <= sum(map(bool, frames)) <= 3
    assert "first wrong: " in section and "beyond 1" in section
    for name in BETWEEN:
        assert name not in html
    failures = graded.files["failures"].read_text()
    assert all(f'"id": "{name}"' in failures for name in (*BETWEEN, "swap"))


def test_a_dataset_without_levels_has_nothing_of_it(evaluation: Evaluation) -> None:
    assert evaluation.results.severity == () and evaluation.severity().empty
    assert "How much is too much" not in evaluation.files["report"].read_text()
    assert "severity" not in evaluation.results.to_json()
    assert NESTED["severity"].card(evaluation.results) is None


def test_the_card_has_one_table(graded: Evaluation) -> None:
    results = with_public_names(graded.results)
    section = NESTED["severity"].card(results)
    assert section
    [(_, table, _)] = section.tables
    assert [row.cells[0].text for row in table.rows] == ["swap"]
    assert {column.label for column in table.columns[1:]} == {
        model.name for model in results.models
    }
    assert any(cell.below for cell in table.rows[0].cells)


def test_entries_for_the_hub_and_tasks_of_a_benchmark_are_of_the_highest_level(
    graded: Evaluation, graded_dataset: Path
) -> None:
    text = (graded_dataset / "recipe.yaml").read_text()
    recipe = load_recipe_text(text, ["publish.evaluation_framework=math-arena"])
    benchmark = benchmark_file(recipe, read_receipts(graded_dataset), 1)
    assert benchmark is not None
    tasks = [task["id"] for task in yaml.safe_load(benchmark)["tasks"]]
    for content in entry_files(
        with_public_names(graded.results), class_entry, "someone/colours"
    ).values():
        assert (
            [entry["dataset"]["task_id"] for entry in yaml.safe_load(content)]
            == tasks
            == ["base", "dusk", "swap"]
        )


def test_the_report_needs_no_pictures(graded: Evaluation) -> None:
    assert "Film strips" not in evaluation_html(graded.results)


def test_the_frame_of_a_single_model_has_no_ranks(
    graded_dataset: Path,
    models: dict[str, str],
) -> None:
    alone = measured(graded_dataset, models["sharp"])
    assert alone.severity()["rank"].isna().all()
    assert "loses ten points" in severity_words(alone.results)[0]
