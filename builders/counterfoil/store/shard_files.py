"""Read and write the files of shards, Parquet and WebDataset. The bytes of a file depend on its
rows alone.

A tar holds `{key}.png`, `{key}.cls` and `{key}.json` side by side, without times or user names. The
table `candidates` has no images.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.documents import parse_json
from counterfoil.parquet_pages import ColumnChunk, measure_pages, read_chunks
from counterfoil.regular_files import UnfitFile
from counterfoil.store.atomic import HashedFile
from counterfoil.store.layout import What
from counterfoil.store.rows import TableForm, plain_schema

# A row with an image may take 2 MB, so 100 rows stay below the 100-300 MB that viewers read at
# once. Rows without an image are small, and a table in fewer row groups is faster to read.
ROWS_A_GROUP_WITH_IMAGES = 100
ROWS_A_GROUP_WITHOUT_IMAGES = 10_000

# The compressions that are written. Other compressions reach a thousand to one, so a small file
# could expand without bound.
_CODINGS = ("SNAPPY", "UNCOMPRESSED")
_MOST_BYTES = 1 << 30
_BYTES_A_VALUE = 8
_MOST_NAMED = 30

# `datasets` uses the same values. Pages are cut by content. After another cut, a table therefore
# shares most chunks with the table on the Hub, and only the changed chunks are uploaded.
_CONTENT_DEFINED_CHUNKS = {
    "min_chunk_size": 256 * 1024,
    "max_chunk_size": 1024 * 1024,
    "norm_level": 0,
}


def write_parquet(file: HashedFile, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    """Write all rows of a shard with one call. The one call fixes the row groups."""
    has_images = "image" in schema.names
    group = ROWS_A_GROUP_WITH_IMAGES if has_images else ROWS_A_GROUP_WITHOUT_IMAGES
    # The rows are written in pieces, because one binary array holds at most 2 GB.
    batches = []
    for start in range(0, len(rows), group):
        piece = list(rows[start : start + group])
        batches.append(pa.RecordBatch.from_pylist(piece, schema=schema))
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    plain = [leaf for leaf in leaves if leaf.endswith((".bytes", ".path"))]
    coded = [path for path in leaves if path not in plain]
    chunked = {b"content_defined_chunking": json.dumps(_CONTENT_DEFINED_CHUNKS).encode()}
    schema = schema.with_metadata({**(schema.metadata or {}), **chunked})
    options: dict[str, Any] = {
        "row_group_size": group,
        # Images are compressed already. Compressing them again would cost time and save nothing.
        "compression": {**dict.fromkeys(plain, "none"), **dict.fromkeys(coded, "snappy")},
        "column_encoding": dict.fromkeys(plain, "PLAIN") or None,
        "use_dictionary": coded,
        # Statistics of images would only enlarge the footer.
        "write_statistics": coded,
        "write_page_index": True,
        "use_content_defined_chunking": _CONTENT_DEFINED_CHUNKS,
    }
    pq.write_table(pa.Table.from_batches(batches).cast(schema), file, **options)


def _leaves(path: str, type: pa.DataType) -> Iterator[str]:
    """Yield the paths of a column's leaves in the form that Parquet uses."""
    if pa.types.is_struct(type):
        for child in type:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        yield from _leaves(f"{path}.list.element", type.value_type)
    else:
        yield path


def read_parquet(
    path: Path,
    what: What,
    columns: Sequence[str] | None,
    only: frozenset[str] | None,
    form: TableForm,
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's rows in batches of bounded size. Row groups that contain no key of `only` are
    skipped.

    Raise ValueError unless the columns exist with the type and compression that Counterfoil writes.
    """
    with path.open("rb") as opened, pq.ParquetFile(path) as file:
        try:
            chunks = list(read_chunks(opened))
            schema = file.schema_arrow
            expected = plain_schema(what, replace(form, embeddings="embedding" in schema.names))
            names = list(expected.names if columns is None else columns)
            for name in names:
                if name not in schema.names:
                    raise ValueError(
                        f"it has no column {name}; it has {', '.join(schema.names[:_MOST_NAMED])}"
                    )
                actual_type = schema.field(name).type
                expected_type = expected.field(name).type
                if actual_type != expected_type:
                    raise ValueError(f"{name} is {actual_type}, expected {expected_type}")
            for coding in {chunk.coding for chunk in chunks} - {*_CODINGS}:
                raise ValueError(
                    f"it is compressed with {coding}, expected {' or '.join(_CODINGS)}"
                )
            rows = _rows_a_batch(opened, chunks, [*names, "key"])
        except UnfitFile as error:
            raise ValueError(f"it {error.strerror}") from error
        for group in range(file.num_row_groups):
            if only is not None:
                keys = file.iter_batches(batch_size=rows, row_groups=[group], columns=["key"])
                if all(only.isdisjoint(batch["key"].to_pylist()) for batch in keys):
                    continue
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names):
                yield batch.select(names).replace_schema_metadata(None)


def _rows_a_batch(file: IO[bytes], chunks: Iterable[ColumnChunk], names: Sequence[str]) -> int:
    """Return how many rows to read at once. Any row may hold a value as large as its whole column
    in a row group."""
    largest = {"": 1}
    for chunk in chunks:
        if chunk.path.partition(".")[0] in names:
            pages = measure_pages(file, chunk)
            if pages.values * _BYTES_A_VALUE > _MOST_BYTES:
                raise UnfitFile(
                    f"has {pages.values:,} values in its column {chunk.path[:40]!r}, too many to"
                    " read"
                )
            largest[chunk.path] = max(largest.get(chunk.path, 0), pages.unfolded)
    most = ROWS_A_GROUP_WITH_IMAGES if "image" in names else ROWS_A_GROUP_WITHOUT_IMAGES
    return max(1, min(most, _MOST_BYTES // sum(largest.values())))


# Members of a tar have no other names. Other readers check less, and a name could lead them out of
# their folder.
_MEMBER = re.compile(r"(?P<key>[A-Za-z0-9_-]+)\.(?P<suffix>cls|json|png|jpg|webp)")
# The form in which labels are written. int() would also accept "1_0" and the digits of other
# scripts.
_LABEL = re.compile(rb"0|[1-9][0-9]{0,17}")
_ROWS_A_BATCH = 100  # rows with images, as many as in a row group of the Parquet files


def write_tar(file: HashedFile, rows: Sequence[dict[str, Any]]) -> None:
    """Write all rows of a shard. The members of a row are adjacent. Raise ValueError for a key with
    a dot or slash."""
    # Importing webdataset also imports torch, which takes over a second. Only processes that render
    # should import it.
    from webdataset.writer import TarWriter

    # The format is PAX, because a plain USTAR header has no room for keys of over 100 characters.
    # With short keys both formats are equal.
    with TarWriter(
        cast(BinaryIO, file),
        user="counterfoil",
        group="counterfoil",
        mode=0o644,
        mtime=0,
        encoder=False,
        format="PAX_FORMAT",
    ) as tar:
        for row in rows:
            if "." in row["key"] or "/" in row["key"]:
                raise ValueError(
                    f"the key {row['key']} has a dot or a slash, which would split the sample's"
                    " members"
                )
            described = {}
            for name, value in row.items():
                if name not in ("image", "label"):
                    described[name] = _number(value)
            members = {
                "__key__": row["key"],
                "cls": str(row["label"]).encode(),
                "json": json.dumps(described, ensure_ascii=False, allow_nan=False).encode(),
            }
            if "image" in row:
                suffix = row["image"]["path"].rpartition(".")[2]
                members[suffix] = row["image"]["bytes"]
            tar.write(members)


def read_tar(
    path: Path,
    what: What,
    columns: Sequence[str] | None,
    form: TableForm,
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's rows in batches, like `read_parquet`. Raise ValueError for a file of another
    form."""
    schema = plain_schema(what, replace(form, embeddings="embedding" in tar_columns(path)))
    schema = pa.schema([schema.field(name) for name in columns or schema.names])
    stream = _rows(path)
    while rows := list(islice(stream, _ROWS_A_BATCH)):
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def tar_columns(path: Path) -> list[str]:
    """Return the names of a shard's columns. Raise ValueError for a file without rows."""
    first = next(_rows(path), None)
    if first is None:
        raise ValueError("it has no rows")
    return list(first)


def _number(value: Any) -> Any:
    """Round floats to the shortest text that reads back as the same float32. Both formats keep this
    value."""
    import numpy as np

    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, list):
        return [_number(item) for item in value]
    return value


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows. Raise ValueError for members that Counterfoil never writes. A damaged file
    raises tarfile's errors.
    """
    members = {}
    key = None
    size = path.stat().st_size
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            name = _MEMBER.fullmatch(member.name)
            if name is None or not member.isreg() or member.issparse():
                raise ValueError(
                    f"it has a member {member.name[:80]!r}, expected files KEY.cls, KEY.json,"
                    " KEY.png …"
                )
            if member.offset_data + member.size > size:  # checked before so many bytes are read
                raise ValueError(f"it is cut off in {member.name[:80]}")
            if name["key"] != key and members:
                yield _row(members)
                members = {}
            key = name["key"]
            stream = tar.extractfile(member)
            assert stream is not None  # the member is a file, so it has a stream
            members[name["suffix"]] = stream.read()
    if members:
        yield _row(members)


def _row(members: dict[str, bytes]) -> dict[str, Any]:
    described = parse_json(members["json"])
    if not isinstance(described, dict) or not isinstance(described.get("key"), str):
        raise ValueError("it has a row whose .json has no key")
    row = {"key": described.pop("key")}
    for suffix, content in members.items():
        if suffix not in ("cls", "json"):
            row["image"] = {"bytes": content, "path": f"{row['key']}.{suffix}"}
    if not _LABEL.fullmatch(members["cls"]):
        raise ValueError(
            f"it has a row whose .cls is {members['cls'][:20]!r}, expected the number of a class"
        )
    row["label"] = int(members["cls"])
    return {**row, **described}
