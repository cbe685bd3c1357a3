"""What cannot be scored ends in a message that says what and where, before anything is computed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from colour_world import build_colours, png_of, save_colour_model
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.plan import Sample
from counterfoil.prediction import passes
from counterfoil.store import verify_files


def test_problems_of_all_models_are_told_together(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    four = save_colour_model(tmp_path / "four", outputs=4)
    with pytest.raises(UserError) as caught:
        evaluate(dataset, [models["sharp"], "resnet81", f"local-dir:{four}", "resnet18.a1_in1k"], device="cpu")
    assert len(caught.value.problems) == 3
    assert "resnet81" in caught.value.problems[0]
    assert "4 outputs" in caught.value.problems[1]
    assert "1000 outputs" in caught.value.problems[2]


def configured(model: Path, **values: object) -> str:
    """A model's name after its input's form was changed."""
    file = model / "config.json"
    document = json.loads(file.read_text())
    document["pretrained_cfg"] |= values
    file.write_text(json.dumps(document))
    return f"local-dir:{model}"


def test_inputs_that_no_image_can_have_are_told_together_before_anything_is_decoded(
    dataset: Path, models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "open", None)
    forms: dict[str, object] = {
        "input_size": [3, 100_000, 100_000],
        "std": [0, 0, 0],
        "interpolation": "sinc",
        "crop_pct": 1e-9,
    }
    names = [configured(save_colour_model(tmp_path / key), **{key: value}) for key, value in forms.items()]
    names.append(configured(save_colour_model(tmp_path / "zero"), input_size=[3, 0, 0], mean=[1]))
    with pytest.raises(UserError) as caught:
        evaluate(dataset, [models["sharp"], *names], device="cpu")
    for key, name in zip([*forms, "input_size", "mean"], [*names, names[-1]], strict=True):
        assert any(name in problem and f"pretrained_cfg.{key}: found" in problem for problem in caught.value.problems)


@pytest.mark.parametrize(("size", "batch"), [(4096, 100_000), (4096, 1_500)])
def test_batches_beyond_memory_are_refused_before_an_image_is_decoded(
    dataset: Path, models: dict[str, str], tmp_path: Path, size: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would end the run without a word. The second batch fits, and what the model makes of it does not."""
    name = configured(save_colour_model(tmp_path / "large"), input_size=[3, size, size])
    if batch == 1_500:
        monkeypatch.setattr(passes, "free_bytes", lambda device="cpu": 700 * 10**9)
    out = tmp_path / "out"
    with pytest.raises(RunFailure, match=rf"4,096 x 4,096 pixels: batches of {batch} need [\d,.]+ GB") as caught:
        evaluate(dataset, [models["sharp"], name], device="cpu", batch_size=batch, out=out)
    assert "--batch-size" in str(caught.value) and "other 1 are kept" in str(caught.value)
    assert evaluate(dataset, [models["sharp"]], device="cpu", out=out).models


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
    given: dict[str, Any] = {"device": "cpu", **options}
    with pytest.raises(UserError, match=says):
        evaluate(dataset, [models["sharp"]], **given)


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
    with pytest.raises(UserError, match=r"no built dataset: it has no recipe\.yaml"):
        evaluate(tmp_path, ["resnet18"])
    with pytest.raises(UserError, match="is a file"):
        evaluate(dataset / "manifest.json", ["resnet18"])
    unfinished = shutil.copytree(dataset, tmp_path / "unfinished")
    (unfinished / "manifest.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        evaluate(unfinished, ["resnet18"])
