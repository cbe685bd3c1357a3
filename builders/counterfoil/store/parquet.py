"""Parquet shards: bytes that depend on the rows alone, cut so that the Hub's viewer can page through them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.store.atomic import HashedFile

# Rows of images may reach 2 MB: 100 of them stay under the 100-300 MB that viewers take at once.
# Rows without an image are small, and fewer groups read faster.
ROWS_A_GROUP_WITH_IMAGES = 100
ROWS_A_GROUP_WITHOUT_IMAGES = 10_000

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


def read_parquet(path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Batches of a shard's rows, in order, with the columns in the order asked for."""
    with pq.ParquetFile(path) as file:
        names = list(columns) if columns is not None else file.schema_arrow.names
        size = ROWS_A_GROUP_WITH_IMAGES if "image" in names else ROWS_A_GROUP_WITHOUT_IMAGES
        for batch in file.iter_batches(batch_size=size, columns=names):
            yield batch.select(names).replace_schema_metadata(None)


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of a shard."""
    return pq.read_schema(path).names


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
