"""Shards that others wrote: any bytes, any schema and any value are reported in words, before they
take memory."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_cases import opened, plan_of

import counterfoil.store.shard_files
from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure
from counterfoil.store.reading import planned_rows, read_file, read_receipts, read_rows, read_shard
from support.refusals import refuses


@pytest.fixture
def parquet(cranes: Path) -> Path:
    return cranes


@pytest.fixture
def tars(built: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(built["webdataset"], tmp_path / "cranes")


def shard(dataset: Path) -> Path:
    return min((dataset / "data" / "base").iterdir())


def rows(dataset: Path) -> list[dict]:
    return list(read_rows(dataset))


def replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def text_labels(table: pa.Table) -> pa.Table:
    return replaced(table, "label", table["label"].cast(pa.string()))


def small_labels(table: pa.Table) -> pa.Table:
    return replaced(table, "label", table["label"].cast(pa.int8()))


def numbers_for_images(table: pa.Table) -> pa.Table:
    return replaced(table, "image", pa.array(range(table.num_rows)))


def bare_images(table: pa.Table) -> pa.Table:
    return replaced(table, "image", pa.array([row["bytes"] for row in table["image"].to_pylist()]))


def no_shift(table: pa.Table) -> pa.Table:
    return table.drop_columns(["shift"])


def nan_scores(table: pa.Table) -> pa.Table:
    return replaced(table, "object_score", pa.array(np.full(table.num_rows, np.nan, np.float32)))


def infinite_scores(table: pa.Table) -> pa.Table:
    return replaced(table, "shift_score", pa.array(np.full(table.num_rows, np.inf, np.float32)))


def one_row_less(table: pa.Table) -> pa.Table:
    return table.slice(1)


def one_row_more(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


TABLES: dict[Callable[[pa.Table], pa.Table], str] = {
    text_labels: "label is string, expected int64",
    small_labels: "label is int8, expected int64",
    numbers_for_images: "image is int64, expected struct",
    bare_images: "image is binary, expected struct",
    no_shift: "it has no column shift",
    nan_scores: "object_score holds a value that is not a finite number",
    infinite_scores: "shift_score holds a value that is not a finite number",
    one_row_less: r"has \d+ rows, but receipts/base-00000.json lists",
    one_row_more: r"has more rows, but receipts/base-00000.json lists",
}


@pytest.mark.parametrize("change", TABLES)
def test_tables_of_another_form_are_reported_in_words(
    parquet: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    pq.write_table(change(pq.read_table(shard(parquet))), shard(parquet))
    with pytest.raises(RunFailure, match=TABLES[change]) as caught:
        rows(parquet)
    assert "counterfoil build" in str(caught.value.hint)


@pytest.mark.parametrize("packed", ["gzip", "zstd", "brotli", "lz4"])
def test_packing_that_unfolds_without_bound_is_not_unpacked(parquet: Path, packed: str) -> None:
    pq.write_table(pq.read_table(shard(parquet)), shard(parquet), compression=packed)
    with pytest.raises(
        RunFailure, match=rf"compressed with {packed.upper()}.*, expected SNAPPY or UNCOMPRESSED"
    ):
        rows(parquet)


def test_many_rows_of_one_large_text_are_read_in_small_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dictionaries of one value make a file of 1 MB that unfolds to 100 GB: lists of it stay below
    a limit."""
    # of 1 GB, which takes seconds
    monkeypatch.setattr(counterfoil.store.shard_files, "_MOST_BYTES", 1 << 26)
    prompt = pa.DictionaryArray.from_arrays(
        pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 1_000_000])
    )
    table = pa.table({"prompt": prompt})
    path = tmp_path / "data" / "base" / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True)
    plain = pa.schema([("prompt", pa.dictionary(pa.int32(), pa.string()))])
    pq.write_table(table.cast(plain), path, store_schema=False, compression="none")
    assert path.stat().st_size < 2_000_000
    first = next(read_file(path, "candidates", ["prompt"]))
    assert 0 < sum(len(row["prompt"]) for row in first) <= 1 << 26


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"\xff" * 5000, b"{}"]
)
def test_files_of_any_bytes_are_reported_in_words(parquet: Path, content: bytes) -> None:
    shard(parquet).write_bytes(content)
    with pytest.raises(RunFailure, match="cannot be read"):
        rows(parquet)


@pytest.mark.parametrize("content", [b"", b"\0" * 10240, b"\xff" * 5000, b"{}"])
def test_tars_of_any_bytes_are_reported_in_words(tars: Path, content: bytes) -> None:
    shard(tars).write_bytes(content)
    with pytest.raises(RunFailure, match="cannot be read"):
        rows(tars)


def member(name: str, content: bytes = b"1", **kinds: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in kinds.items():
        setattr(info, key, value)
    return info, content


def row_of(key: str, **changes: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    contents = {"cls": b"1", "json": json.dumps({"key": key}).encode(), "png": b"x"} | changes
    return [member(f"{key}.{suffix}", content) for suffix, content in contents.items()]


MEMBERS: dict[str, tuple[list[tuple[tarfile.TarInfo, bytes]], str]] = {
    "absolute": ([member("/etc/x.cls")], "has a member '/etc/x.cls', expected files"),
    "above": ([member("../x.cls")], "has a member '../x.cls', expected files"),
    "below": ([member("a/x.cls")], "has a member 'a/x.cls', expected files"),
    "stranger": ([member("x.pickle")], "has a member 'x.pickle', expected files"),
    "link": (
        [member("x.cls", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
        "has a member 'x.cls'",
    ),
    "hard link": (
        [member("x.cls", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
        "has a member 'x.cls'",
    ),
    "device": (
        [member("x.cls", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
        "has a member 'x.cls'",
    ),
    "pipe": ([member("x.cls", b"", type=tarfile.FIFOTYPE)], "has a member 'x.cls'"),
    "folder": ([member("x.cls", b"", type=tarfile.DIRTYPE)], "has a member 'x.cls'"),
    "label of text": (row_of("a", cls=b"one"), "ValueError"),
    "label of digits": (row_of("a", cls=b"9" * 5000), "ValueError"),
    "label too large": (row_of("a", cls=b"99999999999999999999"), "expected the number of a class"),
    "deep": (row_of("a", json=b"[" * 100_000), "nested too deeply"),
    "list": (row_of("a", json=b"[]"), "has no key"),
    "no key": (row_of("a", json=b"{}"), "has no key"),
    "key of a number": (row_of("a", json=b'{"key": 3}'), "has no key"),
    "no json": ([member("a.cls"), member("a.png")], "KeyError"),
    "score of text": (row_of("a", json=b'{"key": "a", "object_score": "x"}'), "object_score|Arrow"),
    "score not a number": (
        row_of("a", json=b'{"key": "a", "object_score": NaN}'),
        "not a finite|is empty",
    ),
}


@pytest.mark.parametrize("case", MEMBERS)
def test_tars_with_members_of_another_form_are_reported_in_words(tars: Path, case: str) -> None:
    members, expected = MEMBERS[case]
    with tarfile.open(shard(tars), "w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(RunFailure, match=expected):
        rows(tars)


def test_a_member_that_says_it_is_larger_than_its_file_is_not_asked_for(tars: Path) -> None:
    with io.BytesIO() as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
            info, content = member("a.cls")
            tar.addfile(info, io.BytesIO(content))
        header = bytearray(stream.getvalue())
    large = tarfile.TarInfo("a.cls")
    large.size = 1 << 50
    header[:512] = large.tobuf(tarfile.GNU_FORMAT)
    shard(tars).write_bytes(header)
    with pytest.raises(RunFailure, match=r"it is cut off in a\.cls"):
        rows(tars)


def test_a_sparse_member_is_not_unfolded(tars: Path) -> None:
    """GNU's old sparse header: 512 bytes in the file that stand for a terabyte."""
    info = tarfile.TarInfo("a.cls")
    info.type = tarfile.GNUTYPE_SPARSE
    info.size = 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = b"%011o\0" % 0
    header[398:410] = b"%011o\0" % 512
    header[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    shard(tars).write_bytes(bytes(header) + b"1" * 512 + b"\0" * 1024)
    with pytest.raises(RunFailure, match=r"has a member 'a\.cls'"):
        rows(tars)


def test_reading_one_shard_holds_it_against_its_receipt_too(parquet: Path) -> None:
    receipt = read_receipts(parquet)[0]
    table = pq.read_table(shard(parquet))
    pq.write_table(pa.concat_tables([table, table]), shard(parquet))
    with refuses("damaged-shard", None, "has more rows", kind=RunFailure):
        list(read_shard(parquet, receipt))


def forged(dataset: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the candidates of the first shard, and its receipt with them."""
    path = min((dataset / "candidates" / "base").iterdir())
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    receipt = dataset / "receipts" / "base-00000.json"
    document = json.loads(receipt.read_text())
    entry = next(file for file in document["files"] if file["path"].startswith("candidates/"))
    content = path.read_bytes()
    entry |= {
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "rows": table.num_rows,
    }
    receipt.write_bytes(document_bytes(document))


def first_value(name: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    return lambda table: replaced(
        table, name, pa.array([value, *table[name].to_pylist()[1:]], table.schema.field(name).type)
    )


PLANNED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "key": (first_value("key", "x"), "a row that is not a sample of its shard: key 'x'"),
    "shift": (first_value("shift", "snow"), "a row that is not a sample of its shard"),
    "label": (first_value("label", 1), "a row that is not a sample of its shard"),
    "class": (first_value("class_id", "n03126707"), "a row that is not a sample of its shard"),
    "index": (first_value("index", 4), "a row that is not a sample of its shard"),
    "twice": (
        lambda table: pa.concat_tables([table.slice(0, 1), table.slice(0, 7)]),
        "more than once",
    ),
}


@pytest.mark.parametrize("case", PLANNED)
def test_rows_that_their_receipt_proves_must_still_be_the_plans(parquet: Path, case: str) -> None:
    change, problem = PLANNED[case]
    forged(parquet, change)
    plan = plan_of()
    with pytest.raises(RunFailure, match=problem):
        list(
            planned_rows(
                parquet, plan, plan.shards[0], read_receipts(parquet)[0], "candidates", ["reason"]
            )
        )
    with opened(parquet, plan, repair={}) as store:
        assert [shard.id for shard in store.pending()] == [plan.shards[0].id]
