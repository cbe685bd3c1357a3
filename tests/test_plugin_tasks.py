"""A task of an installed package, from a recipe to a gate and a card: each image has a number."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from counterfoil import registry
from support.plugins import install, ran, ran_code

SOURCE = """
from pydantic import Field
from counterfoil.plugins import Column, Section, WholeImages

class Number(Section):
    \"\"\"A number of each image.\"\"\"
    column: str = Field(description="Column that holds the numbers.")
    within: float = Field(default=10.0, gt=0, description="The largest error of a right answer.")

class NumberSource(WholeImages):
    name = "number"
    section = Number
    reader = "number_parts:numbers_of"
    measured_by = "number_parts:NumberTask"
    nouns = ("number", "numbers")
    measures = "Shares of right numbers, and their drops"
    models = "predictions"
    hub = ("other", None)
    noun = "estimator"
    table = "shifts.csv"
    reading = "within is the share of images whose answer is near their number. A drop is base less shift."

    def columns(self, source):
        return {"number": Column("float32", "Number of the image.")}

NUMBER = NumberSource()
"""
PARTS = """
import csv
import numpy as np
from counterfoil.errors import UserError
from counterfoil.plugins import RowTruth, ScoredTask
from counterfoil.report.sections import MeasureFacts

class Numbers(RowTruth):
    def __init__(self, values):
        self.values = values

    def columns(self, row, size, stored):
        return {"number": self.values[row]}

def numbers_of(rows, source):
    rows.need(**{"number.column": source.number.column})
    return Numbers([float(value) for value in rows.column(source.number.column)])

class NumberTask(ScoredTask):
    name = outputs = "number"
    of_dataset = "numbers, and estimators"
    table = "shifts.csv"
    noun = "estimator"
    metric = "share of answers within the tolerance"
    hint = "Name a CSV file of keys and answers: predictions:FILE."
    shown = (("within", "half"), ("within",))
    facts = (
        MeasureFacts("within", "within", "percent", "share of images whose answer is near their number"),
        MeasureFacts("half", "within half", "percent", "share of answers within half of that"),
    )

    def read_truth(self):
        return self.stored("number")

    def answers(self, name):
        if callable(self.given[name]):
            return [self.given[name](encoded) for _, encoded in self.subject.images()]
        with open(name.removeprefix("predictions:"), newline="") as file:
            answers = {row["key"]: float(row["answer"]) for row in csv.DictReader(file)}
        if absent := [key for key in self.subject.keys if key not in answers]:
            raise UserError(f"{name} has no answer to {absent[0]}")
        return [answers[key] for key in self.subject.keys]

    def scores(self, answers):
        near = np.abs(np.subtract(answers, self.truth))
        tolerance = self.subject.recipe.source.number.within
        return {"within": (near <= tolerance) * 1.0, "half": (near <= tolerance / 2) * 1.0}

    def text_of(self, value):
        return f"{value:.1f}"
"""
RECIPE = """
recipe: 1
name: bright
source:
  dataset: ./data
  train_split: train
  validation_split: train
  number: {column: brightness}
generator: {kind: corrupt, split: train}
prompts: {shifts: {dark: {corruption: brightness, severity: 5}, jpeg: {corruption: jpeg_compression, severity: 1}}}
samples: {candidates: 24}
output: {image: {format: png}}
"""
COUNT = 24


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "installed"
    entries = {"counterfoil.tasks": {"number": "number_task:NUMBER"}}
    install(folder, monkeypatch, "number_task", entries, SOURCE)
    (folder / "number_parts.py").write_text(PARTS, encoding="utf-8")
    yield folder
    registry._points.cache_clear()
    for module in ("number_task", "number_parts"):
        sys.modules.pop(module, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with images, each with its mean brightness, and a recipe."""
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "metadata.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file_name", "brightness"])
        for number in range(COUNT):
            mean = int(rng.integers(40, 160))
            pixels = rng.integers(mean - 20, mean + 20, (32, 32, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / f"{number:02d}.png")
            rows.writerow([f"{number:02d}.png", pixels.mean()])
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path


def test_its_keys_are_read_and_checked_as_those_of_our_own_tasks(
    folder: Path, installed: Path
) -> None:
    code = """
from counterfoil.errors import UserError
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.recipe.loader import load_recipe_text
text = open("recipe.yaml").read()
recipe = load_recipe_text(text)
assert recipe.task.name == "number" and recipe.source.number.within == 10
assert load_recipe_text(recipe.portable_yaml).plan_hash == recipe.plan_hash
assert load_recipe_text(text, ["source.task=number", "source.number.within=10.0"]).plan_hash == recipe.plan_hash
assert load_recipe_text(text, ["source.number.within=5.0"]).plan_hash != recipe.plan_hash
assert str(recipe.plugins["task number"]) == "number_task 1.2.3"
for change, problem in {
    "source.number.withn=3": "unknown key; did you mean 'within'?",
    "source.number.within=0": "found the number 0, expected a number above 0",
    "source.nmber={column: x}": "unknown key; did you mean 'number'?",
    "source.task=numbr": "did you mean 'number'?",
    "source.task=objects": "found the task objects, expected number",
    "source.objects=boxes": "its keys say the tasks objects and number",
    "source.boxes=yolo": "without source.objects",
    "source.classes=[{id: a, name: a, source_label: 0}]": "have no classes",
    "screen.judge=lab:resnet10t": "expected null",
}.items():
    try:
        load_recipe_text(text, [change])
    except UserError as refused:
        assert problem in str(refused), (change, str(refused))
    else:
        raise AssertionError(change)
source = recipe_json_schema()["$defs"]["Source"]["properties"]
assert "number" in source["task"]["anyOf"][0]["enum"] and "number" in source
import sys
assert "number_parts" not in sys.modules
from counterfoil.testing import check_task
check_task("number")
"""
    run = ran_code(folder, installed, code)
    assert run.returncode == 0, run.stderr


def test_it_walks_from_a_recipe_to_a_gate_and_a_card(
    folder: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        "build",
        "recipe.yaml",
        "--out",
        "set",
        "--device",
        "cpu",
        "--workers",
        "1",
    ]
    built = ran(folder, installed, *words)
    assert built.returncode == 0, built.stderr
    lock = json.loads((folder / "set" / "lock.json").read_text())
    assert lock["inputs"]["plugins"] == {"task number": "number_task"}
    rows = pq.ParquetDataset(folder / "set" / "data").read(["key", "shift", "number"]).to_pylist()
    assert len(rows) == 3 * COUNT and all(40 <= row["number"] <= 160 for row in rows)

    with (folder / "answers.csv").open("w", newline="") as file:
        answers = csv.writer(file)
        answers.writerow(["key", "answer"])
        for number, row in enumerate(rows):
            wrong = row["shift"] == "dark" and number % 2
            answers.writerow([row["key"], row["number"] + (30 if wrong else 7)])
    gate = ["--gate", "within(base) >= 90", "--gate", "drop(dark, within) <= 20"]
    words = ["--models", "predictions:answers.csv", "--device", "cpu", "--into-card"]
    words += ["--export-failures", "failures"]
    evaluated = ran(folder, installed, "evaluate", "set", *words, *gate)
    assert evaluated.returncode == 3, evaluated.stdout + evaluated.stderr
    results = json.loads((folder / "set" / "evaluation" / "results.json").read_text())
    values = {
        (row["measure"], row.get("group"), row.get("at")): row["value"] for row in results["rows"]
    }
    wrong = sum(row["shift"] == "dark" and number % 2 for number, row in enumerate(rows)) / COUNT
    assert values["within", "base", None] == 1 and values["half", "base", None] == 0
    assert values["drop", "dark", "within"] == pytest.approx(wrong, abs=1e-6)
    assert "Your estimator loses most under dark: 50.0 points of within" in evaluated.stdout
    assert "The gate says fail for answers.csv" in evaluated.stdout
    comment = (folder / "set" / ".counterfoil" / "evaluation" / "gate.md").read_text()
    assert "**`dark`** (gate: fail): " in comment and comment.count("](gate/") == 1
    report = (folder / "set" / ".counterfoil" / "evaluation" / "report.html").read_text()
    assert "2 shifts; within: share of images" in report and "within half: share of" in report
    card = (folder / "set" / "README.md").read_text()
    assert "within is the share of images" in card and "| `dark` | 50.0 points" in card
    assert "Number of the image." in card
    assert len(list((folder / "failures").rglob("images/*/*"))) == wrong * COUNT
    verified = ran(folder, installed, "verify", "set")
    assert verified.returncode == 0, verified.stdout
    monkeypatch.undo()
    absent = ran(folder, None, "verify", "set")
    assert absent.returncode != 0 and "number_task" in absent.stdout + absent.stderr
