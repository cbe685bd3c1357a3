"""A model mended with edits of real rows knows these rows again: as they are, and in other edits of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from PIL import Image

from counterfoil.building import build
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.edited_rows import rows_in_pool
from counterfoil.mending.mend_models import mend
from counterfoil.models.mended import MendedNote, read_mended
from counterfoil.recipe import load_recipe
from counterfoil.store.decoding import pixels_sha256
from mending.scenes_to_mend import MODEL, World, write_recipe

SPARE = 18  # the last rows of the test are a split of their own


@pytest.fixture(scope="module")
def recipe(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edits")
    of = {name: str(world.recipe.parent / "source" / f"{name}.parquet") for name in ("train", "validation", "test")}
    splits = datasets.load_dataset("parquet", data_files=of, cache_dir=str(folder / "cache"))
    assert isinstance(splits, datasets.DatasetDict)
    validation: Any = splits["validation"]
    test: Any = splits["test"]
    splits["validation"] = validation.select(range(60))
    splits["test"] = test.select(range(len(test) - SPARE))
    splits["spare"] = test.select(range(len(test) - SPARE, len(test)))
    splits.save_to_disk(str(folder / "source"))
    return write_recipe(folder / "recipe.yaml")


def spare_rows(recipe: Path) -> datasets.Dataset:
    splits = datasets.load_from_disk(str(recipe.parent / "source"))
    assert isinstance(splits, datasets.DatasetDict)
    return splits["spare"]


def edits(recipe: Path, out: Path, candidates: int, seed: int) -> Path:
    """Edits of so many sandals, which the model does not know in the snow."""
    base = {"prompt": "a photo of a {class}", "classes": ["05"]}
    shift = {"prompt": "a photo of a {class} in the snow", "kind": "background", "classes": ["05"]}
    others = dict.fromkeys(load_recipe(recipe).prompts.shifts)
    layer = {
        "extends": str(recipe),
        "prompts": {"base": base, "shifts": {**others, "in_the_snow": shift}},
        "screen": {"object_threshold": -1, "shift_threshold": -1},
        "samples": {"candidates": candidates, "seed": seed},
        "generator": {"kind": "edit", "split": "spare", "steps": 3, "guidance": 3.0, "batch_size": 4},
    }
    (path := out.with_suffix(".yaml")).write_text(json.dumps(layer))
    build(path, out, device="cpu", workers=1)
    return out


@pytest.fixture(scope="module")
def drawn(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return edits(recipe, tmp_path_factory.mktemp("drawn") / "drawn", 4, 0)


@pytest.fixture(scope="module")
def model(recipe: Path, drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("mended") / "out"
    using = f"{drawn}:in_the_snow"
    found = mend(MODEL, recipe, using, out, lambdas=(0.5, 2.0), per_class=5, save=using, device="cpu")
    return f"local-dir:{found.models[MODEL]}"


def note_of(model: str) -> MendedNote:
    note = read_mended(Path(model.removeprefix("local-dir:")), "m")
    assert note is not None
    return note


def edited_rows(built: Path) -> set[int]:
    opened = open_dataset(str(built))
    return set(rows_in_pool(opened.directory, opened.recipe, opened.keys))


def test_it_tells_which_rows(model: str, drawn: Path, recipe: Path) -> None:
    note = note_of(model)
    (used,) = note.datasets
    assert used.edits is not None and used.seed is None
    assert set(used.edits.rows) == edited_rows(drawn) and used.edits.split == "spare"
    rows = spare_rows(recipe)["image"]
    pixels = {row: pixels_sha256(picture.convert("RGB")) for row, picture in enumerate(rows)}
    assert {row for row, digest in pixels.items() if digest in note.train_content} == edited_rows(drawn)


def test_it_is_measured_on_other_rows_alone(model: str, drawn: Path, recipe: Path, tmp_path: Path) -> None:
    rows = spare_rows(recipe)
    for place in range(SPARE):
        name = f"{rows[place]['label']:02}"
        (tmp_path / name).mkdir(exist_ok=True)
        picture = rows[place]["image"]
        assert isinstance(picture, Image.Image)
        picture.save(tmp_path / name / f"{place}.png")
    told = edited_rows(drawn)
    with pytest.raises(UserError, match=f"fitted to {len(told)} of the {SPARE} images of .*, or to edits of them"):
        evaluate(tmp_path, [model], recipe=recipe, out=tmp_path / "report", device="cpu")
    for place in told:
        (tmp_path / f"{rows[place]['label']:02}" / f"{place}.png").unlink()
    assert evaluate(tmp_path, [model], recipe=recipe, out=tmp_path / "report", device="cpu").scores


def test_it_is_measured_on_edits_of_other_rows_alone(model: str, drawn: Path, recipe: Path, tmp_path: Path) -> None:
    for seed in range(1, 9):  # the seed chooses the rows
        other = edits(recipe, tmp_path / f"{seed}", 1, seed)
        common = edited_rows(other) & edited_rows(drawn)
        if common:
            with pytest.raises(
                UserError, match=rf"of edits of {len(common)} of the same rows, such as row {min(common)}"
            ):
                evaluate(other, [model], out=tmp_path / "report", device="cpu")
            break
    else:
        pytest.fail("no seed chose a row twice")
