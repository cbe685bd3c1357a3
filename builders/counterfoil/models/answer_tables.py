"""Read tables that other programs wrote: CSV, Parquet, and JSON with a mapping on each line or in a
list.

Only the columns asked for are read, in batches of bounded size, and sizes are checked before
anything is decoded. What spreadsheets and pandas do to a CSV is undone: other delimiters, UTF-16, a
decimal comma, spaces after delimiters.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from counterfoil.documents import parse_json
from counterfoil.foreign_tables import (
    MOST_COLUMNS,
    NUMBER,
    TEXT,
    TRUTH,
    WHOLE,
    parquet_types,
    read_foreign_parquet,
)
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, refusal
from counterfoil.regular_files import UnfitFile, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

# The size of the scores of 1,000 classes for 250,000 images as float32.
MOST_BYTES = 1 << 30
# A JSON document is in memory as a whole, in Python's objects.
_MOST_JSON_BYTES = 1 << 27
_MOST_HEADER_BYTES = 1 << 24
# The most bytes of the values in one batch.
_BATCH_BYTES = 1 << 26
_MOST_ROWS_A_BATCH = 8_192
_MOST_ROWS = 1 << 26
_LOOKED_AT = 100  # rows
_CSV = (".csv", ".tsv")
_PARQUET = (".parquet",)
_JSON = (".json",)
_LINES = (".jsonl", ".ndjson")

# What a column is asked for as. Whole numbers are also read as text, and any value but a list is
# read as text if it may be anything.
ColumnKind = Literal["text", "whole numbers", "numbers", "any"]
# pandas saves names that are numbers as numbers.
_READ_AS: Mapping[ColumnKind, tuple[str, ...]] = {
    "text": (TEXT, WHOLE, NUMBER),
    "whole numbers": (WHOLE,),
    "numbers": (NUMBER,),
    "any": (TEXT, TRUTH, WHOLE, NUMBER),
}


@dataclass(frozen=True)
class AnswerTable:
    """A table, opened once to see its columns."""

    path: Path
    columns: tuple[str, ...]
    numeric: frozenset[str]
    """The columns whose first values are numbers."""
    who: str
    """What begins every message: "model 'x'"."""

    def batches(self, kinds: Mapping[str, ColumnKind]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of rows, as text, int64 or float64; an empty cell is null.

        Raise UserError for values of another kind, RunFailure if the file cannot be read.
        """
        import pyarrow as pa

        arrow: dict[ColumnKind, pa.DataType] = {
            "text": pa.string(),
            "whole numbers": pa.int64(),
            "numbers": pa.float64(),
            "any": pa.string(),
        }
        types = {name: arrow[kind] for name, kind in kinds.items()}
        with _opened(self.path, self.who) as file:
            ending = self.path.suffix.lower()
            if ending in _CSV:
                read = _csv(file, types)
            elif ending in _PARQUET:
                wanted = {name: _READ_AS[kind] for name, kind in kinds.items()}
                read = read_foreign_parquet(file, wanted, most_rows=_MOST_ROWS)
            else:
                truths = {name for name, kind in kinds.items() if kind == "any"}
                read = _json(file, types, ending, truths)
            for batch in read:
                # Columns are taken by index, because pyarrow searches all names for a column's
                # name.
                index = {name: number for number, name in enumerate(batch.schema.names)}
                columns = [batch.column(index[name]).cast(type) for name, type in types.items()]
                typed = pa.RecordBatch.from_arrays(columns, list(types))
                typed.validate(full=True)  # refuses text that is not UTF-8
                yield typed


def open_table(path: Path, who: str, keys: Sequence[str]) -> AnswerTable:
    """Read the columns of a table that has one of the columns `keys`. who: begins every message
    ("model 'x'")."""
    with _opened(path, who) as file:
        ending = path.suffix.lower()
        if ending in _PARQUET:
            types = parquet_types(file)
            # A column without a value may be read as anything, also as text.
            numeric = {
                name for name, read_as in types.items() if NUMBER in read_as and TEXT not in read_as
            }
            columns = list(types)
        elif ending in _CSV:
            form = csv_form(file, keys)
            columns = form.columns
            numeric = set()
            for index, name in enumerate(columns):
                cells = [row[index] for row in form.rows if index < len(row)]
                if _are_numbers(cells, form.decimal):
                    numeric.add(name)
        else:
            records = [*islice(_records(file, ending), _LOOKED_AT)]
            columns = [*dict.fromkeys(name for record in records for name in record)]
            numeric = set()
            for name in columns:
                if all(_is_number(record.get(name)) for record in records):
                    numeric.add(name)
    if len(columns) > MOST_COLUMNS:
        where = f"{who}: {path}"
        raise refusal("invalid-predictions.columns", where, len(columns), MOST_COLUMNS)
    return AnswerTable(path, tuple(columns), frozenset(numeric), who)


def _are_numbers(cells: Sequence[str], decimal: str) -> bool:
    filled = [cell.strip().replace(decimal, ".") for cell in cells if cell.strip()]
    return bool(filled) and all(map(_NUMBER.fullmatch, filled))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)


@dataclass(frozen=True)
class CsvForm:
    """How a CSV is written."""

    columns: list[str]
    encoding: str
    delimiter: str
    decimal: str
    spaced: bool
    """Whether a space follows every delimiter."""
    rows: Sequence[Sequence[str]] = ()
    """The first rows."""


_DELIMITERS = (",", ";", "\t")
_FRACTION = r"\s*[+-]?\d*{}\d+(e[+-]?\d+)?\s*"
_WITH_COMMA = re.compile(_FRACTION.format(","), re.IGNORECASE)
_WITH_POINT = re.compile(_FRACTION.format(r"\."), re.IGNORECASE)


def csv_form(file: IO[bytes], keys: Sequence[str]) -> CsvForm:
    """Read the format of a CSV file that has one of the columns `keys`, and go back to its
    beginning.

    Raise ValueError if it is not CSV.
    """
    head = file.read(_MOST_HEADER_BYTES)
    file.seek(0)
    encoding = "utf-8-sig"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        raise ValueError(
            "it is neither UTF-8 nor UTF-16 text with its mark; save it as CSV in UTF-8"
        )
    parsed = {}
    for mark in _DELIMITERS:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        parsed[mark] = list(islice(lines, _LOOKED_AT))
    if not parsed[","]:
        raise ValueError("it is empty")
    delimiter = next((mark for mark in _DELIMITERS if columns_called(keys, parsed[mark][0])), ",")
    header, *rows = parsed[delimiter]
    if not rows and len(head) == _MOST_HEADER_BYTES:
        raise ValueError(f"its header has more than {_MOST_HEADER_BYTES:,} bytes")
    decimal = "."
    if delimiter != ",":
        cells = [cell for row in rows for cell in row]
        with_comma = any(map(_WITH_COMMA.fullmatch, cells))
        if with_comma and not any(map(_WITH_POINT.fullmatch, cells)):
            decimal = ","
    spaced = len(header) > 1 and all(cell.startswith(" ") for cell in header[1:])
    if spaced:
        lines = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True
        )
        header, *rows = islice(lines, _LOOKED_AT)
    return CsvForm(header, encoding.removesuffix("-sig"), delimiter, decimal, spaced, rows)


def _csv(file: BufferedReader, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv as pc

    form = csv_form(file, [*types])
    if form.spaced:
        yield from _spaced_csv(file, form, types)
        return
    # Columns that are not read may have equal names or no names.
    names = list(form.columns)
    for number, name in enumerate(form.columns):
        if name not in types:
            names[number] = f"\0{number}"
    try:
        reader = pc.open_csv(
            file,
            read_options=pc.ReadOptions(
                block_size=_MOST_HEADER_BYTES,
                encoding=form.encoding,
                column_names=names,
                skip_rows_after_names=1,
            ),
            parse_options=pc.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                strings_can_be_null=True,
                null_values=[""],
                decimal_point=form.decimal,
            ),
        )
        for batch in reader:
            for start in range(0, batch.num_rows, _MOST_ROWS_A_BATCH):
                yield batch.slice(start, _MOST_ROWS_A_BATCH)
    except pa.ArrowInvalid as error:

        def column(match: re.Match[str]) -> str:
            return f"column {form.columns[int(match[1])][:40]!r}"

        message = re.sub(r"CSV column #(\d+)", column, str(error))
        if "conversion error to double" in message:
            message += "; each column but that of the image must have the scores of one class"
        raise ValueError(message) from error


def _spaced_csv(
    file: BufferedReader, form: CsvForm, types: dict[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    """Read a CSV with spaces after its delimiters. pyarrow would read these spaces as parts of
    texts."""
    import pyarrow as pa

    text = io.TextIOWrapper(file, form.encoding, newline="")
    reader = csv.reader(text, delimiter=form.delimiter, skipinitialspace=True)
    next(reader)
    index = {name: number for number, name in enumerate(form.columns)}
    filled = filter(None, reader)  # blank lines are no rows
    while rows := [*islice(filled, _rows_a_batch(len(form.columns)))]:
        for row in rows:
            if len(row) != len(form.columns):
                raise ValueError(
                    f"expected {len(form.columns)} columns, got {len(row)}, in a row before"
                    f" {reader.line_num}"
                )
        arrays = []
        for name, type in types.items():
            cells = [row[index[name]].strip() for row in rows]
            if type == pa.float64():
                cells = [cell.replace(form.decimal, ".") for cell in cells]
            arrays.append(pa.array([cell or None for cell in cells], pa.string()))
        yield pa.RecordBatch.from_arrays(arrays, list(types))


def _rows_a_batch(columns: int) -> int:
    return max(1, min(_MOST_ROWS_A_BATCH, _BATCH_BYTES // (8 * columns)))


def columns_called(wanted: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Map the wanted columns that exist to their names in the file. Case is ignored if no name is
    exact."""
    exact = {name: name for name in wanted if name in names}
    if exact:
        return exact
    by_folded = {name.strip().casefold(): name for name in names}
    return {folded: name for folded, name in by_folded.items() if folded in wanted}


def _json(
    file: BufferedReader,
    types: Mapping[str, pa.DataType],
    ending: str,
    truths: Container[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Read columns of JSON. truths: those that may hold true and false, which are read as text."""
    import pyarrow as pa

    records = _records(file, ending)
    while rows := [*islice(records, _rows_a_batch(len(types)))]:
        arrays = []
        for name, type in types.items():
            values = []
            for row in rows:
                value = row.get(name)
                is_truth = isinstance(value, bool) and name in truths
                if not (_is_number(value) or isinstance(value, str) or is_truth):
                    raise ValueError(
                        f"column {name[:40]!r} has {str(value)[:40]!r}, expected a text or a number"
                    )
                if type == pa.string() and value is not None:
                    value = str(value) or None
                values.append(value)
            arrays.append(pa.array(values, type))
        yield pa.RecordBatch.from_arrays(arrays, list(types))


def _records(file: BufferedReader, ending: str) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings of a JSON list, or of a file with one on each line."""
    if ending in _LINES:
        lines = iter(lambda: file.readline(_MOST_HEADER_BYTES), b"")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _record(parse_json(line), f"line {number:,}")
        return
    content = file.read(_MOST_JSON_BYTES + 1)
    if len(content) > _MOST_JSON_BYTES:
        raise ValueError(
            f"it is JSON of more than {_MOST_JSON_BYTES:,} bytes; write CSV or Parquet"
        )
    document = parse_json(content)
    if not isinstance(document, list):
        raise ValueError("it is JSON without a list; write a list with a mapping for each image")
    for number, record in enumerate(document):
        yield _record(record, f"entry {number:,}")


def _record(record: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(record, dict):
        raise ValueError(f"{where} is no mapping of columns to values")
    return record


@contextmanager
def _opened(path: Path, who: str) -> Iterator[BufferedReader]:
    """Open a table. Raise UserError or RunFailure for any error in opening or reading it."""
    import pyarrow as pa

    where = f"{who}: {path}"
    if path.suffix.lower() not in (*_CSV, *_PARQUET, *_JSON, *_LINES):
        raise refusal("invalid-predictions.ending", where)
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
            yield file
    except FileNotFoundError as error:
        raise refusal("missing-model-file.named", who, path) from error
    except UnfitFile as error:
        raise refusal("unreadable-model.file", where, error) from error
    except (
        pa.ArrowException,
        csv.Error,
        json.JSONDecodeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise refusal("invalid-predictions.read", where, error_line(error)) from error
    except OSError as error:
        raise failure("unreadable-model.read", where, error) from error
