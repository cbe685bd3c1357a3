"""The first hour with images of one's own, as a person types it: init, check, build, calibrate,
evaluate.

Mugs, stars and ladders, which the miniature generator cannot draw: what every step says must hold
all the same.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models import save_for_hf
from typer.testing import CliRunner, Result

import counterfoil
from counterfoil.cli import demo
from counterfoil.cli.main import app
from counterfoil.errors import CounterfoilWarning
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_rows
from drawn_folders import SHAPES, SIDE, draw_folder

IMAGES = 12
# Two candidates a cell in one step, in batches that fit a shift's six: the same commands in
# seconds.
QUICK = (
    "samples.candidates=2",
    "generator.steps=1",
    "generator.size=32",
    "generator.batch_size=6",
    "output.rows_per_shard=6",
)


def run(*words: str) -> Result:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def flat(text: str) -> str:
    return " ".join(text.split())


def own_model(folder: Path) -> str:
    """Save a classifier of the three classes as timm does, with another order of outputs; return
    its name."""
    torch.manual_seed(0)
    model: Any = timm.create_model("lcnet_035", num_classes=len(SHAPES))
    model.pretrained_cfg.update(
        input_size=[3, SIDE, SIDE], mean=[0.5] * 3, std=[0.5] * 3, crop_pct=1.0
    )
    save_for_hf(
        model,
        str(folder),
        model_config={"label_names": ["star", "ladder", "mug"]},
        safe_serialization=True,
    )
    return f"local-dir:{folder}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first-hour")
    draw_folder(folder / "photos", per_class=IMAGES)
    return folder


@pytest.fixture(autouse=True)
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def walked(home: Path) -> dict[str, Result]:
    """Run every step in the order that `init` gives, and return the results."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        changes = [word for change in QUICK for word in ("--set", change)]
        steps = {
            "init": run("init", "photos", "--generator", "lab:sd", "--clip", "lab:clip"),
            "check": run("check", "recipe.yaml", *changes),
            "build": run(
                "build", "recipe.yaml", *changes, "--workers", "1", "--out", "photos-star"
            ),
            "calibrate": run("calibrate", "photos-star"),
        }
        (home / "cut.yaml").write_text(steps["calibrate"].stdout)
        steps["cut"] = run(
            "calibrate", "photos-star", "--apply", "cut.yaml", "--out", "photos-star-cut"
        )
        steps["evaluate"] = run(
            "evaluate",
            "photos-star-cut",
            "--models",
            own_model(home / "own"),
            "--min-images",
            "1",
            "--out",
            "results",
        )
    return steps


def test_every_next_line_is_a_command_that_runs(walked: dict[str, Result]) -> None:
    lines = [
        line
        for done in walked.values()
        for line in done.output.splitlines()
        if line.startswith("Next: ")
    ]
    commands = [shlex.split(line.removeprefix("Next: ")) for line in lines]
    assert [command[:3] for command in commands] == [
        ["counterfoil", "calibrate", "photos-star"]
    ] * 2
    # the second one has run beside its dataset already, and reports that its cut exists
    for _, *words in commands:
        run(*words)


def test_init_counts_the_images_and_says_what_comes_next(walked: dict[str, Result]) -> None:
    text = walked["init"].stdout
    for name in SHAPES:
        assert [name, str(IMAGES), str(IMAGES)] in [line.split() for line in text.splitlines()]
    assert "all classes have fewer than 20 images in split validation" in flat(text)
    assert "ten kinds of clothes" in flat(text)
    commands = [line.strip() for line in text.splitlines() if line.startswith("  counterfoil ")]
    steps = ["check", "build", "calibrate", "calibrate", "review", "evaluate"]
    assert [command.split()[1] for command in commands] == steps
    assert "counterfoil build recipe.yaml --out photos-star" in commands


def test_check_says_how_long_starting_takes_and_what_is_lacking(walked: dict[str, Result]) -> None:
    text = flat(walked["check"].stdout)
    assert "photos-star is valid" in text and "start-up about 25 seconds" in text
    assert "needs:" not in text  # the lab's models and the folder exist
    assert "note: evaluate.models: no model is named" in text
    assert "note: screen.shift_threshold: no threshold yet for in_the_grass" in text


def test_build_says_that_thresholds_are_weak_and_that_shifts_wait(
    walked: dict[str, Result],
) -> None:
    text = flat(walked["build"].output)
    assert "class 'mug': percentile 5 of 12 validation images, needs 20" in text
    assert (
        "These shifts have no threshold yet, so none of their images is kept: in_the_grass,"
        " in_the_snow" in text
    )
    assert "counterfoil calibrate photos-star" in text


def test_build_warns_before_the_first_image_that_clip_does_not_know_these_classes(
    walked: dict[str, Result],
) -> None:
    text = flat(walked["build"].output)
    warning = text.index("Warning: CLIP")
    assert "know" in text[warning : warning + 60] and "of 36 validation images" in text
    assert warning < text.index("0/42 images")


def test_every_warning_of_build_calibrate_and_cut_is_a_warning_of_its_function(
    walked: dict[str, Result], tmp_path: Path
) -> None:
    calls: dict[str, Any] = {
        "build": lambda: counterfoil.build(
            "recipe.yaml", "photos-star", overrides=QUICK, workers=1
        ),
        "calibrate": lambda: counterfoil.calibrate("photos-star", tmp_path / "page.html"),
        "cut": lambda: counterfoil.recut("photos-star", "cut.yaml", tmp_path / "cut"),
    }
    warned = {}
    for step, call in calls.items():
        with pytest.warns(CounterfoilWarning) as heard:
            call()
        assert {warning.filename for warning in heard} == {__file__}
        warned[step] = "\n".join(f"Warning: {warning.message}" for warning in heard).splitlines()
        assert set(warned[step]) <= set(walked[step].stderr.splitlines())
        heads = [line for line in warned[step] if line.startswith("Warning: ")]
        assert heads == [
            line for line in walked[step].stderr.splitlines() if line.startswith("Warning: ")
        ]
    assert len([line for line in warned["build"] if line.startswith("Warning: ")]) == 3


def test_calibrate_gives_every_shift_a_threshold_and_the_cut_keeps_pictures(
    walked: dict[str, Result], home: Path
) -> None:
    assert all(
        shift in walked["calibrate"].stdout for shift in ("in_the_snow", "red", "pencil_sketch")
    )
    before = Counter(row["shift"] for row in read_rows(home / "photos-star", ["shift"]))
    after = Counter(row["shift"] for row in read_rows(home / "photos-star-cut", ["shift"]))
    assert set(before) == {"base"}
    assert after["base"] == before["base"] and len(after) > 1


def test_evaluate_finds_the_folder_that_the_dataset_pins_and_scores_its_validation_images(
    walked: dict[str, Result], home: Path
) -> None:
    text = flat(walked["evaluate"].output)
    assert "in_the_snow" in text and (home / "results" / "report.html").is_file()
    assert (
        f"own, validation: {IMAGES * len(SHAPES)} done" in text and "was not measured" not in text
    )
    # This model knows nothing: no class has a drop, and accuracies and the gap between them count
    # all.
    assert f"over the same {len(SHAPES)} classes" in text and "no drop can be measured" in text


def test_the_quick_demo_ends_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo._QUICK_IMAGES * len(load_recipe(demo._QUICK_RECIPE).classes) == 100
    monkeypatch.setattr(demo, "_QUICK_IMAGES", 2)
    done = run("demo", "--quick", "--out", str(tmp_path))
    folder = tmp_path / "wardrobe-corrupt-evaluation"
    results = json.loads((folder / "results.json").read_text())
    assert [model["name"] for model in results["models"]] == list(
        load_recipe("wardrobe-corrupt").evaluate.models
    )
    rows = Counter(row["shift"] for row in read_rows(tmp_path / "wardrobe-corrupt", ["shift"]))
    assert set(rows.values()) == {20} and len(rows) == 13
    assert str(folder / "report.html") in flat(done.stdout) and (folder / "report.html").is_file()
    # What it says last leads to the report, names each file once, and asks for no repository.
    assert f"Next: counterfoil open {shlex.quote(str(folder))}" in done.stderr
    assert 'href="report.html"' in (folder / "index.html").read_text()
    labels = [line.partition(":")[0] for line in done.stdout.splitlines() if str(tmp_path) in line]
    assert len(labels) == len(set(labels)) and "json" in labels and "document" not in labels
    assert "entries were written for the Hub" not in done.output
