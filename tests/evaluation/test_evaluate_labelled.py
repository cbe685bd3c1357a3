"""Any images with labels are scored: folders, splits, the lab's; in groups, against a base, or
beside a dataset."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from colour_world import COLOURS, EACH, FIRST, NAMES
from counterfoil.cli.main import app
from counterfoil.comparing.compare_files import compare
from counterfoil.documents import csv_text
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.evaluate_dataset import write_keys
from counterfoil.evaluation.results import Evaluation
from counterfoil.lab.scenes import load_wardrobe
from counterfoil.models.classifiers import load_classifier
from counterfoil.regular_files import visible_text
from results_examples import top1
from support.measured import measured
from support.refusals import refuses, succeed
from support.tables import csv_rows


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a table with a column of weather; under fog every red is painted green."""
    import datasets

    rows = [
        (label, weather) for weather in ("clear", "fog") for label in range(3) for _ in range(EACH)
    ]
    painted = [
        COLOURS[1] if weather == "fog" and label == 0 else COLOURS[label] for label, weather in rows
    ]
    table = datasets.Dataset.from_dict(
        {
            "image": [Image.new("RGB", (32, 32), colour) for colour in painted],
            "label": [label for label, _ in rows],
            "weather": [weather for _, weather in rows],
        },
        features=datasets.Features(
            {
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=list(NAMES)),
                "weather": datasets.Value("string"),
            }
        ),
    )
    path = tmp_path_factory.mktemp("weather") / "table"
    table.save_to_disk(str(path))
    return path


def test_a_folder_of_images_gives_plain_accuracies(photographed: Evaluation) -> None:
    result = photographed
    assert result.base is None and result.directory is None
    (score,) = result.scores
    # `accuracy` is the mean of the classes 1, 4 of 6, 1; `top1` counts each image once.
    assert score.accuracy == pytest.approx((1 + 4 / 6 + 1) / 3)
    assert score.top1 is not None and score.top1.value == pytest.approx(16 / 18)
    assert (score.drop, score.drop_base, score.pairs_drop) == (None, None, None)
    assert "No group is a base" in result.files["report"].read_text()
    assert repr(result).endswith("sharp, 88.9 % right on all; no base, no drops>")
    json.dumps(result.to_json())


def test_half_written_files_of_a_killed_run_go_and_no_others(photos: Path, tmp_path: Path) -> None:
    left = [
        tmp_path / f"{name}.4321.cf.tmp"
        for name in ("report.html", "gate.md", "failures/0000.webp")
    ]
    mine = [tmp_path / "notes.4321.tmp", tmp_path / "notes.cf.tmp"]
    (tmp_path / "failures").mkdir()
    for file in [*left, *mine]:
        file.write_text("half")
    evaluate(photos, {"flat": lambda batch: np.zeros((len(batch), 3))}, out=tmp_path)
    assert [file for file in [*left, *mine] if file.exists()] == mine


def test_files_of_an_earlier_run_go_and_no_others(
    photos: Path, grouped: Path, tmp_path: Path
) -> None:
    flat = {"flat": lambda batch: np.zeros((len(batch), 3))}
    (tmp_path / "gate.xml").write_text("a person's")
    evaluate(grouped, flat, groups="weather", base="clear", gate=["drop(fog) <= 99"], out=tmp_path)
    assert {"classes.csv", "gate.md", "gate.xml"} <= {file.name for file in tmp_path.iterdir()}
    (tmp_path / "gate.md").write_text("changed by a person")
    (tmp_path / "transfer.csv").write_text("a person's")
    evaluate(photos, flat, out=tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    assert not names & {"classes.csv", "gate.xml"} and {"gate.md", "transfer.csv"} <= names


def test_the_classes_may_be_a_recipes(photos: Path, models: dict[str, str], dataset: Path) -> None:
    # Labels of an image folder are in the order of their names: blue, green, red; the recipe's are
    # red, green, blue.
    result = measured(photos, [models["sharp"]], recipe=dataset)
    assert result.scores[0].accuracy == pytest.approx((1 + 4 / 6 + 1) / 3)


def test_a_group_may_be_the_base(grouped: Path, models: dict[str, str]) -> None:
    plain = measured(grouped, [models["sharp"]], groups="weather")
    assert {score.shift: score.accuracy for score in plain.scores} == {
        "clear": 1.0,
        "fog": pytest.approx(2 / 3),
    }
    result = measured(grouped, [models["sharp"]], groups="weather", base="clear")
    (score,) = result.scores
    assert (score.shift, score.drop_base) == ("fog", 1.0)
    assert score.drop is not None and score.drop.value == pytest.approx(1 / 3)
    assert not result.results.paired and score.pairs_drop is None
    assert result.task is not None and "classes" in result.task.all_tables(result.results)


def test_natural_images_stand_beside_generated_ones(
    dataset: Path, photos: Path, models: dict[str, str], evaluation: Evaluation
) -> None:
    chosen = list(models.values())
    result = measured(dataset, chosen, beside={"photos": photos})
    assert result.task is not None
    assert [shift.name for shift in result.shifts] == ["dusk", "swap", "photos"]
    assert [score for score in result.scores if score.shift != "photos"] == list(evaluation.scores)
    score = result.score(models["sharp"], "photos")
    assert score.drop is not None and score.drop.value == pytest.approx(1 - (2 + 4 / 6) / 3)
    assert score.pairs == 0 and score.pairs_drop is None
    lines = result.task.all_tables(result.results)["shifts"][1].splitlines()
    assert lines[-1].startswith("photos,")
    entries = set((dataset / ".counterfoil" / "predictions").glob("*.parquet"))
    measured(dataset, chosen, beside={"photos": photos})
    assert set((dataset / ".counterfoil" / "predictions").glob("*.parquet")) == entries


def test_a_split_of_the_source_is_scored_like_any(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    two = "[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label: 8}]"
    recipe.write_text(f"extends: wardrobe-mini\nsource: {{unit_column: null, classes: {two}}}\n")
    result = measured("source:validation", ["lab:resnet10t"], recipe=recipe)
    model = load_classifier("lab:resnet10t")
    transform, (labels, pixels) = model.transform(), load_wardrobe("validation")
    import torch

    rows = [row for row, label in enumerate(labels) if label in (5, 8)]
    images = torch.stack([transform(Image.fromarray(pixels(row))) for row in rows])
    right = (
        np.concatenate([model.logits(part, "cpu").argmax(1).numpy() for part in images.split(100)])
        == labels[rows]
    )
    assert result.scores[0].top1 is not None
    assert result.scores[0].top1.value == pytest.approx(right.mean(), abs=2e-3)
    same = measured("lab:wardrobe:validation", ["lab:resnet10t"], recipe=recipe)
    assert same.scores == result.scores
    recipe.write_text(f"extends: wardrobe-mini\nsource: {{classes: {two}}}\n")
    by_garment = measured("source:validation", ["lab:resnet10t"], recipe=recipe)
    top1 = by_garment.scores[0].top1
    units = by_garment.results.units
    assert units is not None and units.column == "garment" and units.count < len(rows)
    assert (
        top1 is not None
        and top1.value == result.scores[0].top1.value
        and top1 != result.scores[0].top1
    )


def test_answers_are_a_documented_file(evaluation: Evaluation, models: dict[str, str]) -> None:
    sharp = models["sharp"]
    table = pq.read_table(evaluation.files["predictions"])
    assert table.column_names[:6] == ["key", "unit", "shift", "label", "class_id", "class"]
    rows = table.to_pylist()
    assert len(rows) == 3 * 3 * 12
    base = [row for row in rows if row["shift"] == "base"]
    assert sum(row[f"right.{sharp}"] for row in base) / len(base) == top1(evaluation).value
    assert all((row[f"answer.{sharp}"] == row["label"]) == row[f"right.{sharp}"] for row in rows)
    assert all(0 < row[f"confidence.{sharp}"] <= 1 for row in rows)


def test_a_photograph_counts_once_however_many_shifts_it_has(
    evaluation: Evaluation, models: dict[str, str]
) -> None:
    both = [models["sharp"], models["no_red"]]
    answers = evaluation.files["predictions"]
    rows = pq.read_table(answers).to_pylist()
    base_keys = {row["key"] for row in rows if row["shift"] == "base"}
    assert {row["unit"] for row in rows} == base_keys
    compared = compare(answers, answers, score=[f"right.{name}" for name in both])
    assert (compared.paired.images, compared.paired.units) == (len(rows), len(base_keys))


def paths_below(photos: Path) -> set[str]:
    return {str(path.relative_to(photos)) for path in photos.rglob("*.png")}


def test_images_of_a_folder_are_reported_by_their_paths(
    photos: Path, photographed: Evaluation, named: str
) -> None:
    rows = pq.read_table(photographed.files["predictions"]).to_pylist()
    assert {row["path"] for row in rows} == paths_below(photos)
    assert all(row["path"].split("/")[0] == row["class"] for row in rows)
    (index,) = [index for index, row in enumerate(rows) if row[f"right.{named}"] is None]
    assert photographed.unreadable == (rows[index]["key"],) and photographed.unreadable_paths == (
        "red/cut.png",
    )
    frame = photographed.failures(named)
    assert list(frame.columns) == [
        "model",
        "key",
        "path",
        "label",
        "class",
        "answered",
        "confidence",
        "shift",
    ]
    assert set(frame["path"]) == {f"green/{FIRST}", "green/1.png"} and set(frame["key"]) <= {
        row["key"] for row in rows
    }
    assert frame["class"].tolist() == ["green"] * 2 and frame["answered"].tolist() == ["blue"] * 2
    assert frame["confidence"].is_monotonic_decreasing
    with refuses("unlisted-model", "model", "'other'"):
        photographed.failures("other")


def test_failures_of_what_lies_in_no_folder_have_keys_alone(evaluation: Evaluation) -> None:
    frame = evaluation.failures()
    rows = pq.read_table(evaluation.files["predictions"]).to_pylist()
    wrong = {
        (model.name, row["key"])
        for model in evaluation.models
        for row in rows
        if row[f"right.{model.name}"] is False
    }
    assert set(zip(frame["model"], frame["key"], strict=True)) == wrong
    assert frame["path"].isna().all() and (frame["answered"] != frame["class"]).all()
    assert evaluation.unreadable_paths == ()


def test_a_table_of_an_earlier_version_still_has_its_failures(
    photographed: Evaluation, tmp_path: Path
) -> None:
    name = photographed.models[0].name
    table = pq.read_table(photographed.files["predictions"])
    pq.write_table(
        table.drop_columns(["class", "path", f"answered.{name}"]), tmp_path / "old.parquet"
    )
    old = replace(photographed, files={"predictions": tmp_path / "old.parquet"}).failures()
    assert old["key"].tolist() == photographed.failures()["key"].tolist()
    assert old[["path", "class", "answered"]].isna().all(axis=None)


def test_one_content_at_two_paths_is_reported_by_each(
    photos: Path, named: str, tmp_path: Path
) -> None:
    source = tmp_path / "both"
    for name in ("red", "blue"):
        (source / name).mkdir(parents=True)
        shutil.copy(photos / "green" / "1.png", source / name / f"{name}.png")
    result = evaluate(source, [named], out=tmp_path / "out", device="cpu")
    rows = pq.read_table(result.files["predictions"]).to_pylist()
    assert [(row["path"], row["class"]) for row in rows] == [
        ("blue/blue.png", "blue"),
        ("red/red.png", "red"),
    ]
    moved = (source / "red" / "red.png").rename(source / "red" / "other.png")
    again = evaluate(source, [named], out=tmp_path / "out", device="cpu")
    assert again.failures()["path"].tolist() == [f"red/{moved.name}"]


def test_keys_are_a_template_for_answers_from_elsewhere(photos: Path, tmp_path: Path) -> None:
    template = tmp_path / "keys.csv"
    done = CliRunner().invoke(app, ["evaluate", str(photos), "--write-keys", str(template)])
    assert done.exit_code == 0 and f"{3 * EACH + 1} images in {template}" in done.stdout
    rows = csv_rows(template)
    assert list(rows[0]) == ["key", "path", "class_id", "label"] and len(rows) == 3 * EACH + 1
    assert {row["path"] for row in rows} == {visible_text(path) for path in paths_below(photos)}
    answers = tmp_path / "answers.csv"
    for column in ("key", "path"):
        shown = [{column: row[column], "label": "blue"} for row in rows]
        answers.write_text(csv_text(shown))
        result = measured(photos, [f"predictions:{answers}"])
        assert result.scores[0].accuracy == pytest.approx(1 / 3)
    # the last is no image
    answers.write_text(csv_text([{"path": row["path"], "label": "blue"} for row in rows[1:-1]]))
    with pytest.raises(UserError, match=f"no answer to 1 of {len(rows)} images: {rows[0]['path']}"):
        measured(photos, [f"predictions:{answers}"])
    before = template.read_bytes()
    for out, shown in ((template, "already"), (photos / "keys.csv", "lies inside the dataset")):
        with pytest.raises(UserError, match=shown):
            write_keys(photos, out)
    assert template.read_bytes() == before and not (photos / "keys.csv").exists()
    with pytest.raises(UserError, match="several of them may be the answers"):
        measured(photos, [f"predictions:{template}"])


def options_of_an_evaluation() -> list[list[str]]:
    """Return each option of `evaluate` that does not choose images, with a valid value."""
    command: Any = typer.main.get_command(app)
    options = []
    for param in command.commands["evaluate"].params:
        flag = param.opts[0]
        if flag not in ("dataset", "--write-keys", "--recipe", "--groups", "--base"):
            value = "all" if flag == "--outputs" else "1"
            options.append([flag, *([] if param.is_flag else [value] * param.nargs)])
    return options


@pytest.mark.parametrize("given", options_of_an_evaluation(), ids=lambda given: given[0])
def test_where_keys_are_written_nothing_else_is_accepted_and_ignored(
    given: list[str], photos: Path, tmp_path: Path
) -> None:
    done = CliRunner().invoke(
        app, ["evaluate", str(photos), "--write-keys", str(tmp_path / "keys.csv"), *given]
    )
    assert isinstance(done.exception, UserError) and done.exception.exit_code == 2
    assert f"{given[0]} does not go with --write-keys, which" in str(done.exception)
    assert not (tmp_path / "keys.csv").exists()


def test_every_class_folder_can_be_answered(tmp_path: Path) -> None:
    names = ["=cmd", "+1", "007", "7", "NA", "Straße", " a", "a,b", 'q"', "e\u0301", "שלום"]
    for number, name in enumerate(names):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "photos" / name / "=1.png")
    write_keys(tmp_path / "photos", tmp_path / "keys.csv")
    rows = csv_rows(tmp_path / "keys.csv")
    assert len(rows) == len(names)
    for image in ("key", "path"):
        for answer in ("class_id", "label"):
            answers = tmp_path / f"{image}-{answer}.csv"
            answers.write_text(csv_text([{image: row[image], answer: row[answer]} for row in rows]))
            [score] = measured(tmp_path / "photos", [f"predictions:{answers}"]).scores
            assert score.top1 is not None and score.top1.value == 1


def test_what_the_documentation_does_with_failures_works(
    photos: Path, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FiftyOne and Spotlight are stubs: the test checks the calls to them, not their answers.

    Tried by hand with fiftyone 1.22.1 (samples and labels, without its database) and
    renumics-spotlight 1.8.2 (all).
    """
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copytree(named.removeprefix("local-dir:"), tmp_path / "my-model")
    fiftyone = MagicMock()
    spotlight = MagicMock()
    stubs = {
        "fiftyone": fiftyone,
        "renumics": MagicMock(spotlight=spotlight),
        "renumics.spotlight": spotlight,
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.chdir(tmp_path)
    text = Path(__file__).parents[2].joinpath("docs", "how-to", "look-at-failures.md").read_text()
    section = text.partition("## The table, in pandas")[2].partition("\n## Limits")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    files = {f"photos/green/{FIRST}", "photos/green/1.png"}
    assert len(blocks) == 4 and all(Path(file).is_file() for file in files)
    loaded = fiftyone.Dataset.from_dir.call_args
    assert loaded.kwargs == {"dataset_type": fiftyone.types.FiftyOneDataset}
    assert set(spotlight.show.call_args.args[0]["image"]) == files


def test_scores_are_a_data_frame(evaluation) -> None:
    frame = evaluation.to_pandas()
    assert len(frame) == len(evaluation.scores)
    first = evaluation.scores[0]
    assert frame.loc[0, ["model", "shift", "accuracy"]].tolist() == [
        first.model,
        first.shift,
        first.accuracy,
    ]
    assert frame.loc[0, "drop_low"] == first.drop.low
    assert len(repr(evaluation)) < 150 and "6 models" in repr(evaluation)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"base": "frost", "groups": "weather"}, "has no group 'frost'"),
        ({"groups": "wether"}, "has no column 'wether'"),
        ({"beside": {"v2": "source:validation"}}, "its source is unknown"),
        ({"into_card": True}, "is no built dataset|not a Counterfoil dataset"),
    ],
)
def test_what_does_not_fit_is_reported(
    grouped: Path,
    models: dict[str, str],
    options: dict,
    says: str,
) -> None:
    with pytest.raises(UserError, match=says):
        measured(grouped, [models["sharp"]], **options)


def test_a_built_dataset_has_groups_of_its_own(dataset: Path, models: dict[str, str]) -> None:
    with refuses("unfit-option", dataset, "has its own recipe, base and groups"):
        measured(dataset, [models["sharp"]], base="dusk")
    with refuses("group-clash", "beside", "'dusk'"):
        measured(dataset, [models["sharp"]], beside={"dusk": "lab:wardrobe:validation"})


def test_the_command_takes_them(dataset: Path, photos: Path, named: str, tmp_path: Path) -> None:
    words = ["evaluate", str(photos), "--models", named, "--device", "cpu"]
    done = succeed(*words, "--out", str(tmp_path / "one"))
    assert "accuracy over all images" in done.stdout and "left out: red/cut.png\n" in done.stdout
    words = ["evaluate", str(dataset), "--models", named, "--no-reference", "--json"]
    both = succeed(*words, "--beside", f"photos={photos}", "--out", str(tmp_path / "two"))
    groups = [group["name"] for group in json.loads(both.stdout)["groups"]]
    assert groups == ["base", "dusk", "swap", "photos"]
    wrong = CliRunner().invoke(app, [*words, "--beside", "photos"])
    assert isinstance(wrong.exception, UserError)
    assert "expected NAME=IMAGES" in str(wrong.exception)
