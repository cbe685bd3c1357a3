"""The kind of cases about Parquet: a shard's table with other columns, types, rows, values and
images."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzzing.cases import Bench, Prepared
from fuzzing.commands import NAME, on_the_dataset
from fuzzing.pictures import odd_picture
from fuzzing.templates import EDITS, PARQUET, TOKENS, copied
from fuzzing.values import odd_value

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
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
_NESTED: tuple[Any, ...] = (
    [1], ["a"], [[1.0]], [], [None], {"a": 1}, {"a": [1]}, {"a": {"b": "c"}}, [{"a": 1}], [1.0] * 4, [1e308] * 4, b"a",
    [True] * 4, [10**18] * 4,
)  # fmt: skip
# A row group each, or thousands of columns of them, takes minutes to write.
_MANY_ROWS = 10_000


def table(bench: Bench) -> Prepared:
    """Make one or two changes to one or two shards."""
    chance = bench.chance
    directory = copied(
        bench.templates, chance.choice((PARQUET, TOKENS, EDITS)), bench.folder / NAME
    )
    shards = sorted(directory.rglob("*.parquet"))
    for _ in range(chance.choice((1, 1, 2))):
        what = chance.choice(("data", "data", "candidates"))
        path = chance.choice(
            [shard for shard in shards if shard.relative_to(directory).parts[0] == what]
        )
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
                _values,
                _values,
                _values,
                _images,
                _images,
                _columns,
                _columns,
                _types,
                _types,
                _odd,
                change_rows,
                _metadata,
            )
        )
        try:
            words, rows = change(rows, bench)
        except (
            pa.ArrowException,
            ValueError,
            TypeError,
            OverflowError,
            IndexError,
            KeyError,
            NotImplementedError,
        ):
            words = f"{change.__name__} does not go"  # Arrow cannot hold it either
        bench.tell(words)
    if content := written(rows, bench):
        path.write_bytes(content)


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


def odd_array(chance: random.Random, rows: int) -> tuple[str, Any]:
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
            return f"a text of {len(text):,} in all rows", pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(rows, np.int32)), pa.array([text])
            )
        case "decimal":
            return how, pa.array([chance.choice((10**37, -1, 0))] * rows, pa.decimal128(38))
    return how, pa.nulls(
        rows, chance.choice((pa.null(), pa.string(), pa.float64(), pa.list_(pa.float64())))
    )


def _values(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Put odd values into some cells of one column, or all."""
    import pyarrow as pa

    chance = bench.chance
    column = chance.choice(
        [*rows.column_names, *(name for name in _NUMBERS if name in rows.column_names)]
    )
    if column == "image":
        return _images(rows, bench)
    values = rows.column(column).to_pylist()
    numeric = pa.types.is_floating(rows.schema.field(column).type)
    odd = (
        chance.choice((float("nan"), float("inf"), -float("inf"), None, 1e30, 0.0, -1.0, 2.0))
        if numeric
        else odd_value(chance)
    )
    everywhere = chance.random() < 0.4
    for index in range(len(values)):
        if everywhere or index == 0:
            values[index] = odd
    kind = rows.schema.field(column).type
    try:
        array = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        array = pa.array(
            [None if value is None else str(value)[:10_000] for value in values], pa.string()
        )
    return f"{column} ← {str(odd)[:50]!r}", _with(rows, column, array)


def _images(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Replace images by others, or by what is not an image."""
    import pyarrow as pa

    chance = bench.chance
    if "image" not in rows.column_names:
        return _types(rows, bench)
    images = rows.column("image").to_pylist()
    how = chance.choice(
        (
            "picture",
            "picture",
            "picture",
            "picture",
            "null",
            "no bytes",
            "path",
            "number",
            "text",
            "list",
            "flat",
            "empty struct",
        )
    )
    if how == "picture":
        how, content = odd_picture(chance, bench.shared)
        images = [{**images[0], "bytes": content}, *images[1:]] if chance.random() < 0.6 else [
            {**image, "bytes": content} for image in images
        ]  # fmt: skip
        return f"image ← {how}", _with(
            rows, "image", pa.array(images, rows.schema.field("image").type)
        )
    if how in ("null", "no bytes", "path"):
        canary = str(bench.canaries.paths()[3])
        cell = {
            "null": None,
            "no bytes": {"bytes": None, "path": "a.png"},
            "path": {"bytes": None, "path": canary},
        }[how]
        return f"image ← {how}", _with(
            rows, "image", pa.array([cell] * len(images), rows.schema.field("image").type)
        )
    values: Callable[[int], Any] = {
        "number": lambda index: index,
        "text": lambda index: f"image {index}",
        "list": lambda index: [index],
        "flat": lambda index: images[index]["bytes"],
        "empty struct": lambda index: {"other": index},
    }[how]
    return f"image ← {how}", _with(
        rows, "image", pa.array([values(index) for index in range(len(images))])
    )


def _columns(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Remove, add, rename, double or move a column."""
    import pyarrow as pa

    chance = bench.chance
    names = list(rows.column_names)
    index = chance.randrange(len(names))
    match chance.choice(("drop", "drop", "add", "rename", "double", "order", "none", "many")):
        case "drop":
            return f"without {names[index]}", rows.drop_columns([names[index]])
        case "add":
            return "one more", rows.append_column(
                str(odd_value(chance))[:300] or "x", pa.array([1] * rows.num_rows)
            )
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


def _types(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Give a column another type."""
    import pyarrow as pa

    chance = bench.chance
    column = chance.choice([name for name in rows.column_names if name != "image"])
    plain = (
        pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.int64(), pa.uint64(), pa.float16(), pa.float64(),
        pa.bool_(), pa.null(), pa.date32(), pa.timestamp("ns"), pa.decimal128(38, 2),
    )  # fmt: skip
    nested = (
        pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.dictionary(pa.int32(), pa.string()),
        pa.map_(pa.string(), pa.int64()),
    )  # fmt: skip
    kind = chance.choice((*plain, *nested))
    values = rows.column(column).to_pylist()
    for convert in (
        lambda value: value,
        str,
        lambda value: [1],
        lambda value: {"a": 1},
        lambda value: [("a", 1)],
        lambda value: 1,
        lambda value: None,
    ):
        try:
            return f"{column} as {kind}", _with(
                rows, column, pa.array([convert(value) for value in values], kind)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return f"{column} stays", rows


def _odd(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Replace any column by an odd one."""
    column = bench.chance.choice(rows.column_names)
    what, array = odd_array(bench.chance, rows.num_rows)
    return f"{column} ← {what}", _with(rows, column, array)


def change_rows(rows: Any, bench: Bench) -> tuple[str, Any]:
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
    if "image" in rows.column_names:
        return "no row", rows.slice(0, 0)
    if len(rows.column_names) > 100:
        return "no row", rows.slice(0, 0)
    first = rows.slice(0, 1).drop_columns(
        [name for name in ("embedding",) if name in rows.column_names]
    )
    return f"{_HUGE_ROWS:,} equal rows", pa.table(
        {name: pa.repeat(first.column(name)[0], _HUGE_ROWS) for name in first.column_names}
    )


def _metadata(rows: Any, bench: Bench) -> tuple[str, Any]:
    """Change what `datasets` and Arrow say of the columns in the file's footer."""
    chance = bench.chance
    images = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}}).encode()
    labels = json.dumps(
        {"info": {"features": {"label": {"names": ["x"], "_type": "ClassLabel"}}}}
    ).encode()
    content = chance.choice(
        (b"{", b"null", b"[" * 50_000, b"\xff", images, labels, b"x" * 2_000_000)
    )
    key = chance.choice((b"huggingface", b"pandas", b"ARROW:schema", b""))
    return f"metadata {key!r}", rows.replace_schema_metadata({key: content})


def _with(rows: Any, column: str, array: Any) -> Any:
    return rows.set_column(rows.column_names.index(column), column, array)
