"""Other people's readers: `datasets`, `webdataset` and timm read the shards as they are, with their
types."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from store_cases import candidates_of, data_files, opened, plan_of

from counterfoil.store.layout import What
from counterfoil.store.reading import read_rows
from counterfoil.store.rows import TableForm, webdataset_features

WAYS = pytest.mark.parametrize(
    ("what", "streaming"), [("data", False), ("candidates", False), ("rejected", True)]
)
NAMES = ["crane (n02012849)", "crane (n03126707)", "coot"]


def load(kind: str, files: Any, cache: Path, **options: Any) -> Any:
    import datasets

    return datasets.load_dataset(
        kind, data_files={"test": files}, split="test", cache_dir=str(cache), **options
    )


def float32(value: Any) -> Any:
    return float(np.float32(value)) if isinstance(value, float) else value


def pixels(image: Image.Image) -> bytes:
    return image.convert("RGB").tobytes()


@WAYS
def test_datasets_reads_parquet(
    built: dict[str, Path], tmp_path: Path, what: What, streaming: bool
) -> None:
    import datasets

    loaded = load(
        "parquet", data_files(built["parquet"], what, "weather"), tmp_path, streaming=streaming
    )
    assert loaded.features["label"] == datasets.ClassLabel(names=NAMES)
    expected = list(read_rows(built["parquet"], groups=["weather"], what=what))
    rows = list(loaded)
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        if what != "candidates":
            assert isinstance(row["image"], Image.Image)
            assert pixels(row.pop("image")) == pixels(
                Image.open(io.BytesIO(wanted.pop("image")["bytes"]))
            )
        assert row == wanted


@WAYS
def test_datasets_reads_webdataset(
    built: dict[str, Path], tmp_path: Path, what: What, streaming: bool
) -> None:
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
            assert pixels(row["png"]) == pixels(
                Image.open(io.BytesIO(wanted.pop("image")["bytes"]))
            )
        # Streaming hands on the numbers of the JSON as they are, the shortest texts of float32
        # values.
        assert {name: float32(value) for name, value in row["json"].items()} == wanted


def test_datasets_guesses_the_columns_of_a_tar_that_no_card_declares(
    built: dict[str, Path], tmp_path: Path
) -> None:
    import datasets

    loaded = load("webdataset", data_files(built["webdataset"], "data", "weather"), tmp_path)
    assert isinstance(loaded.features["png"], datasets.Image)
    assert loaded.features["cls"] == datasets.Value("int64")
    assert (
        loaded[0]["json"]["seed"]
        == next(read_rows(built["webdataset"], groups=["weather"]))["seed"]
    )


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
    loaded = list(dataset)
    assert len(dataset) == len(expected) > 0
    assert [label for _, label in loaded] == [row["label"] for row in expected]
    for (image, _), row in zip(loaded, expected, strict=True):
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
    code = (
        "import sys, counterfoil.store; "
        "heavy = {'torch', 'datasets', 'pandas', 'pyarrow', 'webdataset', 'PIL', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


# Files that a viewer can page through: what it must read for a page of rows is bounded, in both
# formats.


IMAGE = 20_000


class Counted(io.RawIOBase):
    """A file that counts the bytes read of it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.bytes_read += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


@pytest.fixture(scope="module", params=["parquet", "webdataset"])
def shard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Return the files of a shard of 450 accepted images of 20 kB that no compression makes
    smaller."""
    plan = plan_of(
        "samples.candidates=150", "output.rows_per_shard=450", f"output.format={request.param}"
    )
    noise = random.Random(0)
    accepted = [
        dataclasses.replace(candidate, reason="accepted", image=noise.randbytes(IMAGE))
        for candidate in candidates_of(plan, plan.shards[0])
    ]
    folder = tmp_path_factory.mktemp("pages")
    with opened(folder, plan) as store:
        receipt = store.writer.write(plan.shards[0], accepted)
    files = {what: receipt.file(what) for what in ("data", "candidates")}
    return {what: folder / file.path for what, file in files.items() if file is not None}


def test_a_page_of_images_costs_its_own_bytes_and_no_others(shard: dict[str, Path]) -> None:
    rows = 100
    overhead = 200_000
    with Counted(shard["data"]) as file:
        if shard["data"].suffix == ".parquet":
            parquet = pq.ParquetFile(cast(BinaryIO, file))
            table = parquet.read_row_group(2)
            assert table.num_rows == rows
            assert min(len(image["bytes"]) for image in table.column("image").to_pylist()) == IMAGE
        else:
            with tarfile.open(fileobj=cast(BinaryIO, file), mode="r|") as tar:
                members = [tar.next() for _ in range(3 * rows)]
            stems = {member.name.partition(".")[0] for member in members if member}
            assert len(stems) == rows, "the members of a sample are adjacent"
        assert rows * IMAGE <= file.bytes_read <= rows * IMAGE + 3 * rows * 1024 + overhead


def test_rows_hold_no_more_beside_the_image_than_a_viewer_shows(shard: dict[str, Path]) -> None:
    if shard["data"].suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(shard["candidates"]).to_pylist()
        assert "image" not in rows[0]
    else:
        with tarfile.open(shard["candidates"]) as tar:
            rows = []
            for member in tar:
                stream = tar.extractfile(member)
                assert stream
                assert member.name.endswith((".json", ".cls"))
                if member.name.endswith(".json"):
                    rows.append(json.load(stream))
    assert len(rows) == 450
    assert max(len(json.dumps(row)) for row in rows) < 1000
