"""Rows as CSV: of a pool by shift and class, chosen, or retrieved with ranks and scores; to be edited, by class."""

from __future__ import annotations

import csv
import io
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from counterfoil.errors import UserError

# Two million rows and more; what a stranger's file may take.
MOST_BYTES = 64_000_000

_HEADER = ["shift", "class_id", "row"]
_RETRIEVED = [*_HEADER, "rank", "score"]
_EDITED = ["class_id", "row", "caption"]
_MOST_PROBLEMS = 20
_MOST_LINES = 3_000_000
# Of a caption, in characters, so that a stranger's table is bounded. Models may read less: rows with whose caption a
# prompt would be cut are not chosen (building/chosen_rows.py).
LONGEST_CAPTION = 1000

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


@dataclass(frozen=True, slots=True)
class EditedRow:
    """A row of the input dataset that is edited, and its caption, where prompts ask for one."""

    row: int
    caption: str | None = None


EditedRows = Mapping[str, Sequence[EditedRow]]


def read_rows_table(content: bytes, place: str) -> dict[str, dict[str, list[int]]]:
    """Shift → class id → rows, in the file's order. UserError, with the lines, for what is no such table."""
    return _read(content, place, _HEADER, lambda cells: _number(cells[0]))


def read_retrieved_table(content: bytes, place: str) -> dict[str, dict[str, list[RetrievedRow]]]:
    """Shift → class id → retrieved rows, in the file's order. UserError, with the lines, for what is no such table."""
    return _read(content, place, _RETRIEVED, _retrieved)


def read_edited_table(content: bytes, place: str) -> dict[str, list[EditedRow]]:
    """Class id → rows by index, in the file's order. UserError, with the lines, for what is no such table."""
    rows: dict[str, list[EditedRow]] = {}
    for class_id, found in _lines(content, place, _EDITED, 1, _edited):
        rows.setdefault(class_id[0], []).append(found)
    return rows


def caption_problem(text: str) -> str | None:
    """What keeps a text from being a caption in a table of rows, or None."""
    if len(text) > LONGEST_CAPTION:
        return f"a caption of {len(text):,} characters, expected at most {LONGEST_CAPTION:,}"
    if not text.isprintable() or text != text.strip():
        return f"the caption {text[:80]!r}, expected one line without control characters"
    return None


def rows_csv(rows: ChosenRows) -> bytes:
    """The table as a file that `read_rows_table` reads back."""
    return _written(rows, _HEADER, lambda row: (row,))


def retrieved_csv(rows: RetrievedRows) -> bytes:
    """The table as a file that `read_retrieved_table` reads back: nine digits tell any two scores apart."""
    return _written(rows, _RETRIEVED, lambda one: (one.row, one.rank, f"{one.score:.9g}"))


def edited_csv(rows: EditedRows) -> bytes:
    """The table as a file that `read_edited_table` reads back."""
    lines = ((class_id, one.row, one.caption or "") for class_id, own in rows.items() for one in own)
    return _text(_EDITED, lines)


def _edited(cells: Sequence[str]) -> EditedRow | None:
    row = _number(cells[0])
    return None if row is None or caption_problem(cells[1]) is not None else EditedRow(row, cells[1] or None)


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
    rows: dict[str, dict[str, list[Value]]] = {}
    for (shift, class_id), found in _lines(content, place, header, 2, value):
        rows.setdefault(shift, {}).setdefault(class_id, []).append(found)
    return rows


def _lines(
    content: bytes, place: str, header: Sequence[str], named: int, value: Callable[[Sequence[str]], Value | None]
) -> list[tuple[tuple[str, ...], Value]]:
    """The first `named` cells of each line, and what the others hold."""
    rows: list[tuple[tuple[str, ...], Value]] = []
    problems: list[str] = []
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        first = next(lines, [])
        if first != list(header):
            raise UserError(f"{place}: the first line is {','.join(first)[:80]!r}, expected {','.join(header)!r}")
        for number, line in enumerate(lines, start=2):
            if number > _MOST_LINES:
                raise UserError(f"{place}: more than {_MOST_LINES:,} lines")
            found = value(line[named:]) if len(line) == len(header) else None
            if found is None:
                problems.append(f"{place}, line {number}: found {','.join(line)[:80]!r}, expected {','.join(header)}")
            else:
                rows.append((tuple(line[:named]), found))
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
    lines = (
        (shift, class_id, *cells(one)) for shift, own in rows.items() for class_id, of in own.items() for one in of
    )
    return _text(header, lines)


def _text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()
