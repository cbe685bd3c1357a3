"""Refuse tables from elsewhere that take much memory, before a library that has no bounds reads
them.

A table in text has a cell for every row and column, also where its text has none: 10,000 lines of
JSON, each with a key of its own, take 100 million cells. A list in a hundred thousand lists ends
the whole process.
"""

from __future__ import annotations

import csv
import io
import mmap
import os
import re
import struct
import tarfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import IO, Any

from counterfoil.data.messages import failure, refusal
from counterfoil.foreign_tables import A_BYTE, SPARE, inner_arrays, parquet_bytes
from counterfoil.regular_files import UnfitFile, open_regular

_CELL = 8
_DEEPEST = 100
_MOST_COLUMNS = 10_000
_LONGEST_CELL = 1 << 24  # the boxes of 100,000 objects
_STRING = re.compile(rb'"[^"\n]*"')
_KEY = re.compile(rb'"([^"\n]*)"\s*:')
_NO_MARKS = bytes({*range(256)}.difference(b"{}[]"))
_CHUNK = 1 << 20
# gzip, bzip2, xz, zip, zstd, lz4
_PACKED = (b"\x1f\x8b", b"BZ", b"\xfd7", b"PK", b"(\xb5", b"\x04\x22")
# Members of a tar that `datasets` unpacks in memory.
_UNFOLDED = (".npz", ".pth", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
# Types whose values share their bytes.
_SHARING = ("string_view", "binary_view", "list_view", "large_list_view", "run_end")


def refuse_vast(
    files: Iterable[Path],
    where: str,
    ending: str | None = None,
    settings: Any = None,
) -> None:
    """Raise UserError for tables that take much more memory than their bytes, or are damaged.

    ending: the form of all of them; by default, names tell it. settings: how `datasets` would read
    CSV. Raise RunFailure for a file that cannot be read.
    """
    left = SPARE
    for path in files:
        try:
            with open_regular(path) as file:
                left += A_BYTE * os.fstat(file.fileno()).st_size
                left -= _bytes_of(file, ending or path.suffix, settings, left)
            if left < 0:
                raise UnfitFile("takes too much memory for its size")
        except (UnfitFile, ValueError, TypeError, csv.Error, tarfile.TarError) as error:
            reason = error.strerror if isinstance(error, UnfitFile) else f"cannot be read: {error}"
            raise refusal("unreadable-data.table", f"{where}: {path.name}", reason) from error
        except OSError as error:
            raise failure("unreadable-data", path, error) from error


def _bytes_of(
    file: IO[bytes],
    ending: str,
    settings: Any,
    most: int,
) -> int:
    """Return how many bytes all rows of a table take at most; 0 for a file of another form."""
    head = file.read(2)
    file.seek(-min(4, file.seek(0, os.SEEK_END)), os.SEEK_END)
    is_parquet = file.read() == b"PAR1"  # readers look at its end alone
    file.seek(0)
    if is_parquet or ending == ".parquet":
        return parquet_bytes(file, most)
    if ending == ".arrow":
        return _arrow_bytes(file)
    if ending == ".tar":
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if member.name.lower().endswith(_UNFOLDED):
                    shown = member.name[:80]
                    raise UnfitFile(f"has the member {shown!r}, which would be unpacked")
    if ending not in (".json", ".jsonl", ".ndjson", ".csv", ".tsv"):
        return 0
    if head in _PACKED:
        raise UnfitFile("is compressed, expected plain text")
    if ending in (".csv", ".tsv"):
        rows, columns = _csv_size(file, ending, settings)
    else:
        rows, columns = _json_size(file)
    if columns > _MOST_COLUMNS:
        raise UnfitFile(f"has {columns:,} columns, expected at most {_MOST_COLUMNS:,}")
    return rows * columns * _CELL


def _json_size(file: IO[bytes]) -> tuple[int, int]:
    """Return the number of mappings and of keys. Raise ValueError for deep lists and mappings."""
    keys = set()
    rows = depth = 0
    # What a backslash escapes ends no text.
    while lines := b"".join(file.readlines(_CHUNK)).replace(b"\\\\", b"\1").replace(b'\\"', b"\0"):
        keys.update(_KEY.findall(lines))
        bare = _STRING.sub(b"", lines)
        if b'"' in bare:
            raise ValueError("a text does not end on its line")
        marks = bare.translate(None, _NO_MARKS)
        rows += marks.count(b"{")
        for _ in range(_DEEPEST):
            marks = marks.replace(b"[]", b"").replace(b"{}", b"")
        depth += marks.count(b"{") - marks.count(b"}")
        depth += marks.count(b"[") - marks.count(b"]")
        if depth > _DEEPEST or b"[]" in marks or b"{}" in marks:
            raise ValueError("it is nested too deeply")
        if len(keys) > _MOST_COLUMNS:
            break
    return rows, len(keys)


def _csv_size(file: IO[bytes], ending: str, settings: Any) -> tuple[int, int]:
    """Return the number of rows and of columns."""
    mark = getattr(settings, "sep", None) or ("\t" if ending == ".tsv" else ",")
    rows = 0
    columns = len(getattr(settings, "names", None) or ())
    text = io.TextIOWrapper(file, errors="replace", encoding="utf-8", newline="")
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        quoting: Any = getattr(settings, "quoting", csv.QUOTE_MINIMAL)
        for cells in csv.reader(text, delimiter=mark, quoting=quoting):
            rows += 1
            columns = max(columns, len(cells))
    finally:
        csv.field_size_limit(before)
    return rows, columns


def _arrow_bytes(file: IO[bytes]) -> int:
    import pyarrow as pa

    total = 0
    try:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(content))
        schema = pa.ipc.read_schema(messages.read_next_message())
        for message in messages:
            if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
                raise UnfitFile(
                    "has compressed values or dictionaries, expected what dataset.save_to_disk"
                    " writes"
                )
            batch = pa.ipc.read_record_batch(message, schema)
            batch.validate(full=True)
            total += batch.nbytes
            for part in chain.from_iterable(map(inner_arrays, batch.columns)):
                total += len(part) * _CELL
                if (type := str(part.type)).startswith(_SHARING):
                    raise UnfitFile(f"has a column of {type[:40]}, which is not read")
    except (pa.ArrowException, OSError, StopIteration, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(reason or "it is cut off") from error
    return total


def _is_compressed(head: bytes) -> bool:
    """Return whether a record batch has compressed values, which are as large as it says.

    See https://github.com/apache/arrow/blob/main/format/Message.fbs: a message has its batch in
    field 2, and that its compression in field 3.
    """

    def number(kind: str, at: int) -> int:
        return struct.unpack_from(kind, head, at)[0]

    table = number("<I", 0)
    for slot in (8, 10):  # of the fields
        fields = table - number("<i", table)
        offset = number("<H", fields + slot) if slot < number("<H", fields) else 0
        if not offset:
            return False
        table += offset + number("<I", table + offset)
    return True
