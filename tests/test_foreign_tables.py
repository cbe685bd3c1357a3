"""Columns of strangers' Parquet files: the values are pyarrow's own, and what would take memory is
refused before."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil import foreign_tables
from counterfoil.foreign_tables import (
    IMAGES,
    NUMBER,
    NUMBERS,
    TEXT,
    TRUTH,
    WHOLE,
    parquet_metadata,
    parquet_types,
    read_foreign_parquet,
)
from counterfoil.parquet_pages import measure_pages, read_chunks, read_struct
from counterfoil.regular_files import UnfitFile

TABLE = pa.table(
    {
        "key": ["a", "b", None, "a"],
        "number": [1, 2, None, -(1 << 52)],
        "score": [1.5, None, 3.0, 1e39],
        "bbox": [[1, 2, 3, 4], None, [], [0.5, 0, 0, 0]],
        "right": [True, None, False, True],
        "empty": pa.nulls(4),
        "key.of": ["p", "q", "r", "s"],
    }
)
COLUMNS: dict[str, Sequence[str]] = {
    "key": [TEXT],
    "number": [WHOLE],
    "score": [NUMBER],
    "bbox": [NUMBERS],
    "right": [TRUTH],
    "empty": [WHOLE],
}


def file_of(table: pa.Table, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file


def rows_of(
    file: Any, columns: Mapping[str, Sequence[str]], most_rows: int = 1 << 20, **more: Any
) -> list[dict[str, Any]]:
    return [
        row
        for batch in read_foreign_parquet(file, columns, most_rows=most_rows, **more)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd"},
        {"compression": "none", "use_dictionary": False},
        {"data_page_version": "2.0"},
        {"row_group_size": 1, "write_page_index": True},
        {"store_schema": False, "data_page_size": 1, "write_batch_size": 1},
        {"use_dictionary": False, "use_byte_stream_split": ["score"]},
    ],
    ids=str,
)
def test_values_are_those_of_a_plain_reader(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(TABLE, **options)
    expected = pq.read_table(io.BytesIO(file.getvalue())).select(list(COLUMNS)).to_pylist()
    assert rows_of(file, COLUMNS) == expected
    # Batches of few bytes have the same rows.
    monkeypatch.setattr(foreign_tables, "_BATCH_BYTES", 1)
    assert rows_of(file, COLUMNS) == expected


@pytest.mark.parametrize(
    "type",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_every_type_of_text_is_text(type: pa.DataType) -> None:
    assert rows_of(
        file_of(pa.table({"key": pa.array(["é", None]).cast(type)})), {"key": [TEXT]}
    ) == [
        {"key": "é"},
        {"key": None},
    ]


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"store_schema": False}], ids=str
)
@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary()])
def test_images_are_bytes_or_structs_with_bytes(
    type: pa.DataType, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [b"a", None, b"b" * 900, b"a"]
    encoded = pa.array(values, type)
    paths = pa.array(["x"] * 4)
    cells = pa.StructArray.from_arrays(
        [paths, encoded], ["path", "bytes"], mask=pa.array([True, False, False, False])
    )
    table = pa.table({"key": ["p", "q", "r", "s"], "plain": encoded, "cells": cells})
    columns = {"cells": [IMAGES], "key": [TEXT], "plain": [IMAGES]}
    expected = []
    for key, value in zip("pqrs", values, strict=True):
        expected.append({"cells": value, "key": key, "plain": value})
    expected[0]["cells"] = None
    assert rows_of(file_of(table, **options), columns) == expected
    monkeypatch.setattr(foreign_tables, "_BATCH_BYTES", 1)
    assert rows_of(file_of(table, **options), columns) == expected


ENDS: list[tuple[str, float]] = [
    ("int8", -128), ("uint8", 255), ("int16", -(1 << 15)), ("uint16", 65_535), ("int32", -(1 << 31)),
    ("uint32", (1 << 32) - 1), ("float16", 65_504.0), ("float32", float(np.finfo(np.float32).max)),
    ("float64", np.finfo(np.float64).max),
]  # fmt: skip


@pytest.mark.parametrize(("type", "end"), ENDS)
def test_numbers_at_the_ends_of_their_types_are_whole(type: str, end: float) -> None:
    table = pa.table(
        {"x": pa.array(np.array([end], type)), "y": pa.array([[end]], pa.list_(pa.float64()))}
    )
    assert rows_of(file_of(table), {"x": [NUMBER], "y": [NUMBERS]}) == [{"x": end, "y": [end]}]


@pytest.mark.parametrize("value", [(1 << 63) - 1, (1 << 64) - 1])
def test_a_whole_number_that_no_float_holds_is_refused(value: int) -> None:
    table = pa.table({"x": pa.array(np.array([value], np.uint64))})
    with pytest.raises((pa.ArrowInvalid, UnfitFile)):
        rows_of(file_of(table), {"x": [NUMBER]})


NESTED = {
    "list": pa.array([["a"]]),
    "struct": pa.array([{"a": "b"}]),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "list of lists": pa.array([[[1.0]]]),
    "long fixed list": pa.array([[1.0] * 17], pa.list_(pa.float64(), 17)),
    "bytes": pa.array([b"a"]),
    "date": pa.array([0], pa.date32()),
    "decimal": pa.array([1], pa.decimal128(5)),
}


@pytest.mark.parametrize("kind", [TEXT, WHOLE, NUMBER, TRUTH, NUMBERS])
@pytest.mark.parametrize("case", NESTED)
def test_a_column_of_another_type_is_refused_by_name(case: str, kind: str) -> None:
    file = file_of(pa.table({"key": ["a"], "label": NESTED[case]}))
    with pytest.raises(UnfitFile, match=r"has the column 'label' of .*, expected"):
        rows_of(file, {"key": [TEXT], "label": [kind]})
    # It is not decoded if it is not asked for.
    assert rows_of(file, {"key": [TEXT]}) == [{"key": "a"}]


def test_columns_are_named_once_and_are_there() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(UnfitFile, match="has the column 'a' more than once"):
        parquet_types(file_of(twice))
    with pytest.raises(UnfitFile, match="has no column 'b'"):
        rows_of(file_of(TABLE), {"b": [TEXT]})
    assert parquet_metadata(file_of(TABLE.replace_schema_metadata({"a": "b"})))[b"a"] == b"b"


def repeated(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


# Each takes 64 MB if it is decoded, in a file of some kB.
ROWS = 4_000
BOMBS: dict[str, tuple[Callable[[], io.BytesIO], str]] = {
    "one long text in many rows": (
        lambda: file_of(pa.table({"key": repeated("x" * (1 << 14), ROWS)}), compression="zstd"),
        "has a text of 16,384 bytes in its column 'key', expected at most 10,000",
    ),
    "many long texts": (
        lambda: file_of(
            pa.table({"key": ["x" * (1 << 14)] * ROWS}), compression="zstd", use_dictionary=False
        ),
        "has .* bytes in its column 'key', expected at most 1,000,000 in a row group",
    ),
    "texts that repeat the one before": (
        lambda: file_of(
            pa.table({"key": ["x" * (1 << 14)] * ROWS}),
            use_dictionary=False,
            column_encoding={"key": "DELTA_BYTE_ARRAY"},
        ),
        "in the encoding DELTA_BYTE_ARRAY, which is not read",
    ),
    "a list of many values": (
        lambda: file_of(pa.table({"bbox": [[0.0] * ROWS, [], [], []]})),
        "has 4,003 values in its column 'bbox', expected at most 64",
    ),
    "one long image in many rows": (
        lambda: file_of(
            pa.table({"image": repeated("x" * (1 << 14), ROWS).cast(pa.binary())}),
            compression="zstd",
        ),
        "has an image of 16,384 bytes in its column 'image', expected at most 10,000",
    ),
    "many rows": (
        lambda: file_of(pa.table({"key": repeated("x", 1_001 + ROWS)})),
        "has 5,001 rows, expected at most 5,000",
    ),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_file_that_takes_much_memory_is_refused(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_tables, "_MOST_UNFOLDED", 1_000_000)
    monkeypatch.setattr(foreign_tables, "LONGEST_IMAGE", 10_000)
    make, says = BOMBS[case]
    file = make()
    columns = {"key": [TEXT]}
    if "list" in case:
        columns = {"bbox": [NUMBERS]}
    elif "image" in case:
        columns = {"image": [IMAGES]}
    with pytest.raises(UnfitFile, match=says):
        rows_of(file, columns, most_rows=5_000)


def test_another_columns_size_does_not_matter() -> None:
    table = pa.table({"key": ["a"] * ROWS, "notes": repeated("x" * (1 << 14), ROWS)})
    before = pa.default_memory_pool().bytes_allocated()
    batches = read_foreign_parquet(file_of(table), {"key": [TEXT]}, most_rows=ROWS)
    assert next(iter(batches)).num_rows == ROWS
    assert pa.default_memory_pool().bytes_allocated() - before < 1 << 20


def test_columns_are_measured_by_their_own_headers() -> None:
    table = pa.table(
        {
            "key": [f"key {row % 700}" for row in range(3_000)],
            "x": [[row, 1.5] for row in range(3_000)],
        }
    )
    for options in (
        {},
        {"compression": "gzip", "data_page_size": 100},
        {"data_page_version": "2.0"},
    ):
        file = file_of(table, row_group_size=1_000, **options)
        metadata = pq.ParquetFile(file).metadata
        columns = [
            metadata.row_group(group).column(number) for group in range(3) for number in range(2)
        ]
        for chunk, column in zip(read_chunks(file), columns, strict=True):
            assert (chunk.path, chunk.rows, chunk.values) == (
                column.path_in_schema,
                1_000,
                column.num_values,
            )
            assert chunk.folded == column.total_compressed_size
            assert chunk.unfolded == column.total_uncompressed_size
            pages = measure_pages(file, chunk)
            assert pages.values == column.num_values
            # The footer's total counts headers too.
            assert 0.5 * chunk.unfolded < pages.unfolded < chunk.unfolded


def test_a_footer_that_says_less_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(
        pa.table({"key": ["x" * 9_000] * ROWS}), compression="zstd", use_dictionary=False
    )
    (chunk,) = read_chunks(file)
    monkeypatch.setattr(foreign_tables, "read_chunks", lambda file: [replace(chunk, unfolded=1)])
    monkeypatch.setattr(foreign_tables, "_MOST_UNFOLDED", 30_000_000)
    with pytest.raises(UnfitFile, match="has 36,016,028 bytes in its column 'key'"):
        rows_of(file, {"key": [TEXT]})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x15",
        b"\x15\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
        b"\x1c" * 40,
        b"\x19\x00",
        b"\x18\x7f\x00",
    ],
)
def test_a_damaged_header_is_no_header(content: bytes) -> None:
    with pytest.raises((IndexError, ValueError)):
        read_struct(content)


def test_any_damage_of_a_file_is_an_error_for_people() -> None:
    """Change each byte of a small file. It is read, or refused with a known error."""
    whole = file_of(TABLE.select(["key", "bbox"])).getvalue()
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0x5A
        with contextlib.suppress(UnfitFile, pa.ArrowException, ValueError):
            rows_of(io.BytesIO(bytes(damaged)), {"key": [TEXT], "bbox": [NUMBERS]})
