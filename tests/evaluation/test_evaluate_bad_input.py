"""What cannot be scored ends in a message that says what and where, before anything is computed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from colour_world import build_colours, png_of, save_colour_model

from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.plan import Sample
from counterfoil.store import verify_files


def test_problems_of_all_models_are_told_together(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    four = save_colour_model(tmp_path / "four", outputs=4)
    with pytest.raises(UserError) as caught:
        evaluate(dataset, [models["sharp"], "resnet81", f"local-dir:{four}", "resnet18.a1_in1k"], device="cpu")
    assert len(caught.value.problems) == 3
    assert "resnet81" in caught.value.problems[0]
    assert "4 outputs" in caught.value.problems[1]
    assert "1000 outputs" in caught.value.problems[2]


def test_no_base_image_is_a_users_mistake(tmp_path: Path, models: dict[str, str]) -> None:
    dataset = build_colours(tmp_path / "d", keep=lambda sample: sample.shift != "base")
    with pytest.raises(UserError, match="no accepted base image"):
        evaluate(dataset, [models["sharp"]], device="cpu")


def test_an_unreadable_base_is_a_failure(tmp_path: Path, models: dict[str, str]) -> None:
    def image(sample: Sample) -> bytes:
        return b"broken" if sample.shift == "base" else png_of(sample)

    dataset = build_colours(tmp_path / "d", image=image)
    with pytest.raises(RunFailure, match="not one base image"):
        evaluate(dataset, [models["sharp"]], device="cpu")


def test_zero_models_is_a_users_mistake(dataset: Path) -> None:
    with pytest.raises(UserError, match="no model to score"):
        evaluate(dataset)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "toaster"}, "toaster"),
        ({"batch_size": 0}, "batch size 0"),
        ({"min_images_per_class": 0}, "min_images_per_class is 0"),
    ],
)
def test_an_option_out_of_range_is_a_users_mistake(
    dataset: Path, models: dict[str, str], options: dict, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        evaluate(dataset, [models["sharp"]], **{"device": "cpu", **options})


def test_a_report_may_not_land_among_the_datasets_files(tmp_path: Path, models: dict[str, str]) -> None:
    dataset, file = build_colours(tmp_path / "d"), tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(UserError, match="lies inside the dataset"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=dataset / "report")
    with pytest.raises(UserError, match="is a file"):
        evaluate(dataset, [models["sharp"]], device="cpu", out=file)
    assert file.read_text() == "kept"
    assert verify_files(dataset) == []


def test_what_is_no_dataset_is_a_users_mistake(tmp_path: Path, dataset: Path) -> None:
    with pytest.raises(UserError, match="there is no dataset"):
        evaluate(tmp_path / "nowhere", ["resnet18"])
    with pytest.raises(UserError, match=r"no recipe\.yaml"):
        evaluate(tmp_path, ["resnet18"])
    with pytest.raises(UserError, match="is a file"):
        evaluate(dataset / "manifest.json", ["resnet18"])
    unfinished = shutil.copytree(dataset, tmp_path / "unfinished")
    (unfinished / "manifest.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        evaluate(unfinished, ["resnet18"])
