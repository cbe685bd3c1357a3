"""The kind of cases about Parquet: a shard's table with other columns, types, rows, values and
images."""

from __future__ import annotations

import io
import math
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.cases import Bench, Prepared
from fuzzing.commands import on_the_dataset
from fuzzing.pictures import odd_picture
from fuzzing.templates import EDITS, PARQUET, TOKENS
from fuzzing.values import odd_value

Changed = tuple[str, Any]
"""A change in words, and the changed value."""

_NUMBERS = (
    "object_score",
    "shift_score",
    "object_threshold",
    "shift_threshold",
    "seed",
    "index",
    "label",
    "steps",
    "guidance",
)
_HUGE_ROWS = 3_000_000
_NUMBER_TYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
_NESTED: tuple[Any, ...] = (
    [1],
    ["a"],
    [[1.0]],
    [],
    [None],
    {"a": 1},
    {"a": [1]},
    {"a": {"b": "c"}},
    [{"a": 1}],
    [1.0] * 4,
    [1e308] * 4,
    b"a",
    [True] * 4,
    [10**18] * 4,
)
# A row group each, or thousands of columns of them, takes minutes to write.
_MANY_ROWS = 10_000


def table(bench: Bench) -> Prepared:
    """Make one or two changes to one or two shards."""
    chance = bench.chance
    directory = bench.copy(chance.choice((PARQUET, TOKENS, EDITS)))
    shards = sorted(directory.rglob("*.parquet"))
    for _ in range(chance.choice((1, 1, 2))):
        what = chance.choice(("data", "data", "candidates"))
        path = chance.choice([shard for shard in shards if shard.is_relative_to(directory / what)])
        bench.tell(f"{path.relative_to(directory).as_posix()}:")
        rewrite(path, bench)
    return on_the_dataset(bench, 0.75)


def rewrite(path: Path, bench: Bench) -> None:
    """Make one or two changes to a table, and write it in one of the ways that Parquet knows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            rows = pq.ParquetFile(file).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError):
        bench.tell("cannot be read any more")
        return
    for _ in range(bench.chance.choice((1, 1, 2))):
        change = bench.chance.choice(
            (
                *[_values] * 3,
                *[_images] * 2,
                *[_columns] * 2,
                *[_types] * 2,
                _odd,
                change_rows,
                _metadata,
            )
        )
        try:
            words, rows = change(rows, bench)
        except (*_cannot_hold(), IndexError, KeyError, NotImplementedError):
            words = f"{change.__name__} does not go"  # Arrow cannot hold it either
        bench.tell(words)
    if content := written(rows, bench):
        path.write_bytes(content)


def _cannot_hold() -> tuple[type[Exception], ...]:
    """Return what Arrow raises for values that no column can hold."""
    import pyarrow as pa

    return pa.ArrowException, TypeError, ValueError, OverflowError


def written(rows: Any, bench: Bench) -> bytes:
    """Return a table in one of the ways that Parquet knows; nothing if it holds no such table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = bench.chance
    options: dict[str, Any] = {
        "compression": chance.choice(("snappy", "snappy", "none", "gzip", "zstd", "brotli", "lz4")),
        "use_dictionary": chance.random() < 0.8,
        "data_page_version": chance.choice(("1.0", "1.0", "2.0")),
    }
    if chance.random() < 0.2 and rows.num_rows <= _MANY_ROWS:
        options["row_group_size"] = 1
    file = io.BytesIO()
    try:
        pq.write_table(rows, file, **options)
    except (pa.ArrowException, ValueError, NotImplementedError):
        bench.tell("Parquet does not hold it")
        return b""
    return file.getvalue()


def odd_array(chance: Random, rows: int) -> Changed:
    """Return a column that few readers expect, with what it is: ends of a type, nested values, or a
    text for all."""
    import numpy as np
    import pyarrow as pa

    how = chance.choice(("ends", "ends", "nested", "nested", "repeated", "decimal", "empty"))
    match how:
        case "ends":
            name = chance.choice(_NUMBER_TYPES)
            ends = np.finfo(name) if name.startswith("float") else np.iinfo(name)
            values = np.array([chance.choice((ends.min, ends.max)) for _ in range(rows)], name)
            if name.startswith("float") and chance.random() < 0.4:
                values[0] = chance.choice((np.nan, np.inf, -np.inf, np.finfo(name).tiny, -0.0))
            return f"ends of {name}", pa.array(values)
        case "nested":
            value = chance.choice(_NESTED)
            return f"nested {value!r}", pa.array([value] * rows)
        case "repeated":
            text = chance.choice(("x", "é")) * chance.choice((9_999, 10_001, 1 << 16, 1 << 20))
            places = pa.array(np.zeros(rows, np.int32))
            array = pa.DictionaryArray.from_arrays(places, pa.array([text]))
            return f"a text of {len(text):,} in all rows", array
        case "decimal":
            return how, pa.array([chance.choice((10**37, -1, 0))] * rows, pa.decimal128(38))
    kinds = (pa.null(), pa.string(), pa.float64(), pa.list_(pa.float64()))
    return how, pa.nulls(rows, chance.choice(kinds))


def _values(rows: Any, bench: Bench) -> Changed:
    """Put odd values into some cells of one column, or all."""
    import pyarrow as pa

    chance = bench.chance
    names = rows.column_names
    column = chance.choice([*names, *(name for name in _NUMBERS if name in names)])
    if column == "image":
        return _images(rows, bench)
    values = rows.column(column).to_pylist()
    kind = rows.schema.field(column).type
    if pa.types.is_floating(kind):
        odd = chance.choice((math.nan, math.inf, -math.inf, None, 1e30, 0.0, -1.0, 2.0))
    else:
        odd = odd_value(chance)
    count = len(values) if chance.random() < 0.4 else min(1, len(values))
    values[:count] = [odd] * count
    try:
        array = pa.array(values, kind)
    except _cannot_hold():
        texts = [None if value is None else str(value)[:10_000] for value in values]
        array = pa.array(texts, pa.string())
    return f"{column} ← {str(odd)[:50]!r}", _with(rows, column, array)


def _images(rows: Any, bench: Bench) -> Changed:
    """Replace images by others, or by what is not an image."""
    import pyarrow as pa

    chance = bench.chance
    if "image" not in rows.column_names:
        return _types(rows, bench)
    images = rows.column("image").to_pylist()
    kind = rows.schema.field("image").type
    others = ("null", "no bytes", "path", "number", "text", "list", "flat", "empty struct")
    how = chance.choice((*["picture"] * 4, *others))
    match how:
        case "picture":
            how, content = odd_picture(chance, bench.shared)
            for index in range(1 if chance.random() < 0.6 else len(images)):
                images[index] = {**images[index], "bytes": content}
            array = pa.array(images, kind)
        case "null":
            array = pa.nulls(len(images), kind)
        case "no bytes" | "path":
            canary = str(bench.canaries.paths()[3])
            path = canary if how == "path" else "a.png"
            array = pa.array([{"bytes": None, "path": path}] * len(images), kind)
        case "number":
            array = pa.array(range(len(images)))
        case "text":
            array = pa.array([f"image {index}" for index in range(len(images))])
        case "list":
            array = pa.array([[index] for index in range(len(images))])
        case "flat":
            array = pa.array([image["bytes"] for image in images])
        case _:
            array = pa.array([{"other": index} for index in range(len(images))])
    return f"image ← {how}", _with(rows, "image", array)


def _columns(rows: Any, bench: Bench) -> Changed:
    """Remove, add, rename, double or move a column."""
    import pyarrow as pa

    chance = bench.chance
    names = list(rows.column_names)
    index = chance.randrange(len(names))
    match chance.choice(("drop", "drop", "add", "rename", "double", "order", "none", "many")):
        case "drop":
            return f"without {names[index]}", rows.drop_columns([names[index]])
        case "add":
            name = str(odd_value(chance))[:300] or "x"
            return "one more", rows.append_column(name, pa.array([1] * rows.num_rows))
        case "rename":
            names[index] = str(odd_value(chance))[:300]
            return f"{names[index]!r} renamed", rows.rename_columns(names)
        case "double":
            return f"{names[index]} twice", rows.append_column(names[index], rows.column(index))
        case "order":
            return "in another order", rows.select(names[::-1])
        case "none":
            return "no column", rows.select([])
    if rows.num_rows > _MANY_ROWS:
        return "as it is", rows
    for number in range(2_000):
        rows = rows.append_column(f"c{number}", pa.nulls(rows.num_rows))
    return "2,000 more columns", rows


def _types(rows: Any, bench: Bench) -> Changed:
    """Give a column another type."""
    import pyarrow as pa

    chance = bench.chance
    column = chance.choice([name for name in rows.column_names if name != "image"])
    plain = (
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.int8(),
        pa.int64(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.bool_(),
        pa.null(),
        pa.date32(),
        pa.timestamp("ns"),
        pa.decimal128(38, 2),
    )
    nested = (
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.dictionary(pa.int32(), pa.string()),
        pa.map_(pa.string(), pa.int64()),
    )
    kind = chance.choice((*plain, *nested))
    values = rows.column(column).to_pylist()
    constants = ([value] * len(values) for value in ([1], {"a": 1}, [("a", 1)], 1, None))
    for converted in chain([values, map(str, values)], constants):
        try:
            array = pa.array(converted, kind)
        except _cannot_hold():
            continue
        return f"{column} as {kind}", _with(rows, column, array)
    return f"{column} stays", rows


def _odd(rows: Any, bench: Bench) -> Changed:
    """Replace any column by an odd one."""
    column = bench.chance.choice(rows.column_names)
    what, array = odd_array(bench.chance, rows.num_rows)
    return f"{column} ← {what}", _with(rows, column, array)


def change_rows(rows: Any, bench: Bench) -> Changed:
    """Remove all or some rows, add some, repeat them, or reorder them."""
    import pyarrow as pa

    chance = bench.chance
    count = rows.num_rows
    match chance.choice(("none", "fewer", "double", "same", "order", "many", "huge")):
        case "none":
            return "no row", rows.slice(0, 0)
        case "fewer":
            return "a row less", rows.slice(0, count - 1)
        case "double":
            return "rows twice", pa.concat_tables([rows, rows])
        case "same":
            return "one row for all", rows.take([0] * count)
        case "order":
            return "in another order", rows.take(list(range(count))[::-1])
        case "many":
            return "2,000 rows", rows.take([0] * 2_000)
    names = rows.column_names
    if "image" in names or len(names) > 100:
        return "no row", rows.slice(0, 0)
    first = {name: rows.column(name)[0] for name in names if name != "embedding"}
    repeated = {name: pa.repeat(value, _HUGE_ROWS) for name, value in first.items()}
    return f"{_HUGE_ROWS:,} equal rows", pa.table(repeated)


def _metadata(rows: Any, bench: Bench) -> Changed:
    """Change what `datasets` and Arrow say of the columns in the file's footer."""
    chance = bench.chance
    images = b'{"info": {"features": {"image": {"_type": "Image"}}}}'
    labels = b'{"info": {"features": {"label": {"names": ["x"], "_type": "ClassLabel"}}}}'
    contents = (b"{", b"null", b"[" * 50_000, b"\xff", images, labels, b"x" * 2_000_000)
    content = chance.choice(contents)
    key = chance.choice((b"huggingface", b"pandas", b"ARROW:schema", b""))
    return f"metadata {key!r}", rows.replace_schema_metadata({key: content})


def _with(rows: Any, column: str, array: Any) -> Any:
    return rows.set_column(rows.column_names.index(column), column, array)
