"""The folder of failing images: its tables agree with each other, with the images, and with what
FiftyOne reads."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.tasks.classes.task import ClassesTask
from support.images import encoded
from support.measured import measured
from support.refusals import refuses, succeed


def read(folder: Path) -> tuple[list[dict[str, str]], dict[str, Any], list[dict[str, Any]]]:
    with (folder / "failures.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    coco, samples = (
        json.loads((folder / name).read_text()) for name in ("coco.json", "samples.json")
    )
    return lines, coco, samples["samples"]


@pytest.fixture(scope="module")
def folder(evaluation: Evaluation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluation.export_failures(tmp_path_factory.mktemp("exported") / "failures")


def test_the_table_is_that_of_pandas_with_paths_to_the_images(
    evaluation: Evaluation, folder: Path
) -> None:
    lines, _, _ = read(folder)
    frame = evaluation.failures()
    expected = {
        tuple(map(str, row))
        for row in frame[["model", "key", "label", "class", "answered", "shift"]].values
    }
    columns = ("model", "key", "label", "class", "answered", "shift")
    assert {tuple(line[name] for name in columns) for line in lines} == expected and len(
        lines
    ) == len(frame)
    assert {line["path"].split("/")[1] for line in lines} == {
        cls.name for cls in evaluation.results.classes
    }
    assert {path.relative_to(folder).as_posix() for path in (folder / "images").rglob("*.*")} == {
        line["path"] for line in lines
    }


def test_images_are_those_of_the_dataset_and_name_their_base(
    evaluation: Evaluation, folder: Path
) -> None:
    lines, _, _ = read(folder)
    assert evaluation.task is not None
    images = dict(evaluation.task.subject.images())
    bases = {}
    for line in lines:
        assert (folder / line["path"]).read_bytes() == images[line["key"]]
        bases[line["key"]] = line["base_key"]
    shifted = {key: base for key, base in bases.items() if not key.startswith("base")}
    assert shifted and all(
        base and base.split("-")[1:] == key.split("-")[1:] for key, base in shifted.items()
    )
    assert not any(base for key, base in bases.items() if key.startswith("base"))


def test_coco_names_every_image_its_label_and_every_answer(
    evaluation: Evaluation, folder: Path
) -> None:
    lines, coco, _ = read(folder)
    names = {category["id"]: category["name"] for category in coco["categories"]}
    assert list(names.values()) == [cls.name for cls in evaluation.results.classes]
    images = {image["id"]: image for image in coco["images"]}
    for image in images.values():
        with Image.open(folder / image["file_name"]) as picture:
            assert picture.size == (image["width"], image["height"])
    truth = {
        annotation["image_id"]: names[annotation["category_id"]]
        for annotation in coco["annotations"]
    }
    assert truth == {number: image["file_name"].split("/")[1] for number, image in images.items()}
    wrong = {
        (images[row["image_id"]]["key"], row["model"], row["answer"])
        for row in coco["answers"]
        if not row["right"]
    }
    assert wrong == {(line["key"], line["model"], line["answered"]) for line in lines}
    assert len(coco["answers"]) == len(images) * len(evaluation.models)


def test_fiftyone_finds_images_labels_and_answers(evaluation: Evaluation, folder: Path) -> None:
    """`LegacyFiftyOneDatasetImporter` of FiftyOne 1.22 reads metadata without a version of its
    database."""
    _, coco, samples = read(folder)
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["media_type"] == "image" and "version" not in metadata
    assert list(metadata["info"]["models"].values()) == [model.name for model in evaluation.models]
    assert [sample["filepath"] for sample in samples] == [
        image["file_name"] for image in coco["images"]
    ]
    for sample in samples:
        assert (folder / sample["filepath"]).is_file() and sample["tags"] == [sample["shift"]]
        assert all(re.fullmatch(r"[a-z][A-Za-z0-9_]*", name) for name in sample)
        labels = {name: value for name, value in sample.items() if isinstance(value, dict)}
        assert set(labels) == {"ground_truth", *metadata["info"]["models"]}
        assert {label["_cls"] for label in labels.values()} == {"Classification"}
        right = {
            name.removeprefix("right_"): value
            for name, value in sample.items()
            if name.startswith("right_")
        }
        answers = {
            name.removeprefix("answer_"): label["label"]
            for name, label in labels.items()
            if name != "ground_truth"
        }
        truth = labels["ground_truth"]["label"]
        assert {name: label == truth for name, label in answers.items()} == right and not all(
            right.values()
        )


HOSTILE = ["../../up", "Mug", "mug", "茶", "=1+1", "a/b"]


@pytest.fixture
def strange(tmp_path: Path) -> Evaluation:
    """Evaluate images whose classes and models have names that are invalid as paths."""
    source = tmp_path / "source"
    source.mkdir()
    table = {
        "image": [{"bytes": encoded(np.full((8, 8, 3), 9 * row, np.uint8))} for row in range(12)],
        "label": [row % 6 for row in range(12)],
    }
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=HOSTILE))
    datasets.Dataset.from_dict(table, features).to_parquet(str(source / "all.parquet"))
    models = {
        "../a b.c": lambda batch: -np.eye(6)[[0] * len(batch)],
        "a_b_c": lambda batch: np.eye(6)[[5] * len(batch)],
    }
    return measured(source, models, class_order="position")


def test_no_name_of_a_stranger_becomes_a_path(strange: Evaluation, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    folder = strange.export_failures(tmp_path / "failures")
    new = {path.relative_to(tmp_path).as_posix() for path in set(tmp_path.rglob("*")) - before}
    assert all(re.fullmatch(r"failures(/[A-Za-z0-9_-]+)*(\.[a-z]+)?", path) for path in new)
    lines, coco, samples = read(folder)
    assert len({line["path"].lower() for line in lines}) == len(coco["images"]) == len(samples)
    folders = {line["class"]: line["path"].split("/")[1] for line in lines}
    assert len({name.lower() for name in folders.values()}) == len(folders)
    # a spreadsheet reads this as text
    assert {line["class"] for line in lines} <= {*HOSTILE, "'=1+1"}
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (
        sorted(metadata["info"]["models"].values()) == ["../a b.c", "a_b_c"]
        and len(metadata["info"]["models"]) == 2
    )


def test_existing_files_are_kept_and_nothing_is_half_written(
    strange: Evaluation, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    with refuses("existing-output", None, "is not an empty folder"):
        strange.export_failures(folder)
    assert [path.name for path in folder.iterdir()] == ["note.txt"]
    (folder / "note.txt").unlink()
    assert strange.export_failures(folder) == folder and (folder / "coco.json").is_file()

    def stopped(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        yield next(part.images.images(wanted))
        raise RunFailure("the disk was taken out")

    assert isinstance(strange.task, ClassesTask)
    subject = strange.task.subject
    [part] = subject.parts
    broken = replace(subject, parts=(replace(part, images=replace(part.images, read=stopped)),))
    with pytest.raises(RunFailure, match="taken out"):
        strange.task.subject = broken
        strange.export_failures(tmp_path / "later")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("later")]


def test_the_command_says_where_the_folder_is_and_refuses_one_before_it_scores(
    weather: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "failures"
    out = tmp_path / "out"
    options = [
        "--recipe",
        "wardrobe-mini",
        "--groups",
        "weather",
        "--base",
        "clear",
        "--device",
        "cpu",
    ]
    line = [
        "evaluate",
        str(weather),
        "--models",
        "lab:resnet10t",
        "--out",
        str(out),
        "--export-failures",
        str(folder),
    ]
    done = succeed(*line, *options)
    assert f"exported:    {folder}" in done.stdout and (folder / "images").is_dir()
    refused = CliRunner().invoke(app, ["evaluate", "nowhere", "--export-failures", str(folder)])
    assert isinstance(refused.exception, UserError) and "is not an empty folder" in str(
        refused.exception
    )
    for new, message in (
        (weather / "failures", "lies inside the dataset"),
        (tmp_path / "new", "the folder of the report"),
    ):
        line = [
            "evaluate",
            str(weather),
            "--out",
            str(tmp_path / "new"),
            "--export-failures",
            str(new),
        ]
        refused = CliRunner().invoke(app, line)
        assert isinstance(refused.exception, UserError) and message in str(refused.exception)
        assert not new.exists()
