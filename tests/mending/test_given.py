"""Tables of keys that a stranger made: what a few hundred bytes unfold to is refused before it takes memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.errors import UserError
from counterfoil.mending.given import MOST_ROWS, _table, numbered_groups, read_key_table

COLUMNS: dict[str, type] = {"key": str, "weight": float}


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, store_schema=False)
    return path


def test_what_is_written_is_read_in_its_order(tmp_path: Path) -> None:
    keys = [f"train_{row:08d}" for row in range(20_000)]
    weights = np.arange(20_000) / 7
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"key": pa.array(keys).cast(kind), "weight": weights, "other": keys})
        pq.write_table(table.replace_schema_metadata({"from": "here"}), tmp_path / "w.parquet")
        columns, metadata = read_key_table(tmp_path / "w.parquet", "w", COLUMNS)
        assert columns == {"key": keys, "weight": weights.tolist()}
        assert metadata[b"from"] == b"here"


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "no column": ({"key": ["a"]}, "'weight'|weight"),
    "numbers for keys": ({"key": [1], "weight": [1.0]}, "has the column key of int64, expected text"),
    "texts for weights": ({"key": ["a"], "weight": ["1"]}, "has the column weight of string, expected numbers"),
    "times": ({"key": pa.array([2**62], pa.timestamp("us")), "weight": [1.0]}, "expected text"),
    "bytes": ({"key": pa.array([b"\xff"], pa.binary()), "weight": [1.0]}, "expected text"),
    "lists": ({"key": [["a"]], "weight": [1.0]}, "expected a Parquet"),
    "nothing in a row": ({"key": ["a", None], "weight": [1.0, 1.0]}, "a row is empty"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_such_table_is_told(tmp_path: Path, case: str) -> None:
    columns, says = ODD[case]
    with pytest.raises(UserError, match=says) as error:
        read_key_table(parquet(tmp_path / "w.parquet", **columns), "--with w", COLUMNS, "Write them.")
    assert str(error.value).startswith("--with w: ") and error.value.hint == "Write them."


def test_text_that_is_no_text_is_told(tmp_path: Path) -> None:
    keys = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(UserError, match="expected a Parquet"):
        read_key_table(parquet(tmp_path / "w.parquet", key=keys, weight=[1.0]), "w", COLUMNS)


@pytest.mark.parametrize("bomb", ["one long text in every row", "one row many times"])
def test_a_bomb_takes_no_memory(tmp_path: Path, bomb: str) -> None:
    text, rows = ("x" * 1_000_000, 3_000) if bomb.startswith("one long") else ("a", MOST_ROWS + 1)
    key = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), [text])
    file = parquet(tmp_path / "w.parquet", key=key, weight=np.zeros(rows))
    assert file.stat().st_size < 50_000
    del key
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"letters|rows, expected at most"):
        read_key_table(file, "w", COLUMNS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.parquet")
    with pytest.raises(UserError, match="is a pipe"):
        read_key_table(tmp_path / "w.parquet", "w", COLUMNS)


def test_groups_of_long_names_are_numbered_as_short_ones_are() -> None:
    names = ["b", "a", "c" * 120_000]
    by_key = {f"k{place}": names[place % 3] for place in range(20_000)}
    found = numbered_groups(by_key, list(by_key), "dfr:w")
    assert found[:3].tolist() == [1, 0, 2] and set(found.tolist()) == {0, 1, 2}


def test_groups_of_a_csv_have_bounds_too(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text(f"key,group\na,{'x' * 100_000}\n")
    with pytest.raises(UserError, match="a key or group of over 1,000 letters"):
        _table(str(tmp_path / "g.csv"))
    (tmp_path / "g.csv").write_text("key,group\na,rain\nb,\n")
    assert _table(str(tmp_path / "g.csv")) == {"a": "rain", "b": ""}
