"""Files of detections from elsewhere: what their tables hold is read, or refused before it takes
memory."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.data.written_objects import is_box, is_number
from counterfoil.errors import UserError
from counterfoil.evaluation.tasks.objects.detections import _entries
from support.refusals import refuses

ROWS = 4_000


def entries_of(ending: str, content: bytes) -> list[Any]:
    return list(_entries(Path(f"answers{ending}"), content, "predictions:answers"))


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def long_text(rows: int = ROWS) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int32)), pa.array(["x" * (1 << 14)])
    )


BOX = {"score": [0.5], "bbox": [[1, 2, 3, 4]]}


@pytest.mark.parametrize(
    "columns",
    [
        {"key": ["a"], "category": ["mug"], **BOX},
        {"image_id": [1], "category_id": [2], **BOX},
        {
            "key": ["a"],
            "category": ["mug"],
            "score": [1],
            "x": [1],
            "y": [2.5],
            "width": [3],
            "height": [4],
        },
        # A column that is not read may be of any type, and so may one that another one stands for.
        {"key": ["a"], "category": ["mug"], "label": [[1]], "notes": [{"a": 1}], **BOX},
        {
            "image_id": [1],
            "image": [{"bytes": b""}],
            "category": pa.nulls(1),
            "label": ["mug"],
            **BOX,
        },
    ],
    ids=["names", "numbers", "sides", "nested beside", "images beside"],
)
def test_a_table_gives_the_columns_that_are_read(columns: dict[str, Any]) -> None:
    (entry,) = entries_of(".parquet", parquet(columns))
    expected = {name: values[0] for name, values in pa.table(columns).to_pydict().items()}
    assert entry == {name: expected[name] for name in entry}
    assert set(columns) - set(entry) <= {"label", "notes", "image"}


@pytest.mark.parametrize("column", ["key", "category", "score", "bbox"])
@pytest.mark.parametrize(
    "values", [[["a"]], [{"a": 1}], [[[1.0]]], [b"a"]], ids=["list", "struct", "lists", "bytes"]
)
def test_a_nested_column_is_refused_by_name(column: str, values: Any) -> None:
    columns = {"key": ["a"], "category": ["mug"], **BOX, column: values}
    with pytest.raises(UserError, match=f"has the column '{column}' of .*, expected"):
        entries_of(".parquet", parquet(columns))


def test_a_text_of_many_rows_is_refused_only_where_it_is_read() -> None:
    columns = {
        "key": ["a"] * ROWS,
        "category": ["mug"] * ROWS,
        "score": [0.5] * ROWS,
        "bbox": [[1, 2, 3, 4]] * ROWS,
    }
    before = pa.default_memory_pool().bytes_allocated()
    entries = _entries(Path("a.parquet"), parquet({**columns, "notes": long_text()}), "answers")
    assert next(iter(entries))["key"] == "a"
    assert pa.default_memory_pool().bytes_allocated() - before < 1 << 23
    for column in ("key", "category"):
        with pytest.raises(UserError, match=f"has a text of 16,384 bytes in its column '{column}'"):
            entries_of(".parquet", parquet({**columns, column: long_text()}))


# JSON numbers beyond the ends of every type.
ODD = [10**400, -(10**400), 2**63, 1e39, float("nan"), float("inf"), True, "1", None, [1], {}]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:8])
def test_an_odd_number_is_no_number_and_no_error(value: Any) -> None:
    text = json.dumps(
        [{"image_id": 1, "category": "mug", "bbox": [1, 2, value, 4], "score": value}]
    )
    (entry,) = entries_of(".json", text.encode())
    assert not is_number(entry["score"]) and not is_box(entry["bbox"])
    assert not is_number(value) and not is_box([1, 2, 3, value])


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '[{"score": ' + "[" * 100_000, '[{"a": 1', "[1, 2]", '{"a": []}']
)
def test_a_file_of_another_form_is_refused(text: str) -> None:
    with refuses("invalid-detections", None, "cannot be read"):
        entries_of(".json", text.encode())
