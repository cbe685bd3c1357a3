"""One `source:` key reads the lab's wardrobe, saved datasets, Parquet, image folders and WebDataset alike."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from webdataset.writer import TarWriter

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.recipe.schema_inputs import ClassEntry, Source
from counterfoil.sources.input_datasets import load_source
from counterfoil.sources.pins import pin_source
from support.images import encoded

ROWS = 14
CLASS = ClassEntry(id="x", name="x", source_label=0)


def _source(dataset: Path | str, **other: str) -> Source:
    return Source(dataset=str(dataset), classes=(CLASS,), **other)


@pytest.fixture(scope="module")
def wardrobe() -> tuple[list[int], list[Image.Image]]:
    split = load_source(_source("lab:wardrobe"), "validation")
    return [int(label) for label in split.labels[:ROWS]], [split.image(row) for row in range(ROWS)]


def _table(wardrobe: tuple[list[int], list[Image.Image]]) -> datasets.Dataset:
    labels, pictures = wardrobe
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    return datasets.Dataset.from_dict({"image": pictures, "label": labels}, features=features)


def _saved(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    _table(wardrobe).save_to_disk(str(folder))
    return _source(folder)


def _saved_splits(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    table: Any = _table(wardrobe)
    datasets.DatasetDict({"train": table.select([0]), "validation": table}).save_to_disk(str(folder))
    return _source(folder)


def _parquet(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    (folder / "data").mkdir(parents=True)
    _table(wardrobe).to_parquet(str(folder / "data" / "validation-00000-of-00001.parquet"))
    return _source(folder)


def _imagefolder(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    # Folders are sorted by name, so the names are made to sort by label.
    for row, (label, picture) in enumerate(zip(*wardrobe, strict=True)):
        place = folder / "validation" / f"{label}-{CLASSES[label]}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{row:03d}.png").write_bytes(encoded(picture))
    return _source(folder)


def _tars(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    folder.mkdir()
    with TarWriter(str(folder / "validation-0000.tar")) as writer:
        for row, (label, picture) in enumerate(zip(*wardrobe, strict=True)):
            writer.write({"__key__": f"{row:03d}", "png": encoded(picture), "cls": str(label).encode()})
    return _source(folder, image_column="png", label_column="cls")


@pytest.mark.parametrize("save", [_saved, _saved_splits, _parquet, _imagefolder, _tars])
def test_every_form_gives_the_same_labels_and_pixels(
    save: Callable[[Path, tuple[list[int], list[Image.Image]]], Source],
    wardrobe: tuple[list[int], list[Image.Image]],
    tmp_path: Path,
) -> None:
    source = save(tmp_path / "source", wardrobe)
    split = load_source(source, "validation")
    assert split.labels.dtype == np.int64
    # An image folder's rows come class by class; compare what each form holds, class by class, in order.
    for label in range(10):
        rows = split.rows_of(label)
        expected = [picture for found, picture in zip(*wardrobe, strict=True) if found == label]
        assert len(rows) == len(expected) > 0
        for row, picture in zip(rows, expected, strict=True):
            image = split.image(int(row))
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), np.asarray(picture))


def test_the_embedded_split_is_whole() -> None:
    split = load_source(_source("lab:wardrobe"), "train")
    assert len(split.labels) == 8000
    assert set(np.bincount(split.labels)) == {800}
    assert pin_source(_source("lab:wardrobe")).license == "mit"


@pytest.mark.parametrize(
    ("source", "split", "said"),
    [
        (_source("lab:wardrop"), "train", "lab:wardrobe"),
        (_source("lab:wardrobe"), "test", "no split 'test'"),
        (_source("./no/such/folder"), "train", "no/such/folder"),
    ],
)
def test_what_is_not_there_is_a_users_mistake(source: Source, split: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        load_source(source, split)
    assert said in " ".join([*refused.value.problems, refused.value.hint or ""])


def test_missing_columns_and_splits_are_told_with_those_there_are(
    wardrobe: tuple[list[int], list[Image.Image]], tmp_path: Path
) -> None:
    source = _parquet(tmp_path / "source", wardrobe)
    with pytest.raises(UserError, match="no column 'picture'") as refused:
        load_source(source.model_copy(update={"image_column": "picture"}), "validation")
    assert "image, label" in (refused.value.hint or "")
    with pytest.raises(UserError, match="trian"):
        load_source(source, "trian")


def test_labels_must_be_integers_or_texts(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"image": [None], "label": [0.5]}).save_to_disk(str(tmp_path / "source"))
    with pytest.raises(UserError, match="expected integer labels"):
        load_source(_source(tmp_path / "source"), "train")


# Pillow reads a portable pixmap; nothing here opens more formats than photographs come in.
PIXMAP = b"P6 64 64 255\n" + bytes(64 * 64 * 3)


@pytest.mark.parametrize("damage", [b"no picture", b"", PIXMAP, None], ids=["text", "empty", "pixmap", "cut"])
def test_an_unreadable_image_names_its_row_and_no_other(
    damage: bytes | None, wardrobe: tuple[list[int], list[Image.Image]], tmp_path: Path
) -> None:
    labels, pictures = wardrobe
    content = [encoded(picture) for picture in pictures]
    content[3] = content[3][:200] if damage is None else damage
    table = datasets.Dataset.from_dict({"image": [{"bytes": each, "path": None} for each in content], "label": labels})
    (tmp_path / "source").mkdir()
    table.to_parquet(str(tmp_path / "source" / "validation.parquet"))
    split = load_source(_source(tmp_path / "source"), "validation")
    np.testing.assert_array_equal(np.asarray(split.image(2)), np.asarray(pictures[2]))
    with pytest.raises(UserError, match=r"split validation, row 3: unreadable image"):
        split.image(3)


def test_a_damaged_table_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "validation.parquet").write_bytes(b"PAR1 but nothing more")
    with pytest.raises(CounterfoilError) as failed:
        load_source(_source(tmp_path / "source"), "validation")
    assert "\n" not in failed.value.problems[0]


@pytest.mark.parametrize("name", ["imagefolder", "json", "csv", "parquet", "webdataset", "text"])
def test_a_loader_of_files_is_no_dataset(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` would load whatever lies in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("mine")
    with pytest.raises(UserError, match=f"'{name}' is a loader of files, not a dataset"):
        load_source(_source(name), "train")


def test_a_name_of_the_hub_is_never_a_folder_here(
    wardrobe: tuple[list[int], list[Image.Image]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _table(wardrobe).to_parquet(str(tmp_path / "private" / "photos" / "train.parquet"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"Write \./private/photos for the folder"):
        load_source(_source("private/photos"), "train")
    assert pin_source(_source("./private/photos")).dataset == "photos"


def test_a_folder_of_another_machine_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"'\./photos' is a folder of the machine that the dataset was built on"):
        load_source(_source("elsewhere:./photos"), "train")
    assert pin_source(_source("elsewhere:./photos")) == pin_source(_source("/other/photos"))


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_of_too_many_pixels_is_refused_by_its_header(tmp_path: Path) -> None:
    large = {"bytes": encoded(Image.new("1", (12_000, 8_000))), "path": None}
    datasets.Dataset.from_dict({"image": [large], "label": [0]}).to_parquet(str(tmp_path / "train.parquet"))
    with pytest.raises(UserError, match=r"it has 12000×8000 pixels"):
        load_source(_source(tmp_path), "train").image(0)


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("name", ["../elsewhere.arrow", "/elsewhere.arrow", "a/b.arrow", "", ".hidden", 3])
def test_a_saved_dataset_names_files_beside_it(
    name: Any, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved(tmp_path / "saved", wardrobe)
    (own,) = (tmp_path / "saved").glob("*.arrow")
    own.rename(tmp_path / "elsewhere.arrow")
    edit(tmp_path / "saved" / "state.json", _data_files=[{"filename": name}])
    with pytest.raises(UserError, match=r"state\.json names the file .*expected files beside it"):
        load_source(source, "train")


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "..", "train/../../elsewhere"])
def test_a_saved_dataset_names_splits_inside_it(
    name: str, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved_splits(tmp_path / "saved", wardrobe)
    _saved(tmp_path / "elsewhere", wardrobe)
    edit(tmp_path / "saved" / "dataset_dict.json", splits=["train", name])
    with pytest.raises(UserError, match=r"dataset_dict\.json names the split"):
        load_source(source, "train")


def test_a_saved_dataset_is_of_regular_files_that_are_named_once(
    tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved(tmp_path / "saved", wardrobe)
    (own,) = (tmp_path / "saved").glob("*.arrow")
    edit(tmp_path / "saved" / "state.json", _data_files=[{"filename": own.name}] * 20_000)
    with pytest.raises(UserError, match="names a file twice"):
        load_source(source, "train")
    edit(tmp_path / "saved" / "state.json", _data_files=[{"filename": own.name}], _format_type="torch")
    assert len(load_source(source, "train").labels) == ROWS
    own.unlink()
    os.mkfifo(own)
    with pytest.raises(UserError, match="is a pipe"):
        load_source(source, "train")


@pytest.mark.parametrize("feature", [datasets.Image(), datasets.List(datasets.Image())])
def test_a_column_of_labels_opens_no_file(
    feature: Any, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    os.mkfifo(tmp_path / "secret.png")  # whoever opened it would wait
    cell = {"bytes": None, "path": str(tmp_path / "secret.png")}
    columns: dict[str, Any] = {
        "image": [{"bytes": encoded(wardrobe[1][0]), "path": None}],
        "label": [[cell] if isinstance(feature, datasets.List) else cell],
    }
    schema = datasets.Features({"image": datasets.Image(), "label": feature}).arrow_schema
    pq.write_table(pa.table(columns, schema=schema), folder / "train.parquet")
    with pytest.raises(UserError, match=r"column 'label' holds (Image|List), expected numbers"):
        load_source(_source(folder), "train")


def test_a_card_whose_aliases_unfold_is_refused(tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> None:
    source = _parquet(tmp_path / "data", wardrobe)
    card = tmp_path / "data" / "README.md"
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    card.write_text("---\n" + "\n".join(["a0: &a0 [x, y]", *levels, "configs: *a11"]) + "\n---\n")
    with pytest.raises(UserError, match="values, those of its aliases counted"):
        load_source(source, "validation")
    card.write_text("---\nlicense: mit\ntags: &t [a]\nmore: *t\n---\n# A dataset\n")
    assert len(load_source(source, "validation").labels) == ROWS
