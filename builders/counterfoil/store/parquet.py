"""Parquet shards: bytes that depend on the rows alone, cut so that the Hub's viewer can page through them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.store.atomic import HashedFile
from counterfoil.store.layout import What
from counterfoil.store.rows import PLAIN, TableForm, plain_schema

# Rows of images may reach 2 MB: 100 of them stay under the 100-300 MB that viewers take at once.
# Rows without an image are small, and fewer groups read faster.
ROWS_A_GROUP_WITH_IMAGES = 100
ROWS_A_GROUP_WITHOUT_IMAGES = 10_000

# What writing uses. Others pack a thousand to one, which makes a small file unfold without bound.
_CODINGS = ("SNAPPY", "UNCOMPRESSED")
_MOST_BYTES = 1 << 30
_MOST_NAMED = 30

# As `datasets` does: pages are cut by content, so that a re-cut table shares most chunks with the one
# on the Hub and only the difference is sent.
_CONTENT_DEFINED_CHUNKS = {"min_chunk_size": 256 * 1024, "max_chunk_size": 1024 * 1024, "norm_level": 0}


def write_parquet(file: HashedFile, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    """Write all rows of a shard with one call, which is what settles the row groups."""
    has_images = "image" in schema.names
    group = ROWS_A_GROUP_WITH_IMAGES if has_images else ROWS_A_GROUP_WITHOUT_IMAGES
    # In pieces, since one binary array holds 2 GB at most.
    batches = [
        pa.RecordBatch.from_pylist(list(rows[start : start + group]), schema=schema)
        for start in range(0, len(rows), group)
    ]
    plain = ["image.bytes", "image.path"] if has_images else []
    coded = [path for path in _leaves(schema) if path not in plain]
    chunked = {b"content_defined_chunking": json.dumps(_CONTENT_DEFINED_CHUNKS).encode()}
    schema = schema.with_metadata({**(schema.metadata or {}), **chunked})
    options: dict[str, Any] = {
        "row_group_size": group,
        # Images are compressed already; packing them again costs time and saves nothing.
        "compression": {**dict.fromkeys(plain, "none"), **dict.fromkeys(coded, "snappy")},
        "column_encoding": dict.fromkeys(plain, "PLAIN") or None,
        "use_dictionary": coded,
        # The least and the greatest image would only swell the footer.
        "write_statistics": coded,
        "write_page_index": True,
        "use_content_defined_chunking": _CONTENT_DEFINED_CHUNKS,
    }
    pq.write_table(pa.Table.from_batches(batches).cast(schema), file, **options)


def read_parquet(
    path: Path,
    what: What,
    columns: Sequence[str] | None = None,
    only: frozenset[str] | None = None,
    form: TableForm = PLAIN,
) -> Iterator[pa.RecordBatch]:
    """Batches of a shard's rows, in order, with the columns in the order asked for; lists are of bounded size.

    With `only`, row groups without any of these keys are skipped. ValueError for a file of another form than is
    written; what pyarrow raises for one that is damaged.
    """
    with pq.ParquetFile(path) as file:
        names = _checked_columns(file, what, columns, form)
        rows = _rows_a_batch(file, [*names, "key"])
        for group in range(file.num_row_groups):
            if only is not None:
                keys = file.iter_batches(batch_size=rows, row_groups=[group], columns=["key"])
                if all(only.isdisjoint(batch["key"].to_pylist()) for batch in keys):
                    continue
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names):
                yield batch.select(names).replace_schema_metadata(None)


def _checked_columns(file: pq.ParquetFile, what: What, columns: Sequence[str] | None, form: TableForm) -> list[str]:
    """The columns to read, which must be there, of the type that is written, in a coding that is written."""
    schema = file.schema_arrow
    expected = plain_schema(what, TableForm("embedding" in schema.names, form.added))
    names = list(columns) if columns is not None else expected.names
    for name in names:
        if name not in schema.names:
            raise ValueError(f"it has no column {name}; it has {', '.join(schema.names[:_MOST_NAMED])}")
        if schema.field(name).type != expected.field(name).type:
            raise ValueError(f"{name} is {schema.field(name).type}, expected {expected.field(name).type}")
    metadata = file.metadata
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            coding = metadata.row_group(group).column(place).compression
            if coding not in _CODINGS:
                raise ValueError(f"it is packed by {coding}, expected {' or '.join(_CODINGS)}")
    return names


def _rows_a_batch(file: pq.ParquetFile, names: Sequence[str]) -> int:
    """Rows to take at once: no value is larger than its column in a row group, so that bounds what they unfold to.

    Other columns than images may each hold one large value in every row, so theirs add up.
    """
    metadata, largest = file.metadata, {"": 1}
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            path = column.path_in_schema
            if path.partition(".")[0] in names:
                largest[path] = max(largest.get(path, 0), column.total_uncompressed_size)
    most = ROWS_A_GROUP_WITH_IMAGES if "image" in names else ROWS_A_GROUP_WITHOUT_IMAGES
    return max(1, min(most, _MOST_BYTES // sum(largest.values())))


def _leaves(schema: pa.Schema) -> list[str]:
    """The column paths as Parquet names them."""
    paths = []
    for field in schema:
        if pa.types.is_struct(field.type):
            paths += [f"{field.name}.{child.name}" for child in field.type]
        elif pa.types.is_list(field.type):
            paths.append(f"{field.name}.list.element")
        else:
            paths.append(field.name)
    return paths
