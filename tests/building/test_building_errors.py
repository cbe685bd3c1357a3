"""Bad input to the real command: a message that says what, where and what to do; never a traceback."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from tiny_builds import build_arguments, run_command

PERCENTILE = "screen.object_threshold={percentile: 5}"


def _refused(out: Path, *changes: str, code: int = 2) -> str:
    """What the command says on stderr when it refuses, in one line."""
    run = run_command(build_arguments(out, *changes))
    said = " ".join(run.stderr.split())
    assert run.returncode == code, said
    assert "Traceback" not in said
    assert "internal error" not in said
    assert run.stdout == ""
    return said


def _parquet(folder: Path, damaged: int | None) -> Path:
    """Validation images as a Parquet folder; `damaged` is the row whose bytes are no picture."""
    folder.mkdir()
    rows = [render(wardrobe_scene("validation", row)) for row in (5, 8, 15, 18)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    table = datasets.Dataset.from_dict({"image": rows, "label": [5, 8, 5, 8]}, features=features)
    contents = list(table.cast_column("image", datasets.Image(decode=False))["image"])
    if damaged is not None:
        contents[damaged]["bytes"] = contents[damaged]["bytes"][:100]
    plain = datasets.Dataset.from_dict({"image": contents, "label": [5, 8, 5, 8]})
    plain.to_parquet(str(folder / "validation.parquet"))
    return folder


def test_unknown_models_and_schedulers_suggest_the_nearest(tmp_path: Path) -> None:
    said = _refused(tmp_path / "dataset", "generator.model=lab:sdd")
    assert "lab:sdd" in said
    assert "did you mean 'sd'?" in said
    said = _refused(tmp_path / "dataset", "generator.scheduler=DDIMM")
    assert "did you mean 'DDIM'?" in said


def test_unusable_output_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    assert "thesis.txt" in _refused(foreign)
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    assert "is a file" in _refused(tmp_path / "file")
    assert str(tmp_path / "file") in _refused(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_input_dataset_is_told_where_a_percentile_needs_it(tmp_path: Path) -> None:
    said = _refused(tmp_path / "dataset", PERCENTILE, f"source.dataset={tmp_path / 'gone'}")
    assert "gone" in said
    assert "source" in said
    assert not (tmp_path / "dataset").exists()


def test_an_unreadable_image_is_named_by_its_row(tmp_path: Path) -> None:
    source = _parquet(tmp_path / "garments", damaged=2)
    two = "source.classes=[{id: a, name: sandal, source_label: 5}, {id: b, name: bag, source_label: 8}]"
    said = _refused(tmp_path / "dataset", PERCENTILE, f"source.dataset={source}", two)
    assert "validation_00000002" in said
    assert "unreadable image" in said
    assert not (tmp_path / "dataset" / "README.md").exists()


def test_a_class_without_validation_images_is_named(tmp_path: Path) -> None:
    source = _parquet(tmp_path / "garments", damaged=None)
    said = _refused(tmp_path / "dataset", PERCENTILE, f"source.dataset={source}")
    assert "class '00' has no validation image" in said


@pytest.mark.parametrize(
    ("option", "value", "said"), [("--workers", "0", "--workers"), ("--device", "gpu", "device 'gpu'")]
)
def test_wrong_options_are_told(option: str, value: str, said: str, tmp_path: Path) -> None:
    run = run_command([*build_arguments(tmp_path / "dataset"), option, value])
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_other_steps_in_the_same_directory_are_refused_with_the_difference(undisturbed: Path) -> None:
    said = _refused(undisturbed, "generator.steps=3")
    assert "generator.steps" in said
    assert "2" in said
    assert "3" in said
