"""Parquet tables of keys that somebody made, for `mend --with`: read in bounded memory, whatever they unfold to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.classifiers.of_predictions import longest_text
from counterfoil.models.loading_errors import one_line
from counterfoil.regular_files import UnfitFile, open_regular

# ImageNet has 1.3 million training rows; a key takes some twenty bytes.
MOST_BYTES = 64_000_000
MOST_ROWS = 5_000_000
LONGEST_TEXT = 1_000
_ROWS_AT_ONCE = 8_192


@dataclass(frozen=True)
class KeyTable:
    """columns: name → a value a row, in the file's order; of text no value is longer than `LONGEST_TEXT`."""

    columns: Mapping[str, list[Any]]
    metadata: Mapping[bytes, bytes] = field(repr=False)


def read_key_table(path: Path, where: str, columns: Mapping[str, type], hint: str | None = None) -> KeyTable:
    """Some columns, each of `str` or `float`, of a Parquet file. UserError, begun by `where`, for any other file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = f"expected a Parquet with the columns {' and '.join(columns)}"
    found: dict[str, list[Any]] = {name: [] for name in columns}
    texts = [name for name, kind in columns.items() if kind is str]
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
            # A text that stands in many rows is held once.
            table = pq.ParquetFile(file, read_dictionary=texts)
            if table.metadata.num_rows > MOST_ROWS:
                raise UnfitFile(f"has {table.metadata.num_rows:,} rows, expected at most {MOST_ROWS:,}")
            for name, kind in columns.items():
                type_ = table.schema_arrow.field(name).type
                coded = type_.value_type if pa.types.is_dictionary(type_) else type_
                number = pa.types.is_integer(coded) or pa.types.is_floating(coded)
                if not (number if kind is float else pa.types.is_string(coded) or pa.types.is_large_string(coded)):
                    wanted = "numbers" if kind is float else "text"
                    raise UnfitFile(f"has the column {name} of {type_}, expected {wanted}")
            for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(columns)):
                batch.validate(full=True)
                for name in texts:
                    if longest_text(batch.column(name)) > LONGEST_TEXT:
                        raise UnfitFile(f"has a {name} of over {LONGEST_TEXT:,} letters")
                for name, kind in columns.items():
                    column = batch.column(name)
                    found[name] += (column.cast(pa.float64()) if kind is float else column).to_pylist()
            metadata = table.schema_arrow.metadata or {}
    except UnfitFile as error:
        raise UserError(f"{where}: it {error.strerror}", hint) from error
    except (OSError, ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as error:
        raise UserError(f"{where}: {expected}: {one_line(error)}", hint) from error
    if any(value is None for values in found.values() for value in values):
        raise UserError(f"{where}: {expected}: a row is empty", hint)
    return KeyTable(found, metadata)
