"""Read a file of predictions, Parquet or CSV, that anybody may have written: its columns first, then rows in batches.

One column tells the image: `key` (a key, or a path below a folder), `path`, or `row` (its place in the dataset, from
0); where `key` and `path` both stand there, `key` does. Beside it stands the answer: `label` (a class's name),
`class_id`, or one column of scores a class. Nothing else may stand there: the label of a table that a
dataset brings is the truth, not an answer.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.error_text import one_line
from counterfoil.regular_files import UnfitFile, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

# Scores of 1,000 classes for 250,000 images as float32.
MOST_BYTES = 1 << 30
MOST_COLUMNS = 100_000
_MOST_HEADER_BYTES = 1 << 24
# What the values of one batch may take; a column chunk of Parquet may unfold to no more either.
_BATCH_BYTES = 1 << 26
_MOST_UNFOLDED = 1 << 30
_MOST_ROWS_A_BATCH = 8_192
_LONGEST_TEXT = 10_000

PATH, ROW = "path", "row"
KEYS = ("key", PATH, ROW)
ANSWERS = ("label", "class_id")
# What tables hold beside scores: an index that was saved along, or what somebody made of the scores.
_NO_SCORES = frozenset(
    {"", "__index_level_0__", "unnamed: 0", "index", "shift", "split", "prediction", "confidence", "probability"}
    | {"score", "correct", "right", "class"}
)


@dataclass(frozen=True)
class PredictionColumns:
    """What a file's columns are: the one that tells the image, the one that answers, or the names of the scores."""

    image: str
    answer: str | None
    scores: tuple[str, ...]


def read_columns(path: Path, model: str) -> PredictionColumns:
    """The columns of a file of predictions. UserError for one that is none, with what was expected."""
    with _opened(path, model) as file:
        names = _names(file, path)
    return _checked(names, path, model)


def read_batches(path: Path, model: str, columns: PredictionColumns) -> Iterator[pa.RecordBatch]:
    """The rows in batches of bounded size: the image's key as text or row as int64, the answer as text, scores float64.

    UserError where a value is none of these.
    """
    import pyarrow as pa

    types = {columns.image: pa.int64() if columns.image == ROW else pa.string()}
    types |= {columns.answer: pa.string()} if columns.answer else dict.fromkeys(columns.scores, pa.float64())
    with _opened(path, model) as file:
        for batch in _csv(file, types) if _is_csv(path) else _parquet(file, types, path, model):
            # By place: to find a column by its name looks at all before it.
            place = {name: at for at, name in enumerate(batch.schema.names)}
            whole = pa.RecordBatch.from_arrays(
                [batch.column(place[name]).cast(type) for name, type in types.items()], list(types)
            )
            whole.validate(full=True)  # text that is no UTF-8 is told here
            yield whole


def file_sha256(path: Path, model: str) -> str:
    """SHA-256 of the file."""
    with _opened(path, model) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(names: list[str], path: Path, model: str) -> PredictionColumns:
    expected = "key (or path or row), then label, or class_id, or a column of scores a class"
    repeated = [name for name, times in Counter(names).items() if times > 1]
    images, answers = [name for name in KEYS if name in names], [name for name in ANSWERS if name in names]
    others = [name for name in names if name not in (*KEYS, *ANSWERS)]
    shown = ", ".join(repr(name[:40]) for name in names[:8]) + (" …" if len(names) > 8 else "")
    if len(names) > MOST_COLUMNS:
        raise UserError(f"model {model!r}: {path} has {len(names):,} columns, expected at most {MOST_COLUMNS:,}")
    if repeated:
        raise UserError(f"model {model!r}: {path} has the column {repeated[0][:40]!r} more than once")
    if (len(images) != 1 and images != ["key", PATH]) or len(answers) > 1 or bool(answers) == bool(others):
        raise UserError(
            f"model {model!r}: {path} has the columns {shown}; expected {expected}, and no others",
            "Where scores stand beside a label, leave the label out: it may be the truth.",
        )
    odd = [name for name in others if name.casefold() in _NO_SCORES]
    if odd:
        raise UserError(
            f"model {model!r}: {path} has the column {odd[0][:40]!r} among its scores, which is no class",
            "Leave it out; of a pandas table, by index=False.",
        )
    return PredictionColumns(images[0], answers[0] if answers else None, tuple(others))


def _names(file: BufferedReader, path: Path) -> list[str]:
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    if not _is_csv(path):
        return list(pq.ParquetFile(file).schema_arrow.names)
    header = file.readline(_MOST_HEADER_BYTES)
    return list(pc.read_csv(io.BytesIO(header if header.endswith(b"\n") else header + b"\n")).column_names)


def _csv(file: BufferedReader, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as pc

    reader = pc.open_csv(
        file,
        read_options=pc.ReadOptions(block_size=_MOST_HEADER_BYTES),
        convert_options=pc.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""]),
    )
    for batch in reader:
        for start in range(0, batch.num_rows, _MOST_ROWS_A_BATCH):
            yield batch.slice(start, _MOST_ROWS_A_BATCH)


def _parquet(file: BufferedReader, types: dict[str, pa.DataType], path: Path, model: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name, type in types.items() if type == pa.string()]
    # A text that stands in many rows is held once, and looked at before it is written out for each.
    table = pq.ParquetFile(file, read_dictionary=texts)
    kinds = dict(zip(table.schema_arrow.names, table.schema_arrow.types, strict=True))
    for name, type in types.items():
        found = kinds[name]
        numeric = pa.types.is_integer(found) or (pa.types.is_floating(found) and type != pa.int64())
        text = pa.types.is_string(found) or pa.types.is_large_string(found) or _is_coded_text(found)
        if not (text if type == pa.string() else numeric):
            wanted = "text" if type == pa.string() else "whole numbers" if type == pa.int64() else "numbers"
            raise UserError(f"model {model!r}: {path}: column {name[:40]!r} is {found}, expected {wanted}")
    for group in range(table.metadata.num_row_groups):
        for place in range(table.metadata.num_columns):
            unfolded = table.metadata.row_group(group).column(place).total_uncompressed_size
            if unfolded > _MOST_UNFOLDED:
                raise UserError(f"model {model!r}: {path} unfolds to {unfolded:,} bytes a column, which is not read")
    rows = max(1, min(_MOST_ROWS_A_BATCH, _BATCH_BYTES // (8 * len(types))))
    for batch in table.iter_batches(batch_size=rows, columns=list(types)):
        for name in texts:
            if (longest := longest_text(batch.column(name))) > _LONGEST_TEXT:
                raise UserError(
                    f"model {model!r}: {path}: column {name!r} has a text of {longest:,} letters, expected at most"
                    f" {_LONGEST_TEXT:,}"
                )
        yield batch


def longest_text(column: Any) -> int:
    """The bytes of the longest text of a column, which may hold each text once."""
    import pyarrow as pa
    import pyarrow.compute

    functions: Any = pyarrow.compute
    kept = column.dictionary if pa.types.is_dictionary(column.type) else column
    return functions.max(functions.binary_length(kept)).as_py() or 0


def _is_coded_text(type: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_dictionary(type) and pa.types.is_string(type.value_type)


def _is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


@contextmanager
def _opened(path: Path, model: str) -> Iterator[BufferedReader]:
    """The file, open; what it is not, and what its reader raises, is told in words."""
    import pyarrow as pa

    if path.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"model {model!r}: {path} is no file of predictions: expected .parquet or .csv")
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
            yield file
    except FileNotFoundError as error:
        raise UserError(f"model {model!r}: there is no file {path}", "Correct the path.") from error
    except UnfitFile as error:
        raise UserError(f"model {model!r}: {path} {error.strerror}") from error
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UserError(f"model {model!r}: {path} cannot be read: {one_line(error)}") from error
    except OSError as error:
        raise RunFailure(f"model {model!r}: {path} cannot be read: {error.strerror or error}") from error
