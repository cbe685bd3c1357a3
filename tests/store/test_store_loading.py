"""Other people's readers: `datasets`, `webdataset` and timm read the shards as they stand, with their types."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from store_cases import build, data_files, plan_of

from counterfoil.store import read_rows
from counterfoil.store.layout import WHATS, What
from counterfoil.store.rows import TableForm, webdataset_features

NAMES = ["crane (n02012849)", "crane (n03126707)", "coot"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished dataset of each format, shared since these tests only read."""
    folder = tmp_path_factory.mktemp("loading")
    return {format: build(folder / format, plan_of(f"output.format={format}")) for format in ("parquet", "webdataset")}


def load(kind: str, files: Any, cache: Path, **options: Any) -> Any:
    import datasets

    return datasets.load_dataset(kind, data_files={"test": files}, split="test", cache_dir=str(cache), **options)


def float32(value: Any) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value


def pixels(image: Image.Image) -> bytes:
    return image.convert("RGB").tobytes()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("what", WHATS)
def test_datasets_reads_parquet(built: dict[str, Path], tmp_path: Path, what: What, streaming: bool) -> None:
    import datasets

    loaded = load("parquet", data_files(built["parquet"], what, "weather"), tmp_path, streaming=streaming)
    assert loaded.features["label"] == datasets.ClassLabel(names=NAMES)
    expected = list(read_rows(built["parquet"], groups=["weather"], what=what))
    rows = list(loaded)
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        if what != "candidates":
            assert isinstance(row["image"], Image.Image)
            assert pixels(row.pop("image")) == pixels(Image.open(io.BytesIO(wanted.pop("image")["bytes"])))
        assert row == wanted


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("what", WHATS)
def test_datasets_reads_webdataset(built: dict[str, Path], tmp_path: Path, what: What, streaming: bool) -> None:
    import datasets

    features = datasets.Features.from_dict(webdataset_features(what, NAMES, TableForm(), "png"))
    files = data_files(built["webdataset"], what, "weather")
    loaded = load("webdataset", files, tmp_path, streaming=streaming, features=features)
    assert loaded.features["cls"] == datasets.ClassLabel(names=NAMES)
    expected = list(read_rows(built["webdataset"], groups=["weather"], what=what))
    rows = list(loaded)
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        assert row["__key__"] == wanted["key"]
        assert row["cls"] == wanted.pop("label")
        if what != "candidates":
            assert pixels(row["png"]) == pixels(Image.open(io.BytesIO(wanted.pop("image")["bytes"])))
        # Streaming hands on the numbers of the JSON as they are, the shortest texts of float32 values.
        assert {name: float32(value) for name, value in row["json"].items()} == wanted


def test_datasets_guesses_the_columns_of_a_tar_that_no_card_declares(built: dict[str, Path], tmp_path: Path) -> None:
    import datasets

    loaded = load("webdataset", data_files(built["webdataset"], "data", "weather"), tmp_path)
    assert isinstance(loaded.features["png"], datasets.Image)
    assert loaded.features["cls"] == datasets.Value("int64")
    assert loaded[0]["json"]["seed"] == next(read_rows(built["webdataset"], groups=["weather"]))["seed"]


def test_webdataset_reads_the_tars(built: dict[str, Path]) -> None:
    from webdataset.compat import WebDataset

    files = data_files(built["webdataset"], "data", "weather")
    dataset: Any = WebDataset(files, shardshuffle=False).decode("pil")
    samples = list(dataset)
    expected = list(read_rows(built["webdataset"], groups=["weather"]))
    assert [sample["__key__"] for sample in samples] == [row["key"] for row in expected]
    assert [sample["cls"] for sample in samples] == [row["label"] for row in expected]
    assert [sample["json"]["seed"] for sample in samples] == [row["seed"] for row in expected]
    assert all(sample["png"].size == (8, 8) for sample in samples)


@pytest.mark.parametrize("split", ["base", "weather", "all"])
def test_timm_reads_the_tars_by_group(built: dict[str, Path], split: str) -> None:
    from timm.data import create_dataset

    dataset: Any = create_dataset("wds/cranes", root=str(built["webdataset"]), split=split)
    groups = None if split == "all" else [split]
    expected = list(read_rows(built["webdataset"], groups=groups))
    found = list(dataset)
    assert len(dataset) == len(expected) > 0
    assert [label for _, label in found] == [row["label"] for row in expected]
    for (image, _), row in zip(found, expected, strict=True):
        assert pixels(image) == pixels(Image.open(io.BytesIO(row["image"]["bytes"])))


def test_timm_reads_a_group_of_parquet_files(built: dict[str, Path], tmp_path: Path) -> None:
    from timm.data import create_dataset

    folder = built["parquet"] / "data/weather"
    dataset: Any = create_dataset(f"hfds/{folder}", root=str(tmp_path), split="test")
    expected = list(read_rows(built["parquet"], groups=["weather"]))
    assert [label for _, label in dataset] == [row["label"] for row in expected]
    assert dataset.reader.class_to_idx == {name: label for label, name in enumerate(NAMES)}


def test_a_group_without_a_row_has_no_file_and_no_split(built: dict[str, Path]) -> None:
    for directory in built.values():
        assert not (directory / "data/nowhere").exists()
        assert (directory / "candidates/nowhere").exists()
        assert list(read_rows(directory, groups=["nowhere"])) == []
    info = json.loads((built["webdataset"] / "_info.json").read_text())
    assert list(info["splits"]) == ["all", "base", "weather"]
    assert not (built["parquet"] / "_info.json").exists()


def test_importing_the_store_is_light() -> None:
    import os
    import subprocess
    import sys

    code = (
        "import sys, counterfoil.store; "
        "heavy = {'torch', 'datasets', 'pandas', 'pyarrow', 'webdataset', 'PIL', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
