"""Own classes that the CLIP does not know: told before the first image, and wherever the dataset is told of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from markupsafe import escape
from typer.testing import CliRunner

from counterfoil.building import BuildProgress, BuildResult
from counterfoil.calibration import calibrate
from counterfoil.calibration.recut_dataset import recut
from counterfoil.cli.main import app
from counterfoil.dataset import read_dataset
from counterfoil.progress import Stage, listening
from counterfoil.regeneration.regenerate_dataset import regenerate
from counterfoil.screen import ScreenDoubts
from drawn_folders import draw_folder
from tiny_builds import TINY, published, run_command, tiny

CLASSES = (
    "source.classes=[{id: ladder, name: ladder, source_label: 0}, {id: mug, name: mug, source_label: 1},"
    " {id: star, name: star, source_label: 2}]"
)
ONE_SHIFT = ("prompts.shifts.red=null", "prompts.shifts.pencil_sketch=null")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("drawn") / "shapes")


def changes(folder: Path) -> list[str]:
    source = [f"source.dataset={folder}", "source.unit_column=null", CLASSES]
    screen = "screen={model: lab:clip, object_threshold: {percentile: 5}, shift_threshold: -1, keep_rejected: true}"
    return [*source, *ONE_SHIFT, screen, "samples={candidates: 1, seed: 0, noise: paired}"]


@pytest.fixture(scope="module")
def told(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object], BuildResult]:
    out = tmp_path_factory.mktemp("shapes") / "dataset"
    heard: list[object] = []
    with listening(heard.append):
        return out, heard, tiny(out, *changes(folder))


Told = tuple[Path, list[object], BuildResult]


def test_it_is_told_before_the_first_image(told: Told) -> None:
    out, heard, result = told
    # Reading the source's files comes first where they were never read.
    heard = [one for one in heard if not isinstance(one, Stage)]
    doubts, after = heard[0], heard[1:]
    assert isinstance(doubts, ScreenDoubts)
    assert all(isinstance(one, BuildProgress) for one in after)
    assert after
    assert result.screen_doubts == doubts
    assert doubts.near_chance
    assert {one.class_id for one in doubts.classes} == {"ladder", "mug", "star"}
    assert all(one.least_threshold is not None and one.least_threshold < 0 for one in doubts.classes)
    stored = json.loads((out / "thresholds.json").read_bytes())["known"]
    assert stored["n"] == 36
    assert stored["right"] / 36 == doubts.accuracy


def test_the_card_and_the_description_for_machines_warn(told: Told) -> None:
    out, _, result = told
    assert result.screen_doubts is not None
    card = (out / "README.md").read_text()
    warning = card.index("> **Warning.** CLIP does not know these classes")
    assert warning < card.index("## Load it")
    assert "cannot tell 'ladder' from 'mug'" in card[warning : card.index("## Load it")]
    screening = card[card.index("**Screening.**") : card.index("## Uses")]
    for class_name in ("ladder", "mug", "star"):
        assert f"- class '{class_name}': " in screening
    limits = json.loads((out / "croissant.json").read_bytes())["rai:dataLimitations"]
    assert any(result.screen_doubts.headline in limit for limit in limits)


def test_the_command_warns_people_and_machines(folder: Path, told: Told) -> None:
    out = told[0]
    settings = [word for change in (*TINY, *changes(folder)) for word in ("--set", change)]
    done = run_command(["build", "wardrobe-mini", "--out", str(out), "--device", "cpu", *settings, "--json"])
    assert done.returncode == 0, done.stderr
    assert "Warning: CLIP does not know these classes: it names 38.9 %" in done.stderr
    assert "screen.model" in done.stderr
    machines = json.loads(done.stdout)["screen_doubts"]
    assert machines["near_chance"] is True
    assert machines["warning"].startswith("CLIP does not know these classes")
    assert {one["class_id"] for one in machines["classes"]} == {"ladder", "mug", "star"}


def test_what_was_measured_is_kept_and_not_measured_again(folder: Path, told: Told, tmp_path: Path) -> None:
    out = shutil.copytree(told[0], tmp_path / "dataset")
    before = published(out)
    # Another answer of another day: what is there stands, since nothing is measured again.
    document = json.loads((out / "thresholds.json").read_bytes())
    document["known"]["classes"]["ladder"]["margin"] = -0.75
    (out / "thresholds.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    edited = (out / "thresholds.json").read_bytes()
    assert edited != before["thresholds.json"]
    result = tiny(out, *changes(folder))
    assert result.shards_made == 0
    assert (out / "thresholds.json").read_bytes() == edited
    assert result.screen_doubts is not None
    assert result.screen_doubts.classes[0].margin == -0.75


def test_a_directory_begun_before_goes_on_with_its_bytes(folder: Path, told: Told, tmp_path: Path) -> None:
    out = shutil.copytree(told[0], tmp_path / "dataset")
    lock = (out / "lock.json").read_bytes()
    document = json.loads((out / "thresholds.json").read_bytes())
    del document["known"]
    without = (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
    (out / "thresholds.json").write_bytes(without)
    receipt = min((out / "receipts").rglob("*.json"))
    receipt.unlink()
    (out / "manifest.json").unlink()
    result = tiny(out, *changes(folder))
    assert result.shards_made == 1
    assert (out / "lock.json").read_bytes() == lock
    assert (out / "thresholds.json").read_bytes() == without
    assert receipt.exists()
    assert not read_dataset(out, "thresholds", "receipts").faults


def test_made_again_it_is_the_same_dataset(told: Told, tmp_path: Path) -> None:
    made = regenerate(told[0], tmp_path / "again", device="cpu", workers=1)
    assert made.comparison is not None
    assert made.comparison.identical
    assert published(tmp_path / "again") == published(told[0])
    assert made.screen_doubts == told[2].screen_doubts


def test_a_cut_carries_it_as_a_fresh_build_has_it(folder: Path, told: Told, tmp_path: Path) -> None:
    cut = tmp_path / "cut.yaml"
    cut.write_text(json.dumps({"prompts": {"shifts": {"in_the_snow": {"threshold": 0.2}}}}))
    result = recut(told[0], cut, tmp_path / "cut", device="cpu")
    assert result.screen_doubts == told[2].screen_doubts
    tiny(tmp_path / "fresh", *changes(folder), "prompts.shifts.in_the_snow.threshold=0.2")
    assert published(tmp_path / "cut") == published(tmp_path / "fresh")


def test_thresholds_are_chosen_under_the_same_warning(told: Told, tmp_path: Path) -> None:
    doubts = told[2].screen_doubts
    assert doubts is not None
    page = tmp_path / "page.html"
    assert calibrate(told[0], page).screen_doubts == doubts
    shown = page.read_text()
    assert "<strong>Warning.</strong> CLIP does not know these classes" in shown
    assert str(escape(doubts.meaning)) in shown
    done = CliRunner().invoke(app, ["calibrate", str(told[0]), "--out", str(page), "--json"])
    assert done.exit_code == 0, done.output
    assert "Warning: CLIP does not know these classes: it names 38.9 %" in done.stderr
    assert doubts.what_to_do in done.stderr
    assert json.loads(done.stdout)["screen_doubts"]["near_chance"] is True


def test_other_classes_in_the_file_are_no_part_of_the_dataset(told: Told, tmp_path: Path) -> None:
    out = shutil.copytree(told[0], tmp_path / "dataset")
    document = json.loads((out / "thresholds.json").read_bytes())
    document["known"]["classes"]["ladder"]["taken_for"] = "<script>"
    (out / "thresholds.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    standing = read_dataset(out, "thresholds")
    assert any("thresholds.json" in fault.path for fault in standing.faults)
    assert standing.read_thresholds is not None
    assert standing.read_thresholds.known is None
