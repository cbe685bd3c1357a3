"""Read columns of a Parquet file that may come from anyone, in bounded memory.

A file of some kB may hold a text of a megabyte in each of a million rows, because a row holds only
the text's number. So only the columns that are asked for are decoded, each must have a type that is
asked for, and the bytes of its pages, the values of its lists and the length of its texts are
checked first. Batches are cut by bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from counterfoil.parquet_pages import ColumnChunk, measure_pages, read_chunks
from counterfoil.regular_files import UnfitFile, on_a_line

if TYPE_CHECKING:
    import pyarrow as pa

# What a column may hold. Numbers become float64, whole numbers int64, lists are of float64. Encoded
# images are bytes, or a struct with `bytes` as `datasets` writes it.
TEXT = "text"
WHOLE = "whole numbers"
NUMBER = "numbers"
TRUTH = "true or false"
NUMBERS = "lists of numbers"
IMAGES = "encoded images"
_ENCODED = "bytes"

MOST_BYTES = 1 << 31
MOST_COLUMNS = 100_000
LONGEST_TEXT = 10_000
LONGEST_IMAGE = 1 << 26
# The values of a list: a box has four.
LONGEST_LIST = 16
# The bytes of a column in a row group. By default, writers put a million rows in a row group.
_MOST_UNFOLDED = 1 << 28
_MOST_ROWS_A_BATCH = 8_192
_BATCH_BYTES = 1 << 26
_LONGEST_TYPE = 60
# Any table may take so much memory, and so many bytes more for each of its file.
SPARE = 1 << 28
A_BYTE = 16
# With its place in lists.
_VALUE = 16


def parquet_types(file: IO[bytes]) -> dict[str, tuple[str, ...]]:
    """Return the columns of a file, and what each may be read as: nothing if it is nested or of
    another type.

    Raise UnfitFile for too many columns, or for two of one name.
    """
    return {name: _kinds(type) for name, type in _types(file).items()}


def parquet_metadata(file: IO[bytes]) -> Mapping[bytes, bytes]:
    """Return what a writer said of the file, by key. Raise UnfitFile for a damaged one."""
    read_chunks(file)
    with _opened(file, ()) as table:
        return table.schema_arrow.metadata or {}


def read_foreign_parquet(
    file: IO[bytes],
    columns: Mapping[str, Sequence[str]],
    *,
    most_rows: int,
    longest_text: int = LONGEST_TEXT,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some columns, in batches of bounded bytes. columns: name → what it may
    hold, the first first.

    Raise UnfitFile for a missing column or one of another type, and for a file that exceeds a
    limit; ArrowException or ValueError for a damaged one. An empty cell is null. A column without
    any value is of type null.
    """
    import pyarrow as pa

    types = _types(file)
    chosen = {}
    for name, wanted in columns.items():
        if name not in types:
            raise UnfitFile(f"has no column {name[:40]!r}")
        known = _kinds(types[name])
        fitting = [kind for kind in wanted if kind in known]
        if not fitting:
            type = on_a_line(str(types[name]))[:_LONGEST_TYPE]
            raise UnfitFile(
                f"has the column {name[:40]!r} of {type}, expected {' or '.join(wanted)}"
            )
        chosen[name] = fitting[0]
    _refuse_vast(file, chosen)
    most = {TEXT: longest_text, IMAGES: LONGEST_IMAGE}
    texts = [name for name, kind in chosen.items() if kind in most]
    # The leaves that are read, by column.
    leaves = {}
    for name in chosen:
        leaves[name] = name
        if pa.types.is_struct(types[name]):
            leaves[name] = f"{name}.{_ENCODED}"
    into = {TEXT: pa.string(), WHOLE: pa.int64(), NUMBER: pa.float64(), TRUTH: pa.bool_()}
    into |= {NUMBERS: pa.list_(pa.float64()), IMAGES: pa.binary()}
    with _opened(file, [leaves[name] for name in texts]) as table:
        rows = table.metadata.num_rows
        if rows > most_rows:
            raise UnfitFile(f"has {rows:,} rows, expected at most {most_rows:,}")
        numbers = 0
        for kind in chosen.values():
            numbers += LONGEST_LIST if kind == NUMBERS else 1
        size = max(1, _BATCH_BYTES // (8 * max(1, numbers)))
        size = min(_MOST_ROWS_A_BATCH, size)
        for batch in table.iter_batches(batch_size=size, columns=list(leaves.values())):
            batch.validate(full=True)  # refuses text that is not UTF-8
            arrays = {}
            for name in chosen:
                column = batch.column(name)
                if pa.types.is_struct(column.type):
                    # Its only part is the leaf that is read.
                    (column,) = column.flatten()
                arrays[name] = column
            longest = 0
            for name in texts:
                length = _longest(arrays[name])
                kind = chosen[name]
                limit = most[kind]
                if length > limit:
                    what = "a text" if kind == TEXT else "an image"
                    raise UnfitFile(
                        f"has {what} of {length:,} bytes in its column {name[:40]!r}, expected at"
                        f" most {limit:,}"
                    )
                longest += length
            step = max(1, _BATCH_BYTES // max(1, longest))
            for start in range(0, batch.num_rows, step):
                parts = []
                for name, kind in chosen.items():
                    part = arrays[name].slice(start, step)
                    if not pa.types.is_null(part.type):
                        part = part.cast(into[kind])
                    parts.append(part)
                yield pa.RecordBatch.from_arrays(parts, list(chosen))


def parquet_bytes(file: IO[bytes], most: int | None = None) -> int:
    """Return how many bytes all rows of a file take at most, without decoding them.

    Raise UnfitFile for more than `most`, and for a damaged file. By default, `most` grows with the
    file.
    """
    import pyarrow as pa

    if most is None:
        size = file.seek(0, os.SEEK_END)
        most = SPARE + A_BYTE * size
    chunks = read_chunks(file)
    try:
        return _measured(file, chunks, most)
    except (KeyError, pa.ArrowException) as error:
        raise _undecodable(error) from error


def _undecodable(error: Exception) -> UnfitFile:
    words = " ".join(str(error).split())
    return UnfitFile(f"cannot be decoded: {words[:200]}")


def _measured(file: IO[bytes], chunks: Sequence[ColumnChunk], most: int) -> int:
    import pyarrow.compute

    functions: Any = pyarrow.compute
    total = 0
    paths = {chunk.path for chunk in chunks}
    with _opened(file, sorted(paths)) as table:
        leaves = []
        for field in table.schema_arrow:
            leaves += _leaves(field.type)
        if chunks and (not leaves or len(chunks) % len(leaves)):
            raise UnfitFile("has a damaged description")
        for number, chunk in enumerate(chunks):
            group, column = divmod(number, len(leaves))
            width, repeated, in_list = leaves[column]
            pages = measure_pages(file, chunk)
            values = max(pages.values, chunk.values, chunk.rows)
            # An empty cell of lists of one length has all values in memory, and one in the file.
            cells = values if in_list else chunk.rows
            values = max(values, cells * repeated)
            total += max(pages.unfolded, chunk.unfolded) + values * width
            if total <= most and pages.dictionary:
                first = next(table.iter_batches(1, [group], [chunk.path]), None)
                longest = 0 if first is None else _longest(first.column(0))
                bound = total + pages.numbered * longest
                if bound <= most:
                    total = bound
                    continue
                # The bound is too high, so texts are counted, in batches of bounded bytes.
                rows = max(1, _BATCH_BYTES // longest)
                for batch in table.iter_batches(rows, [group], [chunk.path]):
                    *_, column = inner_arrays(batch.column(0))
                    lengths = functions.binary_length(column.dictionary)
                    lengths = lengths.take(column.indices)
                    total += functions.sum(lengths).as_py() or 0
                    if total > most:
                        break
            if total > most:
                raise UnfitFile(f"takes over {most:,} bytes of memory")
    return total


def _leaves(type: Any, repeated: int = 1, in_list: bool = False) -> list[tuple[int, int, bool]]:
    """Return the leaves of a type: bytes of a value without its text, values of a cell, and whether
    lists vary."""
    from pyarrow import types

    if not types.is_nested(type):
        width = _VALUE
        if types.is_fixed_size_binary(type):
            width = max(width, type.byte_width)
        return [(width, repeated, in_list)]
    if types.is_fixed_size_list(type):
        repeated *= type.list_size
    elif not types.is_struct(type):
        in_list = True
    leaves = []
    for number in range(type.num_fields):
        leaves += _leaves(type.field(number).type, repeated, in_list)
    return leaves


@contextmanager
def _opened(file: IO[bytes], texts: Sequence[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    file.seek(0)
    try:
        # A dictionary holds a text of many rows once, so its length is known before the text is
        # repeated.
        with pq.ParquetFile(file, read_dictionary=list(texts), pre_buffer=False) as table:
            yield table
    except OSError as error:
        # pyarrow raises OSError without a number for what it cannot decode.
        if error.errno is not None:
            raise
        raise _undecodable(error) from error


def _types(file: IO[bytes]) -> dict[str, pa.DataType]:
    size = file.seek(0, os.SEEK_END)
    if size > MOST_BYTES:
        raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
    types: dict[str, pa.DataType] = {}
    with _opened(file, ()) as table:
        schema = table.schema_arrow
        columns = len(schema.names)
        if columns > MOST_COLUMNS:
            raise UnfitFile(f"has {columns:,} columns, expected at most {MOST_COLUMNS:,}")
        for field in schema:
            if field.name in types:
                raise UnfitFile(f"has the column {field.name[:40]!r} more than once")
            types[field.name] = field.type
    return types


def _kinds(type: pa.DataType) -> tuple[str, ...]:
    import pyarrow as pa
    from pyarrow import types

    value = type.value_type if types.is_dictionary(type) else type
    if types.is_null(value):
        return (TEXT, WHOLE, NUMBER, TRUTH, NUMBERS, IMAGES)
    is_text = types.is_string(value) or types.is_large_string(value)
    if is_text or types.is_string_view(value):
        return (TEXT,)
    if types.is_struct(type):
        index = type.get_field_index(_ENCODED)
        value = pa.null() if index < 0 else type.field(index).type
    if types.is_binary(value) or types.is_large_binary(value):
        return (IMAGES,)
    if types.is_dictionary(type):
        return ()
    if types.is_boolean(type):
        return (TRUTH,)
    if types.is_integer(type):
        return (WHOLE, NUMBER)
    if types.is_floating(type):
        return (NUMBER,)
    if types.is_fixed_size_list(type):
        listed = type.list_size <= LONGEST_LIST
    else:
        listed = types.is_list(type) or types.is_large_list(type)
    if listed:
        entry = type.value_type
        if types.is_integer(entry) or types.is_floating(entry):
            return (NUMBERS,)
    return ()


def _refuse_vast(file: IO[bytes], chosen: Mapping[str, str]) -> None:
    """Raise UnfitFile if a row group of a column has too many bytes or values."""
    for chunk in read_chunks(file):
        # pyarrow also reads the columns whose names begin so.
        names = [name for name in chosen if f"{chunk.path}.".startswith(f"{name}.")]
        if not names:
            continue
        name = names[0]
        pages = measure_pages(file, chunk)
        where = f"in its column {name[:40]!r}, expected at most"
        most = chunk.rows
        if chosen[name] == NUMBERS:
            most *= LONGEST_LIST
        values = max(pages.values, chunk.values)
        if values > most:
            raise UnfitFile(f"has {values:,} values {where} {most:,}")
        unfolded = max(pages.unfolded, chunk.unfolded)
        if unfolded > _MOST_UNFOLDED:
            raise UnfitFile(f"has {unfolded:,} bytes {where} {_MOST_UNFOLDED:,} in a row group")


def _longest(column: Any) -> int:
    import pyarrow.compute
    from pyarrow import types

    functions: Any = pyarrow.compute
    *_, column = inner_arrays(column)
    texts = column.dictionary if types.is_dictionary(column.type) else column
    kind = texts.type
    if types.is_null(kind) or types.is_primitive(kind) or types.is_decimal(kind):
        return 0
    lengths = functions.binary_length(texts)
    return functions.max(lengths).as_py() or 0


def inner_arrays(array: Any) -> Iterator[Any]:
    """Yield an array, and the arrays in its lists and structs."""
    from pyarrow import types

    yield array
    if types.is_struct(array.type):
        for part in array.flatten():
            yield from inner_arrays(part)
    elif types.is_nested(array.type):
        yield from inner_arrays(array.values)
