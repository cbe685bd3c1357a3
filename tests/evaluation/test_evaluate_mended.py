"""A mended model is not measured on the images that it was mended on, under any name; on others it
is."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from colour_world import COLOURS, NAMES, build_colours
from counterfoil.errors import UserError
from counterfoil.evaluation.results import Evaluation
from counterfoil.models.mended import MENDED, MendedModelName, MendedNote, MendedOn, MendedWith
from counterfoil.store.decoding import pixels_sha256
from counterfoil.store.reading import read_batches
from support.measured import measured
from support.refusals import refuses
from support.reports import evaluation_html

OTHER = "e" * 64
NOTE = MendedNote(
    1, MendedModelName("lab:resnet10t", None), (), (), (), 1.0, "lbfgs", 5e-4, {"": 1}
)


@pytest.fixture
def mended(models: dict[str, str], tmp_path: Path) -> Path:
    folder = tmp_path / "mended"
    shutil.copytree(models["sharp"].removeprefix("local-dir:"), folder)
    return folder


def noted(folder: Path, **changes: Any) -> str:
    """Write into the folder what the model was mended with; return the name of the model."""
    (folder / MENDED).write_text(json.dumps(replace(NOTE, **changes).to_json()))
    return f"local-dir:{folder}"


def test_a_model_mended_on_other_images_is_measured(dataset: Path, mended: Path) -> None:
    name = noted(
        mended,
        on=(MendedOn("photos", OTHER),),
        train_content=(OTHER,),
        datasets=(MendedWith("another", OTHER, None, 4, "colours"),),
    )
    assert measured(dataset, [name]).scores


def test_the_dataset_itself_is_refused(
    dataset: Path,
    evaluation: Evaluation,
    mended: Path,
    models: dict[str, str],
) -> None:
    with_it = MendedWith("colours-built", evaluation.results.content, "contexts", 3, "colours")
    for note in (
        {"datasets": (with_it,)},
        {"on": (MendedOn("colours-built", evaluation.results.content),)},
    ):
        with pytest.raises(
            UserError, match=r"mended on colours-built, which is .*: the same images .trained-on"
        ) as refused:
            measured(dataset, [models["sharp"], noted(mended, **note)])
        assert len(refused.value.problems) == 1 and "another" in str(refused.value.hint)


def test_another_build_of_one_seed_is_refused(dataset: Path, mended: Path, tmp_path: Path) -> None:
    with_it = MendedWith("colours-built", OTHER, "contexts", 3, "colours")
    name = noted(mended, datasets=(with_it,))
    with refuses("trained-on", None, "samples.seed 3 is also that of"):
        measured(dataset, [name])
    other = build_colours(tmp_path / "other", "samples.seed=5")
    assert measured(other, [name]).scores


def test_single_images_are_found_wherever_they_lie(
    dataset: Path, mended: Path, tmp_path: Path
) -> None:
    images = [
        row["image"]["bytes"]
        for batch in read_batches(dataset, columns=["image"])
        for row in batch.to_pylist()
    ]
    photos = tmp_path / "photos"
    for label, name in enumerate(NAMES):
        (photos / name).mkdir(parents=True)
        Image.new("RGB", (40, 32), COLOURS[label]).save(photos / name / "own.png")
    with Image.open(io.BytesIO(images[0])) as picture:
        contents = (pixels_sha256(picture.convert("RGB")),)
        picture.save(photos / "red" / "taken.png", optimize=True, compress_level=1)
    assert (photos / "red" / "taken.png").read_bytes() != images[0]
    name = noted(mended, train_content=contents)
    with refuses("trained-on", None, "fitted to 1 of the 4 images of"):
        measured(photos, [name], recipe=dataset)
    # A dataset of plain colours has many equal files.
    count = sum(image == images[0] for image in images)
    with pytest.raises(UserError, match=f"fitted to {count:,} of the {len(images):,} images"):
        measured(dataset, [name])
    (photos / "red" / "taken.png").unlink()
    assert measured(photos, [name], recipe=dataset).scores
    with refuses("trained-on"):
        beside = {"natural": _copied(images, tmp_path / "beside")}
        measured(photos, [name], recipe=dataset, beside=beside)


def _copied(images: list[bytes], root: Path) -> Path:
    for index, name in enumerate(NAMES):
        (root / name).mkdir(parents=True)
        (root / name / "0.png").write_bytes(images[index])
    return root


def test_a_given_name_hides_nothing(dataset: Path, evaluation: Evaluation, mended: Path) -> None:
    name = noted(mended, on=(MendedOn("colours-built", evaluation.results.content),))
    with refuses("trained-on", "model 'mine'", "was mended on"):
        measured(dataset, {"mine": name})


def test_a_note_that_is_not_understood_ends_it(dataset: Path, mended: Path) -> None:
    (mended / MENDED).write_text('{"format": 1}')
    with pytest.raises(UserError, match="model: is missing"):
        measured(dataset, [f"local-dir:{mended}"])


def test_another_original_is_reported(dataset: Path, mended: Path, models: dict[str, str]) -> None:
    name = noted(mended, model=MendedModelName("lab:lcnet_035", OTHER))
    result = measured(dataset, compare=(name, models["no_red"]))
    assert result.comparison is not None and result.comparison.note is not None
    assert "lab:lcnet_035" in result.comparison.note
    assert "lab:lcnet_035" in evaluation_html(result.results)
    (original,) = (model.sha256 for model in result.models if model.name == models["no_red"])
    noted(mended, model=MendedModelName("lab:resnet10t", original))
    same = measured(dataset, compare=(name, models["no_red"]))
    assert same.comparison is not None and same.comparison.note is None
