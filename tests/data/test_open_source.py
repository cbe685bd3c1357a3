"""An input dataset is opened by name, pinned by content, and read as it is pinned: folders, the
Hub's, the lab's."""

from __future__ import annotations

import datetime
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import CommitOperationAdd
from PIL import Image
from webdataset.writer import TarWriter

import warm
from counterfoil.data import tables
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.errors import RunFailure, UserError
from counterfoil.lab import boxes
from counterfoil.lab.planted import SPLITS, VERSION, planted_world
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.recipe.schema_inputs import ClassEntry, Conditions, Source
from loopback_hub import LoopbackHub, client, client_environment
from support.images import encoded
from support.refusals import refuses
from support.tables import as_parquet, image_table, parquet_folder

ROWS = 14
CLASS = ClassEntry(id="x", name="x", source_label=0)


def source_of(dataset: Path | str, **other: Any) -> Source:
    return Source(dataset=str(dataset), classes=(CLASS,), **other)


def content_of(name: str, split_name: str) -> str:
    split = open_source(source_of(name)).split(split_name)
    return split.rows.content(split.labels)


@pytest.fixture(scope="module")
def wardrobe() -> tuple[list[int], list[Image.Image]]:
    split = open_source(source_of("lab:wardrobe")).split("validation")
    return [int(label) for label in split.labels[:ROWS]], [split.image(row) for row in range(ROWS)]


def _table(wardrobe: tuple[list[int], list[Image.Image]]) -> datasets.Dataset:
    labels, pictures = wardrobe
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    )
    return datasets.Dataset.from_dict({"image": pictures, "label": labels}, features=features)


def _saved(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    _table(wardrobe).save_to_disk(str(folder))
    return source_of(folder)


def _saved_splits(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    table: Any = _table(wardrobe)
    datasets.DatasetDict({"train": table.select([0]), "validation": table}).save_to_disk(
        str(folder)
    )
    return source_of(folder)


def _parquet(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    (folder / "data").mkdir(parents=True)
    _table(wardrobe).to_parquet(str(folder / "data" / "validation-00000-of-00001.parquet"))
    return source_of(folder)


def _imagefolder(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    # Folders are sorted by name, so the names are made to sort by label.
    for row, (label, picture) in enumerate(zip(*wardrobe, strict=True)):
        class_folder = folder / "validation" / f"{label}-{CLASSES[label]}"
        class_folder.mkdir(parents=True, exist_ok=True)
        (class_folder / f"{row:03d}.png").write_bytes(encoded(picture))
    return source_of(folder)


def _tars(folder: Path, wardrobe: tuple[list[int], list[Image.Image]]) -> Source:
    folder.mkdir()
    with TarWriter(str(folder / "validation-0000.tar")) as writer:
        for row, (label, picture) in enumerate(zip(*wardrobe, strict=True)):
            writer.write(
                {"__key__": f"{row:03d}", "png": encoded(picture), "cls": str(label).encode()}
            )
    return source_of(folder, image_column="png", label_column="cls")


@pytest.mark.parametrize("save", [_saved, _saved_splits, _parquet, _imagefolder, _tars])
def test_every_form_gives_the_same_labels_and_pixels(
    save: Callable[[Path, tuple[list[int], list[Image.Image]]], Source],
    wardrobe: tuple[list[int], list[Image.Image]],
    tmp_path: Path,
) -> None:
    source = save(tmp_path / "source", wardrobe)
    split = open_source(source).split("validation")
    assert split.labels.dtype == np.int64
    # An image folder's rows come class by class; compare what each form holds, class by class, in
    # order.
    for label in range(10):
        rows = split.rows_of(label)
        expected = [
            picture for class_label, picture in zip(*wardrobe, strict=True) if class_label == label
        ]
        assert len(rows) == len(expected) > 0
        for row, picture in zip(rows, expected, strict=True):
            image = split.image(int(row))
            assert image.mode == "RGB"
            np.testing.assert_array_equal(np.asarray(image), np.asarray(picture))


@pytest.mark.parametrize(
    ("source", "split", "code", "path", "word"),
    [
        (source_of("lab:wardrobe"), "test", "unknown-split", "source", "'test'"),
        (source_of("./no/such/folder"), "train", "unreadable-data", "source", "no/such/folder"),
    ],
)
def test_what_is_not_there_is_a_users_mistake(
    source: Source, split: str, code: str, path: str, word: str
) -> None:
    with refuses(code, path, word):
        open_source(source).split(split)


def pandas_folder(folder: Path, labels: Any) -> Path:
    """Write one Parquet file with pandas: for each label an image, in the grey of its row
    number."""
    folder.mkdir()
    cells = [{"bytes": encoded(row), "path": None} for row in range(len(labels))]
    pd.DataFrame({"image": cells, "label": labels}).to_parquet(folder / "train.parquet")
    return folder


@pytest.mark.parametrize(
    ("labels", "code", "words"),
    [
        ([0.5, 1.0], "unfit-column", "split train, row 0: 'label': holds '0.5' (float)"),
        ([0.0, float("inf")], "unfit-column", "row 1: 'label': holds 'inf' (float)"),
        ([True, False], "unfit-column", "row 0: 'label': holds 'True' (bool)"),
        (np.asarray([0, 2**63], np.uint64), "unfit-column", "holds '9223372036854775808' (int)"),
        ([datetime.date(2020, 1, 1)] * 2, "unfit-column", "holds '2020-01-01' (date)"),
        ([None, None], "missing-label", "'label'"),
    ],
)
def test_labels_that_are_no_names_and_no_whole_numbers_are_refused(
    labels: Any, code: str, words: str, tmp_path: Path
) -> None:
    folder = pandas_folder(tmp_path / "photos", labels)
    with refuses(code, "source.label_column", words) as refused:
        labelled_source(folder)
    assert "label_column" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("labels", "numbers", "kept_labels"),
    [
        ([4.0, float("nan"), 2.0], [4, -1, 2], (1, 0)),
        (pd.array([1, None, 0], "Int64"), [1, -1, 0], (1, 0)),
        (["star", None, "mug"], [1, -1, 0], (1, 0)),
        (["null", "None", "NA"], [2, 1, 0], (2, 1, 0)),
    ],
)
def test_labels_of_pandas_are_read_with_their_gaps(
    labels: Any, numbers: list[int], kept_labels: tuple[int, ...], tmp_path: Path
) -> None:
    folder = pandas_folder(tmp_path / "photos", labels)
    assert open_source(source_of(folder)).split("train").labels.tolist() == numbers
    images = labelled_source(folder)
    assert tuple(images.labels.tolist()) == kept_labels
    assert images.left_out == ({"no label": 1} if -1 in numbers else {})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("csv", ["NA", "None", "null", "nan", "N/A"]),
        ("csv", ["007", "07", "7", "7.0", "1e5"]),
        ("csv", ["True", "False"]),
        ("csv", ["1.0", "2.0"]),
        ("jsonl", ["NA", "null", "007", "1e5", "True"]),
        ("parquet", ["NA", "null", "007", "1e5", "True"]),
    ],
)
def test_classes_in_a_table_of_metadata_are_as_they_are_written(
    kind: str, names: list[str], tmp_path: Path
) -> None:
    labels = [*names, *reversed(names), ""]
    table = pd.DataFrame(
        {"file_name": [f"{row}.png" for row in range(len(labels))], "label": labels}
    )
    folder = tmp_path / "photos"
    folder.mkdir()
    if kind == "csv":
        table.to_csv(folder / "metadata.csv", index=False)
    elif kind == "jsonl":
        table.to_json(folder / "metadata.jsonl", orient="records", lines=True)
    else:
        table.to_parquet(folder / "metadata.parquet")
    for row, name in enumerate(table["file_name"]):
        (folder / name).write_bytes(encoded(row))
    rows = labelled_source(folder)
    assert rows.class_names is not None
    read = [rows.class_names[label] for label in rows.labels.tolist()]
    # An empty text is a name in formats that distinguish it from a missing value; CSV does not.
    assert read == (labels[:-1] if kind == "csv" else labels)
    split = open_source(source_of(folder)).split("train")
    classes = sorted({*read})
    assert split.labels.tolist() == [
        classes.index(name) if name in classes else -1 for name in labels
    ]
    assert [split.image(row).getpixel((0, 0)) for row in range(2)] == [(0, 0, 0), (1, 1, 1)]


def test_whole_numbers_and_columns_of_conditions_in_a_csv_stay_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for row in range(3):
        (folder / f"{row}.png").write_bytes(encoded(row))
    (folder / "metadata.csv").write_text(
        "file_name,label,effusion\n0.png,2,1.0\n1.png,,0.0\n2.png,-1,1.0\n"
    )
    assert open_source(source_of(folder)).split("train").labels.tolist() == [2, -1, -1]
    conditions = Conditions(columns=("effusion",))
    by_columns = NamedDataset(str(folder), conditions=conditions)
    values = open_source(by_columns).split("train").conditions
    assert values is not None and values.present[:, 0].tolist() == [True, False, True]


def test_labels_of_a_csv_of_the_hub_are_read_as_they_are_written(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    lines = ["NA", "007"]
    client(loopback).create_repo(NAME, repo_type="dataset")
    table = "file_name,label\n" + "".join(f"{row}.png,{label}\n" for row, label in enumerate(lines))
    images = {f"{row}_png": encoded(row) for row in range(2)}
    put(loopback, metadata_csv=table.encode(), **images)
    with Client(loopback, tmp_path / "home") as online:
        read = online.ask("labelled", reference=NAME)
    assert [read["names"][label] for label in read["labels"]] == lines and read["shades"] == [0, 1]


SERIES = [f"{split}/{name}/s{series}/{row}.png" for split in ("train", "test") for name in ("star", "test tube")
          for series in (1, 2) for row in range(2)]  # fmt: skip
HUB_CARD = (
    "---\ndataset_info:\n  features:\n  - name: image\n    dtype: image\n  - name: label\n   "
    " dtype:\n"
    "      class_label:\n        names:\n          '0': test tube\n          '1': star\n---\n"
)


def test_a_folder_of_the_hub_is_read_by_the_rules_of_a_folder_here(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    """Series below classes are no classes, and the class `test tube` of train/ is no part of the
    split test."""
    client(loopback).create_repo(NAME, repo_type="dataset")
    additions = [CommitOperationAdd(name, encoded(number)) for number, name in enumerate(SERIES)]
    additions += [
        CommitOperationAdd("README.md", HUB_CARD.encode()),
        CommitOperationAdd("notes.zip", b"PK"),
    ]
    client(loopback).create_commit(
        NAME, additions, commit_message="Photographs", repo_type="dataset"
    )
    copy = tmp_path / "copy"
    for addition in additions:
        file = copy / addition.path_in_repo
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(
            addition.path_or_fileobj if isinstance(addition.path_or_fileobj, bytes) else b""
        )
    reference = labelled_source(f"{copy}:test")
    with Client(loopback, tmp_path / "home") as online:
        read = online.ask("labelled", reference=f"{NAME}:test")
    with Client(loopback, tmp_path / "home", offline=True) as offline:
        assert offline.ask("labelled", reference=f"{NAME}:test") == read
    assert read["names"] == list(reference.class_names or ()) == ["test tube", "star"]
    assert read["labels"] == reference.labels.tolist() == [1] * 4 + [0] * 4
    assert read["shades"] == [
        number for number, name in enumerate(SERIES) if name.startswith("test/")
    ]
    assert read["notes"][0] == reference.notes[0]  # the Hub adds a hidden file


def test_a_file_of_the_hub_without_a_split_is_asked_about(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    client(loopback).create_repo(NAME, repo_type="dataset")
    put(loopback, **{"a-test_parquet": parquet(1), "b_parquet": parquet(2)})
    with Client(loopback, tmp_path / "home") as online:
        assert (
            "no split has b.parquet, and a-test.parquet as test would be read" in online.refused()
        )


def test_parquet_of_the_hub_that_numbers_its_classes_differently_is_refused(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    client(loopback).create_repo(NAME, repo_type="dataset")
    tables = [as_parquet(image_table([encoded(7)], names=names, label=[0])) for names in ORDERS]
    put(
        loopback,
        **{f"train-{number:05}-of-00002_parquet": table for number, table in enumerate(tables)},
    )
    with Client(loopback, tmp_path / "home") as online:
        assert "'label' numbers its classes differently in train-00000" in online.refused()


# Pillow reads a PCX; nothing here opens more formats than photographs come in.
PCX = encoded(Image.new("RGB", (64, 64)), "PCX")


@pytest.mark.parametrize(
    "damage", [b"no picture", b"", PCX, None], ids=["text", "empty", "pcx", "cut"]
)
def test_an_unreadable_image_names_its_row_and_no_other(
    damage: bytes | None, wardrobe: tuple[list[int], list[Image.Image]], tmp_path: Path
) -> None:
    labels, pictures = wardrobe
    content = [encoded(picture) for picture in pictures]
    content[3] = content[3][:200] if damage is None else damage
    table = datasets.Dataset.from_dict(
        {"image": [{"bytes": png, "path": None} for png in content], "label": labels}
    )
    (tmp_path / "source").mkdir()
    table.to_parquet(str(tmp_path / "source" / "validation.parquet"))
    split = open_source(source_of(tmp_path / "source")).split("validation")
    np.testing.assert_array_equal(np.asarray(split.image(2)), np.asarray(pictures[2]))
    with refuses("unreadable-image", "source", "split validation, row 3"):
        split.image(3)


def test_an_image_of_too_many_bytes_in_a_table_is_refused(
    tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 100)
    split = open_source(_parquet(tmp_path / "source", wardrobe)).split("validation")
    with refuses("too-much-data", "source", "row 3", "at most 100"):
        split.image(3)


@pytest.mark.parametrize("name", ["imagefolder", "text"])
def test_a_loader_of_files_is_no_dataset(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`datasets` would load whatever lies in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("mine")
    with refuses("unknown-dataset", "source.dataset", f"'{name}'"):
        open_source(source_of(name)).split("train")


def test_a_name_of_the_hub_is_never_a_folder_here(
    wardrobe: tuple[list[int], list[Image.Image]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _table(wardrobe).to_parquet(str(tmp_path / "private" / "photos" / "train.parquet"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"Write \./private/photos for the folder"):
        open_source(source_of("private/photos")).split("train")
    assert open_source(source_of("./private/photos")).pin.dataset == "photos"


def test_a_folder_of_another_machine_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(
        UserError, match=r"'\./photos': is a folder on the machine that built the dataset"
    ):
        open_source(source_of("elsewhere:./photos")).split("train")
    assert (
        open_source(source_of("elsewhere:./photos")).pin
        == open_source(source_of("/other/photos")).pin
    )


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("name", ["../elsewhere.arrow", "a/b.arrow", "", 3])
def test_a_saved_dataset_names_files_beside_it(
    name: Any, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved(tmp_path / "saved", wardrobe)
    (table,) = (tmp_path / "saved").glob("*.arrow")
    table.rename(tmp_path / "elsewhere.arrow")
    edit(tmp_path / "saved" / "state.json", _data_files=[{"filename": name}])
    with refuses("unreadable-data", "source", f"state.json names the file {name!r}"):
        open_source(source).split("train")


@pytest.mark.parametrize("name", ["../elsewhere", "train/../../elsewhere"])
def test_a_saved_dataset_names_splits_inside_it(
    name: str, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved_splits(tmp_path / "saved", wardrobe)
    _saved(tmp_path / "elsewhere", wardrobe)
    edit(tmp_path / "saved" / "dataset_dict.json", splits=["train", name])
    with refuses("unreadable-data", "source", f"dataset_dict.json names the split {name!r}"):
        open_source(source).split("train")


def test_a_saved_dataset_is_of_regular_files_that_are_named_once(
    tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _saved(tmp_path / "saved", wardrobe)
    (table,) = (tmp_path / "saved").glob("*.arrow")
    edit(tmp_path / "saved" / "state.json", _data_files=[{"filename": table.name}] * 20_000)
    with refuses("unreadable-data", "source", "twice"):
        open_source(source).split("train")
    edit(
        tmp_path / "saved" / "state.json",
        _data_files=[{"filename": table.name}],
        _format_type="torch",
    )
    assert len(open_source(source).split("train").labels) == ROWS
    table.unlink()
    os.mkfifo(table)
    with refuses("unreadable-data", None, "is a pipe"):
        open_source(source).split("train")


@pytest.mark.parametrize("feature", [datasets.Image(), datasets.List(datasets.Image())])
def test_a_column_of_labels_opens_no_file(
    feature: Any, tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    os.mkfifo(tmp_path / "secret.png")  # opening it would block
    cell = {"bytes": None, "path": str(tmp_path / "secret.png")}
    columns: dict[str, Any] = {
        "image": [{"bytes": encoded(wardrobe[1][0]), "path": None}],
        "label": [[cell] if isinstance(feature, datasets.List) else cell],
    }
    schema = datasets.Features({"image": datasets.Image(), "label": feature}).arrow_schema
    pq.write_table(pa.table(columns, schema=schema), folder / "train.parquet")
    with refuses("unfit-column", "source", "column 'label'", type(feature).__name__):
        open_source(source_of(folder)).split("train")


def test_a_card_whose_aliases_unfold_is_refused(
    tmp_path: Path, wardrobe: tuple[list[int], list[Image.Image]]
) -> None:
    source = _parquet(tmp_path / "data", wardrobe)
    card = tmp_path / "data" / "README.md"
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    card.write_text("---\n" + "\n".join(["a0: &a0 [x, y]", *levels, "configs: *a11"]) + "\n---\n")
    with pytest.raises(UserError, match="values, those of its aliases counted"):
        open_source(source).split("validation")
    card.write_text("---\nlicense: mit\ntags: &t [a]\nmore: *t\n---\n# A dataset\n")
    assert len(open_source(source).split("validation").labels) == ROWS


def test_a_card_without_yaml_is_no_matter_for_a_warning(
    tmp_path: Path,
    wardrobe: tuple[list[int], list[Image.Image]],
    log_records: list[logging.LogRecord],
) -> None:
    source = _parquet(tmp_path / "data", wardrobe)
    (tmp_path / "data" / "README.md").write_text("# My photographs\n")
    opened = open_source(source)
    assert len(opened.split("validation").labels) == ROWS and opened.configs and opened.splits
    assert not log_records


NAME = "someone/photos"
CARD = b"---\nlicense: mit\n---\n"


def parquet(*shades: int) -> bytes:
    return as_parquet(image_table([encoded(shade) for shade in shades], label=list(shades)))


def folder_of(folder: Path, *shades: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.parquet").write_bytes(parquet(*shades))
    return folder


def test_a_folder_is_pinned_by_its_last_name_and_its_content(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", 1, 2)
    copy = folder_of(tmp_path / "elsewhere" / "photos", 1, 2)
    pin = open_source(source_of(folder)).pin
    assert pin == open_source(source_of(copy)).pin
    assert pin.content is not None and pin.document()["content"] == pin.content
    assert str(tmp_path) not in str(pin)
    folder_of(copy, 1, 3)
    assert open_source(source_of(copy)).pin != pin


def test_what_is_not_known_is_not_different(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", 1)
    # as every lock of a folder was before
    old = {"dataset": "photos", "revision": None, "license": None}
    assert open_source(source_of(folder), old).pin.document() == old
    assert open_source(source_of(folder), old | {"dataset": "others"}).pin.content is not None
    now = open_source(source_of(folder)).pin.document()
    moved = folder_of(tmp_path / "moved", 1)
    assert open_source(source_of(moved), now).pin.document() == now
    folder_of(folder, 2)
    assert open_source(source_of(folder), now).pin.document() != now
    shutil.rmtree(folder)
    assert open_source(source_of(folder), now).pin.document() == now
    assert open_source(source_of(folder)).pin.document() == old
    elsewhere = source_of(f"elsewhere:{folder}")
    assert open_source(elsewhere, now).pin.document() == now


def test_a_document_of_another_form_is_no_pin(tmp_path: Path) -> None:
    documents = (None, [], "photos", {}, {"dataset": 3}, {"dataset": "photos", "content": [1]})
    assert [*map(SourcePin.of, documents)] == [None] * len(documents)
    source = source_of(folder_of(tmp_path / "photos", 1))
    assert open_source(source, documents[-1]).pin.content is not None


def test_the_labs_pin_is_its_version_and_no_lock_of_it_changes() -> None:
    expected = {"dataset": "lab:wardrobe", "revision": "2", "license": "mit"}
    assert open_source(source_of("lab:wardrobe")).pin.document() == expected


def test_a_folder_that_changed_after_its_pin_is_not_loaded(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "photos", 1)
    pin = open_source(source_of(folder)).pin
    assert open_source(source_of(folder), pin=pin).split("train").labels.tolist() == [1]
    folder_of(folder, 2)
    with refuses("changed-data", "source", kind=RunFailure):
        open_source(source_of(folder), pin=pin).split("train")


def test_what_is_loaded_is_what_is_pinned_even_where_a_changed_file_keeps_its_times(
    tmp_path: Path,
) -> None:
    """Without the pin, `datasets` returns cached rows for a file whose name and times are
    unchanged."""
    folder = folder_of(tmp_path / "photos", 1, 2)
    for shades in ((1, 2), (3, 4)):
        folder_of(folder, *shades)
        os.utime(folder / "train.parquet", (1_000_000_000, 1_000_000_000))
        assert open_source(source_of(folder)).split("train").labels.tolist() == list(shades)


@pytest.mark.parametrize("where", ["absolute", "above"])
def test_a_folder_takes_no_rows_from_outside(where: str, tmp_path: Path) -> None:
    secret = folder_of(tmp_path / "secret", 7)
    folder = folder_of(tmp_path / "photos", 1)
    named = secret / "train.parquet" if where == "absolute" else "../secret/train.parquet"
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:"
        f" {named}\n---\n"
    )
    with refuses("outside-dataset", "source", "secret/train.parquet"):
        open_source(source_of(folder)).split("train")


@pytest.mark.parametrize("where", ["absolute", "relative"])
def test_an_image_outside_of_the_folder_is_not_read(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.png").write_bytes(encoded(7))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    folder.mkdir()
    named = str(tmp_path / "secret.png") if where == "absolute" else "secret.png"
    table = {"image": [{"bytes": None, "path": named}], "label": [0]}
    datasets.Dataset.from_dict(table).to_parquet(str(folder / "train.parquet"))
    split = open_source(source_of(folder)).split("train")
    with refuses("outside-dataset", "source"):
        split.image(0)


ANSWERING = """
import json, sys
from counterfoil.recipe.schema_inputs import ClassEntry, Source
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.errors import UserError
from counterfoil.store.decoding import rgb_image
ways = {
    "pin": open_source,
    "loadable": lambda source, recorded: open_source(source, recorded, as_recorded=True),
    "of": lambda source, recorded: open_source(source, pin=SourcePin.of(recorded)),
}
for line in sys.stdin:
    how, recorded, load, keys = json.loads(line)
    if how == "labelled":
        images = labelled_source(**keys)
        shades = [rgb_image(encoded).getpixel((0, 0))[0] for _, encoded in images.images()]
        found = {"labels": images.labels.tolist(), "shades": shades, "keys": images.keys}
        print(json.dumps(found | {"names": images.class_names, "notes": images.notes}), flush=True)
        continue
    source = Source(dataset="someone/photos", classes=(ClassEntry(id="x", name="x", source_label=0),), **keys)
    opened = ways[how](source, recorded)
    found = {"pin": opened.pin.document()}
    if load:
        try:
            split = opened.split("train")
        except UserError as error:
            print(json.dumps({"refused": " ".join(error.problems)}), flush=True)
            continue
        shades = [split.image(row).getpixel((0, 0))[0] for row in range(len(split.labels))]
        found |= {"labels": split.labels.tolist(), "shades": shades, "content": split.rows.content(split.labels)}
    print(json.dumps(found), flush=True)
"""


ORDERS = (["mug", "star"], ["star", "mug"])


class Client:
    """Pin `someone/photos` of a Hub in another process, and load it by that pin on each request."""

    def __init__(self, hub: LoopbackHub, home: Path, *, offline: bool = False) -> None:
        self.environment = client_environment(hub, home) | {
            "HF_HUB_OFFLINE": "1" if offline else "0"
        }

    def __enter__(self) -> Client:
        self.process = warm.start([sys.executable, "-c", ANSWERING], self.environment, talking=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def refused(self) -> str:
        """Return why the dataset cannot be read."""
        return str(self.ask()["refused"])

    def ask(
        self, how: str = "pin", recorded: Any = None, *, load: bool = True, **source: Any
    ) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([how, recorded, load, source]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the client's process is gone: its error is above"
        return json.loads(line)


def put(hub: LoopbackHub, **files: bytes) -> str:
    """One more commit; its id."""
    additions = [
        CommitOperationAdd(path.replace("_", "."), content) for path, content in files.items()
    ]
    return (
        client(hub)
        .create_commit(NAME, additions, commit_message="A version", repo_type="dataset")
        .oid
    )


def test_what_is_loaded_is_the_commit_that_is_pinned_wherever_the_branch_goes(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    client(loopback).create_repo(NAME, repo_type="dataset")
    first = put(loopback, README_md=CARD, train_parquet=parquet(1, 2))
    with Client(loopback, tmp_path / "home") as online:
        pin = online.ask(load=False)["pin"]
        assert pin == {"dataset": NAME, "revision": first, "license": "mit"}
        second = put(loopback, train_parquet=parquet(3))  # between the pin and the loading
        old = online.ask("of", pin)
        assert (old["labels"], old["shades"]) == ([1, 2], [1, 2])
        # A re-cut takes the commit that the lock names; a build asks what the branch is, to tell
        # another one.
        assert online.ask("loadable", pin) == old
        new = online.ask("pin", pin)
        assert (new["pin"]["revision"], new["labels"], new["shades"]) == (second, [3], [3])
        assert new["content"] != old["content"]
        # And without a recipe, by a reference.
        named = online.ask("labelled", reference=f"{NAME}@{first}:train")
        assert (named["labels"], named["shades"]) == ([0, 1], [1, 2])
        assert named["keys"] == ["train_00000000", "train_00000001"]
        assert online.ask("labelled", reference=NAME)["shades"] == [3]
    with Client(loopback, tmp_path / "home", offline=True) as offline:
        # The commit that is cached, where `datasets` alone would give whichever it has read last.
        assert offline.ask()["pin"]["revision"] == second
        assert offline.ask()["labels"] == [3]
        assert offline.ask("pin", pin) == old
        assert offline.ask(revision=first)["labels"] == [1, 2]
        # What is neither named nor cached is as it was recorded, and another commit is another one.
        recorded = {"dataset": NAME, "revision": "a" * 40, "license": "mit"}
        assert offline.ask("pin", recorded, load=False)["pin"] == recorded
        other = offline.ask("pin", recorded, load=False, revision="b" * 40)["pin"]
        assert other == {"dataset": NAME, "revision": "b" * 40, "license": None}
    with Client(loopback, tmp_path / "fresh", offline=True) as stranger:
        unknown = stranger.ask(load=False)["pin"]
        assert unknown == {"dataset": NAME, "revision": None, "license": None}


def test_a_world_is_read_as_any_input_dataset() -> None:
    source = source_of("lab:planted/noisy-1", unit_column="garment")
    world = planted_world("noisy", 1)
    pin = open_source(source).pin
    assert pin == SourcePin("lab:planted/noisy-1", VERSION, "mit")
    assert open_source(source, pin=pin).splits == SPLITS
    assert open_source(source, pin=pin).configs == ()
    split = open_source(source, pin=pin).split("test")
    np.testing.assert_array_equal(split.labels, world.labels("test"))
    assert split.rows.texts("garment", "unit_column") == tuple(world.garments("test"))
    for row in (0, 17, 3999):
        np.testing.assert_array_equal(np.asarray(split.image(row)), world.pixels("test", row))
    rows = open_source(source, pin=pin).rows("test")
    assert rows.columns == ("image", "label", "garment")
    (encoded,) = rows.images([17])
    assert encoded is not None
    with Image.open(io.BytesIO(encoded)) as stored:
        np.testing.assert_array_equal(np.asarray(stored), world.pixels("test", 17))


def test_scenes_with_boxes_are_read_as_any_input_dataset() -> None:
    opened = open_source(source_of("lab:wardrobe-boxes"))
    assert opened.splits == ("train", "validation", "audit")
    outline = opened.outline(1 << 30)
    assert (outline.rows["audit"], outline.columns) == (
        boxes.ROWS["audit"],
        {"image": "image", "objects": "objects"},
    )
    rows = opened.rows("validation", labelled=False)
    assert (rows.count, rows.columns) == (boxes.ROWS["validation"], ("image", "objects"))
    assert rows.class_names("objects") == CLASSES
    assert rows.column("objects")[3] == boxes.objects_in(boxes.boxes_scene("validation", 3))
    np.testing.assert_array_equal(np.asarray(rows.image(3)), boxes.split_pixels("validation", 3))
    with refuses("missing-column", "source.label_column", "lab:wardrobe-boxes", "'label'"):
        opened.split("validation")


def test_scenes_with_masks_are_those_with_boxes() -> None:
    opened = open_source(source_of("lab:wardrobe-masks"))
    outline = opened.outline(1 << 30)
    assert (outline.rows, outline.columns) == (boxes.ROWS, {"image": "image", "mask": "image"})
    rows = opened.rows("validation", labelled=False)
    assert (rows.count, rows.columns) == (boxes.ROWS["validation"], ("image", "mask"))
    np.testing.assert_array_equal(np.asarray(rows.image(3)), boxes.split_pixels("validation", 3))
    encoded = list(rows.pictures("mask", [3, 0]))
    for row, mask in zip((3, 0), encoded, strict=True):
        with Image.open(io.BytesIO(mask or b"")) as stored:
            assert (stored.format, stored.mode) == ("PNG", "L")
            expected = boxes.class_mask(boxes.boxes_scene("validation", row))
            np.testing.assert_array_equal(np.asarray(stored), expected)


def test_a_picture_of_the_lab_is_no_label() -> None:
    opened = open_source(source_of("lab:wardrobe-masks", label_column="mask"))
    with refuses("missing-label", "source.label_column", "'mask'"):
        opened.split("validation")


def test_the_largest_split_is_rendered_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from counterfoil.lab import planted

    rendered: list[object] = []
    render = planted.render
    monkeypatch.setattr(planted, "render", lambda scene: rendered.append(scene) or render(scene))
    split = open_source(source_of("lab:planted/correlation-0")).split("proof")
    assert len(split.labels) == 50_000
    assert not rendered
    split.image(49_999)
    assert len(rendered) == 1


def test_contents_tell_worlds_and_splits_apart_and_reading_does_not_change_them() -> None:
    contents = [
        content_of(f"lab:planted/{name}", split)
        for name in ("null-0", "null-1", "noisy-1")
        for split in ("validation", "test")
    ]
    assert len(set(contents)) == 6
    assert content_of("lab:planted/null-0", "validation") == contents[0]


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        (
            "lab:planted/corelation-3",
            ["no planted world 'corelation-3'", "did you mean 'correlation-3'?"],
        ),
        ("lab:planted/rare", ["no planted world 'rare'", "did you mean 'rare-0'?"]),
        ("lab:planted/rare-x", ["'x' is not a seed", "a seed of 0 to 99999"]),
        ("lab:planted/", ["no planted world ''", "correlation, rare, noisy, null, corruption"]),
        ("lab:planted", ["the lab has no 'planted'", "lab:planted/KIND-SEED"]),
        ("lab:wardrob", ["the lab has no 'wardrob'; did you mean 'wardrobe'?", "lab:wardrobe"]),
    ],
)
def test_a_name_that_the_lab_does_not_have_is_a_users_mistake(
    name: str, messages: list[str]
) -> None:
    with refuses("unknown-dataset", "source.dataset") as refused:
        open_source(source_of(name))
    text = " ".join([*refused.value.problems, refused.value.hint or ""])
    assert [words for words in messages if words not in text] == []


def test_parquet_files_that_number_their_classes_differently_are_refused(tmp_path: Path) -> None:
    """`datasets` reads the labels of both by the names of the first, without a word."""

    def opened(folder: Path, *orders: list[str]) -> Any:
        tables = {}
        for number, names in enumerate(orders):
            table = image_table([encoded(7)] * 2, names=names, label=[0, 1])
            tables[f"train-{number:05}-of-{len(orders):05}"] = table
        return open_source(source_of(parquet_folder(folder, **tables))).split("train")

    same, other = ORDERS
    assert opened(tmp_path / "alike", same, same).labels.tolist() == [0, 1, 0, 1]
    with refuses("unclear-label", "source", "'label'", "00000-of-00002", "00001-of-00002"):
        opened(tmp_path / "mixed", same, other)


def test_a_card_that_numbers_classes_otherwise_than_its_files_is_refused(tmp_path: Path) -> None:
    """`datasets` reads the numbers of the files by the names of the card, which a second push
    leaves as they were (datasets #8608)."""
    same, other = ORDERS
    table = image_table([encoded(7)] * 2, names=same, label=[0, 1])
    folder = parquet_folder(tmp_path / "pushed", **{"train-00000-of-00001": table})

    def describe(names: list[str]) -> Source:
        feature = {"name": "label", "dtype": {"class_label": {"names": names}}}
        features = [{"name": "image", "dtype": "image"}, feature]
        card = json.dumps({"dataset_info": {"features": features}})
        (folder / "README.md").write_text(f"---\n{card}\n---\n")
        return source_of(folder)

    assert open_source(describe(same)).split("train").labels.tolist() == [0, 1]
    with refuses(
        "unclear-label",
        "source",
        "README.md",
        "'label'",
        "train-00000-of-00001",
    ):
        open_source(describe(other)).split("train")


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (("test", "eval"), False),
        (("validation", "dev"), False),
        (("test_easy", "test_hard"), True),
        (("data/test-00000-of-00002", "data/test-00001-of-00002"), True),
        (("test/a", "test/b"), True),
        (("a", "b"), True),
    ],
)
def test_files_of_one_split_by_two_words_are_refused(
    names: tuple[str, str], joined: bool, tmp_path: Path
) -> None:
    """`datasets` joins them, so a number would be over more images than the split has."""
    table = image_table([encoded(7)] * 2, names=["ant", "bee"], label=[0, 1])
    for name in names:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        table.to_parquet(str(tmp_path / "data" / f"{name}.parquet"))
    opened = open_source(source_of(tmp_path / "data"))
    if joined:
        (split,) = opened.splits
        assert opened.rows(split).count == 4
    else:
        with refuses("unclear-split", "source", *names):
            print(opened.splits)


def test_a_table_that_was_saved_as_one_split_is_no_other(tmp_path: Path) -> None:
    table = image_table([encoded(7)] * 2, names=["ant", "bee"], label=[0, 1])
    parquet_folder(tmp_path / "data", train=table, test=table)
    cache = str(tmp_path / "cache")
    whole = datasets.load_dataset(str(tmp_path / "data"), cache_dir=cache)
    whole["test"].save_to_disk(str(tmp_path / "saved"))
    saved = tmp_path / "saved"
    assert len(labelled_source(saved)) == len(labelled_source(f"{saved}:test")) == 2
    with refuses("unknown-split", "source", "'train'", "saved as test"):
        labelled_source(f"{saved}:train")
    table.save_to_disk(str(tmp_path / "nameless"))
    assert len(labelled_source(f"{tmp_path / 'nameless'}:train")) == 2
