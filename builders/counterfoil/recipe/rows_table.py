"""Rows of a pool by shift and class, as CSV: chosen ones, and retrieved ones with their ranks and scores."""

from __future__ import annotations

import csv
import io
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from counterfoil.errors import UserError

# Two million rows and more; what a stranger's file may take.
MOST_BYTES = 64_000_000

_HEADER = ["shift", "class_id", "row"]
_RETRIEVED = [*_HEADER, "rank", "score"]
_MOST_PROBLEMS = 20

ChosenRows = Mapping[str, Mapping[str, Sequence[int]]]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class RetrievedRow:
    """A row of a pool, its place in the order of the whole pool by nearness to its prompt (1 is the nearest), and its
    cosine with the prompt, as a float32 holds it."""

    row: int
    rank: int
    score: float


RetrievedRows = Mapping[str, Mapping[str, Sequence[RetrievedRow]]]


def read_rows_table(content: bytes, place: str) -> dict[str, dict[str, list[int]]]:
    """Shift → class id → rows, in the file's order. UserError, with the lines, for what is no such table."""
    return _read(content, place, _HEADER, lambda cells: _number(cells[0]))


def read_retrieved_table(content: bytes, place: str) -> dict[str, dict[str, list[RetrievedRow]]]:
    """Shift → class id → retrieved rows, in the file's order. UserError, with the lines, for what is no such table."""
    return _read(content, place, _RETRIEVED, _retrieved)


def rows_csv(rows: ChosenRows) -> bytes:
    """The table as a file that `read_rows_table` reads back."""
    return _written(rows, _HEADER, lambda row: (row,))


def retrieved_csv(rows: RetrievedRows) -> bytes:
    """The table as a file that `read_retrieved_table` reads back: nine digits tell any two scores apart."""
    return _written(rows, _RETRIEVED, lambda one: (one.row, one.rank, f"{one.score:.9g}"))


def _retrieved(cells: Sequence[str]) -> RetrievedRow | None:
    row, rank = _number(cells[0]), _number(cells[1])
    try:
        (score,) = struct.unpack("f", struct.pack("f", float(cells[2])))
    except (ValueError, OverflowError):
        return None
    return RetrievedRow(row, rank, score) if row is not None and rank and math.isfinite(score) else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _read(
    content: bytes, place: str, header: Sequence[str], value: Callable[[Sequence[str]], Value | None]
) -> dict[str, dict[str, list[Value]]]:
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        first = next(lines, [])
        if first != list(header):
            raise UserError(f"{place}: the first line is {','.join(first)[:80]!r}, expected {','.join(header)!r}")
        rows: dict[str, dict[str, list[Value]]] = {}
        problems: list[str] = []
        for number, line in enumerate(lines, start=2):
            found = value(line[2:]) if len(line) == len(header) else None
            if found is None:
                problems.append(f"{place}, line {number}: found {','.join(line)[:80]!r}, expected {','.join(header)}")
            else:
                rows.setdefault(line[0], {}).setdefault(line[1], []).append(found)
            if len(problems) == _MOST_PROBLEMS:
                break
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise UserError(f"{place}: not CSV: {error}") from error
    if problems:
        raise UserError(problems)
    return rows


def _written(
    rows: Mapping[str, Mapping[str, Sequence[Value]]],
    header: Sequence[str],
    cells: Callable[[Value], tuple[object, ...]],
) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for shift, classes in rows.items():
        for class_id, own in classes.items():
            writer.writerows((shift, class_id, *cells(one)) for one in own)
    return text.getvalue().encode()
