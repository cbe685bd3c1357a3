"""Labels that are unknown for some images, on the whole way from a folder to a report; units of
images; previews."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.labels.measures import drop_labels
from counterfoil.evaluation.tasks.labels.subject import MultilabelSubject, open_conditions
from counterfoil.multilabel_stats import choose_thresholds, score_labels
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.resampled_stats import Units
from support.measured import measured
from support.refusals import refuses

LABELS = ("edema", "effusion", "nodule", "hernia")
COUNT = 48
RECIPE = """
recipe: 1
name: scans
source:
  dataset: {folder}
  train_split: train
  validation_split: train
  unit_column: {unit}
  conditions: {{columns: [edema, effusion, nodule, hernia], unknown: ignore}}
generator: {{kind: corrupt, split: train}}
prompts: {{shifts: {{fog: {{corruption: fog, severity: 3}}}}}}
samples: {{candidates: 48}}
output: {{image: {{format: png}}}}
evaluate: {{min_images_per_class: 3}}
"""


def drawn_labels() -> NDArray[np.int64]:
    """Return 1, 0, -1 and -2 (blank) of each image: hernia is never known to be absent, nodule is
    rare."""
    rng = np.random.default_rng(4)
    labels = (rng.random((COUNT, 4)) < (0.5, 0.4, 0.0, 1.0)).astype(int)
    labels[[3, 17, 40, 45], 2] = 1
    unknown = rng.random(labels.shape)
    labels[unknown < 0.15] = -1
    labels[unknown > 0.85] = -2
    labels[[3, 17, 40, 45], 2] = 1
    return labels


def scans_folder(folder: Path, labels: NDArray[np.int64]) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    with (folder / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file_name", "patient", *LABELS])
        for number, values in enumerate(labels.tolist()):
            Image.fromarray(rng.integers(60, 120, (16, 16, 3)).astype(np.uint8)).save(
                folder / f"{number:03d}.png"
            )
            cells = ["" if value == -2 else f"{value}.0" for value in values]
            rows.writerow([f"{number:03d}.png", f"P{number % 12:02d}", *cells])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    scans_folder(folder / "data", drawn_labels())
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder / "data", unit="patient"))
    build(folder / "recipe.yaml", folder / "built", device="cpu", workers=1)
    return folder / "built"


def answers_of(built: Path, skill: tuple[float, float] = (2.5, 0.8)) -> Path:
    """Write scores of every image: of the base with one skill, under the shift with another."""
    rng = np.random.default_rng(9)
    labels = drawn_labels()
    file = built.parent / f"answers{skill[0]}{skill[1]}.csv"
    table = (
        pq.ParquetDataset(built / "data").read(columns=["key", "shift", "source_row"]).to_pylist()
    )
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["key", *LABELS])
        for row in sorted(table, key=lambda row: row["key"]):
            scores = skill[row["shift"] != "base"] * (labels[row["source_row"]] == 1) + rng.normal(
                size=4
            )
            rows.writerow([row["key"], *scores.tolist()])
    return file


@pytest.fixture(scope="module")
def evaluation(built: Path) -> Evaluation:
    gate = ["AUROC(base) >= 60", "drop(fog, AUROC) <= 90", "drop(fog, label=edema) <= 99"]
    return evaluate(
        built, [f"predictions:{answers_of(built)}"], out=built.parent / "report", gate=gate
    )


def images_of(evaluation: Evaluation, group: str) -> list[dict[str, Any]]:
    return [
        row
        for row in pq.read_table(evaluation.files["predictions"]).to_pylist()
        if row["shift"] == group
    ]


def test_rows_say_what_is_unknown_and_every_reader_knows_it(built: Path) -> None:
    table = pq.ParquetDataset(built / "data").read(
        columns=["source_row", "conditions", "unknown_conditions"]
    )
    labels = drawn_labels()
    for row in table.to_pylist():
        of_row = labels[row["source_row"]]
        assert row["conditions"] == np.flatnonzero(of_row == 1).tolist()
        assert row["unknown_conditions"] == np.flatnonzero(of_row < 0).tolist()
    assert not verify(built, rerender=0).problems
    card = (built / "README.md").read_text()
    assert (
        "The column `unknown_conditions` has those of which nobody knows whether the image has them"
        in card
    )
    croissant = mlcroissant.Dataset(jsonld=str(built / "croissant.json"))
    assert not croissant.metadata.ctx.issues.errors
    record = next(iter(croissant.records("base")))
    assert "base/unknown_conditions" in record


def test_each_label_is_measured_on_the_images_that_know_it(
    built: Path, evaluation: Evaluation
) -> None:
    labels = drawn_labels()
    rows = evaluation.results.rows
    model = evaluation.results.models[0].name
    source = {
        row["key"]: row["source_row"]
        for row in pq.ParquetDataset(built / "data").read(columns=["key", "source_row"]).to_pylist()
    }
    measured = [cls.name for cls in evaluation.results.classes]
    assert measured == ["edema", "effusion", "nodule"]
    with evaluation.files["labels"].open() as file:
        lines = {(line["shift"], line["label"]): line for line in csv.DictReader(file)}
    for group in ("base", "fog"):
        images = images_of(evaluation, group)
        truth = labels[[source[image["key"]] for image in images]]
        scores = np.array([image[f"scores.{model}"] for image in images])
        means: dict[str, list[float]] = {"AP": [], "AUROC": [], "accuracy": []}
        for label, name in enumerate(measured):
            known = truth[:, label] >= 0
            has = truth[known, label] == 1
            values = scores[known, label]
            missed = np.array([name in image[f"missed.{model}"] for image in images])
            wrong = np.array([name in image[f"wrongly_given.{model}"] for image in images])
            assert not (missed | wrong)[~known].any(), "an unknown label is no failure"
            given = (has & ~missed[known]) | wrong[known]
            means["AP"].append(average_precision_score(has, values))
            means["AUROC"].append(roc_auc_score(has, values))
            means["accuracy"].append(balanced_accuracy_score(has, given))
            line = lines[group, name]
            assert (int(line["n_known"]), int(line["n_with"])) == (known.sum(), has.sum())
            for measure, numbers in means.items():
                row = rows.one(measure, model=model, group=group, class_id=name)
                assert row is not None and row.n == known.sum()
                assert row.value == pytest.approx(numbers[-1], abs=1e-9)
            assert [name in image["unknown_conditions"] for image in images] == (~known).tolist()
        for measure, numbers in means.items():
            mean = rows.value("mAP" if measure == "AP" else measure, model=model, group=group)
            assert mean == pytest.approx(np.mean(numbers), abs=1e-9)


def test_an_unknown_label_is_no_failure_in_the_browser(evaluation: Evaluation) -> None:
    page = evaluation.files["failures"].read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    table = {row["key"]: row for row in pq.read_table(evaluation.files["predictions"]).to_pylist()}
    model = evaluation.results.models[0].name
    shown = [
        (data["keys"][image], data["classes"][data["class"][image]]["id"])
        for image in data["failures"]
    ]
    failed = [
        (key, label)
        for key, row in table.items()
        for label in (*row[f"missed.{model}"], *row[f"wrongly_given.{model}"])
    ]
    assert sorted(shown) == sorted(failed) and failed
    assert not any(label in table[key]["unknown_conditions"] for key, label in shown)


def test_counts_and_labels_that_are_in_no_mean_are_named(evaluation: Evaluation) -> None:
    assert [label.name for label in evaluation.results.groups[0].left_out] == ["hernia"]
    page = evaluation.files["report"].read_text()
    assert "are known to lack it: hernia." in page
    assert re.search(r"known for fewer than 48 images: edema \(\d+ images\)", page)
    assert "images that know it" in page and "AUROC (%)" in page
    assert evaluation.gate is not None
    assert {judged.line.text: judged.verdict for judged in evaluation.gate.judged}[
        "drop(fog, AUROC) <= 90"
    ] == "pass"


def test_a_mean_and_a_drop_are_over_one_stated_set_of_labels(built: Path) -> None:
    """Score a model that guesses one label: its mAP is over all labels, its drops and their base
    over the others."""
    file = answers_of(built)
    with file.open() as stream:
        rows = list(csv.DictReader(stream))
    rng = np.random.default_rng(1)
    with (built.parent / "guess.csv").open("w", newline="") as stream:
        written = csv.DictWriter(stream, rows[0].keys())
        written.writeheader()
        written.writerows({**row, "effusion": rng.normal()} for row in rows)
    result = evaluate(
        built, [f"predictions:{built.parent / 'guess.csv'}"], out=built.parent / "guess"
    )
    numbers = result.results.rows
    model = result.results.models[0]
    over = [label.id for label in drop_labels(result.results, model)]
    assert "effusion" not in over and "edema" in over
    note = f"over {len(over)} of 3 labels"
    with result.files["shifts"].open() as stream:
        lines = {line["shift"]: line for line in csv.DictReader(stream)}
    for mean, measure in (("mAP", "AP"), ("AUROC", "AUROC"), ("accuracy", "accuracy")):
        values = {
            group: np.mean(
                [
                    numbers.value(measure, model=model.name, group=group, class_id=name) or 0.0
                    for name in over
                ]
            )
            for group in ("base", "fog")
        }
        drop = numbers.one("drop", model=model.name, group="fog", at=mean)
        base = numbers.one("drop_base", model=model.name, group="fog", at=mean)
        assert (
            drop is not None
            and base is not None
            and base.value != numbers.value(mean, model=model.name, group="base")
        )
        assert drop.value == pytest.approx(
            values["base"] - values["fog"]
        ) and base.value == pytest.approx(values["base"])
        assert drop.note == base.note == note
        assert float(lines["fog"][f"drop_base_{mean}"]) == pytest.approx(
            100 * values["base"], abs=0.006
        )
    assert (lines["fog"]["n_labels"], lines["fog"]["n_labels_of_drop"]) == ("3", str(len(over)))
    named = (
        "near chance on the base for effusion. Mean drops leave out this label: they are over"
        f" {len(over)} of 3 labels"
    )
    assert (
        any(named in note for note in result.to_json()["notes"])
        and named in result.files["report"].read_text()
    )
    stored = json.loads(result.files["document"].read_text())
    assert any(row.get("note") == note for row in stored["rows"])


@pytest.mark.parametrize("limit", [10, 24])
def test_a_preview_drops_over_the_labels_of_the_whole(
    built: Path, evaluation: Evaluation, limit: int
) -> None:
    """Four of 48 images have the rare label, and the recipe asks for three: a preview must find two
    of them."""
    whole = evaluation.results
    model = evaluation.results.models[0]
    preview = measured(built, [f"predictions:{answers_of(built)}"], limit=limit).results
    assert preview.preview == limit and preview.groups[0].images == limit
    assert preview.classes == whole.classes
    assert drop_labels(preview, preview.models[0]) == drop_labels(whole, model) == whole.classes


def test_a_preview_that_cannot_hold_every_label_is_refused(built: Path) -> None:
    with refuses("invalid-option", "limit", "expected at least"):
        measured(built, [f"predictions:{answers_of(built)}"], limit=3)


def test_a_label_of_few_images_in_the_whole_is_in_no_preview(built: Path) -> None:
    """Leave out of a preview what the whole leaves out, for a preview has no minimum of its own."""
    file = f"predictions:{answers_of(built)}"
    for limit in (None, 16):
        results = measured(built, [file], limit=limit, min_images_per_class=5).results
        assert [label.name for label in results.classes] == ["edema", "effusion"]


def test_images_of_a_patient_are_drawn_together(built: Path, evaluation: Evaluation) -> None:
    table = (
        pq.ParquetDataset(built / "data").read(columns=["key", "source_row", "unit"]).to_pylist()
    )
    assert all(row["unit"] == row["source_row"] % 12 for row in table), (
        "a number, not the patient's name"
    )
    results = evaluation.results
    assert results.units is not None and (results.units.column, results.units.count) == (
        "patient",
        12,
    )
    unit_of = {row["key"]: row["unit"] for row in table}
    dataset, truth = open_conditions(open_dataset(built))
    subject = MultilabelSubject.of(dataset, truth, np.ones(2 * COUNT, bool), 3)
    model = results.models[0].name
    scores = [
        np.array([image[f"scores.{model}"] for image in images_of(evaluation, group)])
        for group in ("base", "fog")
    ]
    units = Units.of(np.array([unit_of[image["key"]] for image in images_of(evaluation, "base")]))
    thresholds = choose_thresholds(scores[0], subject.truth, 0)
    expected = {
        count: score_labels(scores, subject.truth, thresholds, seed=0, units=drawn)[0]
        .mean("AUROC", range(3))
        .interval()
        for count, drawn in ((12, units), (COUNT, None))
    }
    row = results.rows.one("AUROC", model=model, group="base")
    assert row is not None and row.units == 12 and row.estimate == expected[12] != expected[COUNT]
    assert "48 images share 12 units of `patient`. Intervals resample these units" in "\n".join(
        evaluation.notes
    )
    assert (
        "Intervals resample 12 units of patient, 1,000 times"
        in evaluation.files["report"].read_text()
    )
    assert json.loads(evaluation.files["document"].read_text())["units"] == {
        "column": "patient",
        "count": 12,
    }


def test_fewer_than_ten_units_give_no_interval(built: Path) -> None:
    limited = measured(built, [f"predictions:{answers_of(built)}"], limit=10)
    units = limited.results.units
    assert units is not None and units.count < 10
    estimate = limited.results.rows.estimate(
        "mAP", model=limited.results.models[0].name, group="base"
    )
    assert estimate is not None and estimate.low is None
    assert (
        f"10 images share {units.count} units of `patient`. Numbers have no interval"
        in "\n".join(limited.notes)
    )


def test_the_recipes_hash_has_units_only_where_rows_have_them() -> None:
    load: Callable[..., Any] = load_recipe_text
    text = RECIPE.format(folder="./scans", unit="null")
    plain = load(text)
    units = load(text.replace("unit_column: null", "unit_column: patient"))
    assert "units" not in plain.plan_document and units.plan_document["units"] == "patient"
    assert "unit" not in plain.added_columns and units.added_columns["unit"].type == "int64"
