"""`evaluate --limit`: the numbers of some rows of each group, the same of the base, and every file
says so."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from colour_world import build_colours
from counterfoil.data.labelled_images import evenly_chosen
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.evaluation.results import Evaluation
from counterfoil.report.words import preview_sentence
from support.measured import measured
from support.refusals import problems_of, refuses
from support.reports import evaluation_html


@pytest.fixture(scope="module")
def preview(
    dataset: Path, models: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Evaluation:
    options: Any = {"out": tmp_path_factory.mktemp("preview"), "device": "cpu", "reference": False}
    return evaluate(dataset, list(models.values()), limit=7, repo="me/colours", **options)


def rows(evaluation: Evaluation) -> dict[str, dict[str, object]]:
    return {row["key"]: row for row in pq.read_table(evaluation.files["predictions"]).to_pylist()}


def test_its_numbers_are_those_of_its_rows(preview: Evaluation, evaluation: Evaluation) -> None:
    some = rows(preview)
    every = rows(evaluation)
    for key, row in some.items():
        expected = {**every[key], "preview": 7}
        assert row.keys() == expected.keys()
        for column, value in expected.items():
            # Batches hold other images, which may change the last bit of a confidence.
            assert row[column] == (
                pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
            )
    for group in preview.groups:
        chosen = [row for row in some.values() if row["shift"] == group.name]
        assert len(chosen) == group.accepted == 7
        for model in preview.models:
            right: dict[object, list[bool]] = {}
            for row in chosen:
                right.setdefault(row["label"], []).append(bool(row[f"right.{model.name}"]))
            mean = np.mean([np.mean(answers) for answers in right.values()])
            number = preview.number("accuracy", model=model.name, group=group.name)
            assert number is not None and number.value == pytest.approx(mean)


def test_shifts_have_the_base_s_pairs_evenly_over_classes(preview: Evaluation) -> None:
    of_group: dict[object, set[str]] = {}
    for key, row in rows(preview).items():
        of_group.setdefault(row["shift"], set()).add(key.removeprefix(f"{row['shift']}_"))
    assert len({frozenset(pairs) for pairs in of_group.values()}) == 1
    counts = Counter(row["label"] for row in rows(preview).values()).values()
    assert max(counts) - min(counts) <= len(of_group)
    assert preview.results.paired and all(score.pairs == 7 for score in preview.scores)


def test_every_file_says_so(preview: Evaluation) -> None:
    sentence = preview_sentence(7)
    for name in ("report", "failures"):
        assert sentence in preview.files[name].read_text()
    tables = [path for path in preview.files.values() if path.suffix == ".csv"]
    assert len(tables) >= 5
    for path in tables:
        with path.open(newline="") as file:
            assert {line["preview"] for line in csv.DictReader(file)} <= {"7"}
            assert path.read_text().partition("\n")[0].endswith(",preview")
    assert preview.to_json()["preview"] == 7 and "entries" not in preview.files


def test_a_whole_evaluation_says_nothing_of_it(evaluation: Evaluation) -> None:
    assert "preview" not in evaluation.to_json()
    assert all(
        "preview" not in path.read_text()
        for path in evaluation.files.values()
        if path.suffix == ".csv"
    )
    assert "preview" not in pq.read_table(evaluation.files["predictions"]).column_names
    assert "A preview" not in evaluation.files["report"].read_text()


def test_a_limit_above_every_group_changes_no_answer(
    dataset: Path,
    named: str,
    evaluation: Evaluation,
) -> None:
    large = measured(dataset, [named], limit=10_000)
    assert [group.accepted for group in large.groups] == [
        group.accepted for group in evaluation.groups
    ]
    assert [group.candidates for group in large.groups] == [
        group.candidates for group in evaluation.groups
    ]


def test_what_is_final_refuses_it(dataset: Path, named: str) -> None:
    refused_of: tuple[tuple[dict[str, Any], str], ...] = (
        ({"gate": ["drop(swap) <= 10"]}, "gate"),
        ({"into_card": True}, "results on a card"),
        ({"distances": "clip"}, "distances"),
    )
    for given, words in refused_of:
        problems = problems_of(evaluate, dataset, [named], device="cpu", limit=7, **given)
        assert [problem.code for problem in problems] == ["unfit-option"]
        assert problems[0].startswith(
            f"this is a preview of 7 images a shift, which takes no {words}"
        )
    with pytest.raises(UserError, match="limit is 0: expected 1 or more"):
        evaluate(dataset, [named], device="cpu", limit=0)
    with refuses("invalid-option", "limit", "expected 1 to 1,000,000"):
        evaluate(dataset, [named], device="cpu", limit=10**30)


def test_a_preview_replaces_no_full_report(models: dict[str, str], tmp_path: Path) -> None:
    """Keep both reports: the index page shows the full one, and the preview only while there is no
    other."""
    dataset = build_colours(tmp_path / "colours")
    named = models["sharp"]
    some = evaluate(dataset, [named], device="cpu", limit=7, reference=False)
    assert some.files["report"] == dataset / ".counterfoil" / "preview" / "report.html"
    index = dataset / "index.html"
    assert (
        "counterfoil/preview/report.html" in index.read_text()
        and preview_sentence(7) in index.read_text()
    )
    full = evaluate(dataset, [named], device="cpu", reference=False)
    assert full.files["report"] == dataset / ".counterfoil" / "evaluation" / "report.html"
    before = {name: path.read_bytes() for name, path in full.files.items()}
    again = evaluate(dataset, [named], device="cpu", limit=5, reference=False)
    assert again.files["report"] == some.files["report"]
    assert {name: path.read_bytes() for name, path in full.files.items()} == before
    page = index.read_text()
    assert "counterfoil/evaluation/report.html" in page and "counterfoil/preview" not in page
    assert "A preview" not in page


def test_photographs_without_a_base_are_limited_too(photos: Path, named: str) -> None:
    some = measured(photos, [named], limit=3)
    assert [group.accepted for group in some.groups] == [3]
    assert "A preview of 3 images a group." in evaluation_html(some.results)


def test_rows_are_chosen_evenly_and_smaller_choices_are_part_of_larger_ones() -> None:
    labels = np.array([0] * 50 + [1] * 3 + [2] * 20)
    names = [f"image {row}" for row in range(len(labels))]
    earlier: set[int] = set()
    for most in range(1, 80):
        chosen = evenly_chosen(names, labels, most).tolist()
        assert (
            chosen == sorted(set(chosen))
            and len(chosen) == min(most, len(labels))
            and earlier < {*chosen, -1}
        )
        earlier = set(chosen)
        counts = Counter(labels[chosen].tolist())
        assert counts[0] - counts[2] in (0, 1, -1) or counts[2] == 20
    assert Counter(labels[evenly_chosen(names, labels, 9)].tolist()) == {0: 3, 1: 3, 2: 3}
    preferred = {"image 60", "image 7"}
    assert {names[row] for row in evenly_chosen(names, labels, 3, preferred).tolist()} >= preferred


def test_answers_by_key_are_found_and_answers_by_row_refused(dataset: Path, tmp_path: Path) -> None:
    lines = [("key", "row", "label")]
    labels = {row["key"]: row["class"] for row in _shifted(dataset)}
    lines += [(key, str(row), label) for row, (key, label) in enumerate(labels.items())]
    by_key = tmp_path / "by_key.csv"
    by_row = tmp_path / "by_row.csv"
    by_key.write_text("".join(f"{key},{label}\n" for key, _, label in lines))
    by_row.write_text("".join(f"{row},{label}\n" for _, row, label in lines))
    right = measured(dataset, [f"predictions:{by_key}"], limit=7)
    assert all(score.accuracy == 1 for score in right.scores)
    with pytest.raises(
        UserError, match="identifies images by row, and a preview does not have every row"
    ):
        measured(dataset, [f"predictions:{by_row}"], limit=7)


def _shifted(dataset: Path) -> list[dict[str, str]]:
    file = dataset.parent / "keys.csv"
    if not file.exists():
        write_keys(dataset, file)
    with file.open(newline="") as lines:
        return [{"key": line["key"], "class": line["label"]} for line in csv.DictReader(lines)]
