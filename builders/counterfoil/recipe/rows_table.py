"""Rows as CSV: of a pool by shift and class, chosen, or retrieved with ranks and scores; to be edited, by class; or of
images drawn elsewhere, with what is known of each."""

from __future__ import annotations

import csv
import io
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from counterfoil.errors import UserError

# Two million rows and more; what a stranger's file may take.
MOST_BYTES = 64_000_000

_HEADER = ["shift", "class_id", "row"]
_RETRIEVED = [*_HEADER, "rank", "score"]
_EDITED = ["class_id", "row", "caption"]
_GIVEN = [*_HEADER, "index", "seed", "prompt"]
_MOST_PROBLEMS = 20
MOST_LINES = 3_000_000
# Of a caption, in characters, so that a stranger's table is bounded. Models may read less: rows with whose caption a
# prompt would be cut are not chosen (generate/kinds/edit.py).
LONGEST_CAPTION = 1000
# Of a prompt of images drawn elsewhere: workflows write long ones.
LONGEST_PROMPT = 10_000
# Seeds are stored in 64 bits with a sign. What has none is told by one that no seed is.
MOST_SEED, NO_SEED = 2**63 - 1, -1

ChosenRows = Mapping[str, Mapping[str, Sequence[int]]]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A row that a build chose: of a pool, or of the split that is edited.

    rank: its place in the order of the whole pool by nearness to its prompt (1 is the nearest), and score: its cosine
    with the prompt, as a float32 holds it; both where it was retrieved. caption: of a row that is edited, where prompts
    ask for one. index, seed, prompt: of an image that was drawn elsewhere; no seed and an empty prompt where unknown.
    """

    row: int
    rank: int | None = None
    score: float | None = None
    caption: str | None = None
    index: int | None = None
    seed: int | None = None
    prompt: str = ""


# What a lock's inputs call a table of rows that a build chose.
ChosenKind = Literal["retrieved", "edited", "given"]
# (shift, class id) → rows by index; the shift is None where a class has the same rows under every shift.
RowsByCell = Mapping[tuple[str | None, str], Sequence[PoolRow]]


def read_rows_table(content: bytes, place: str) -> dict[str, dict[str, list[int]]]:
    """Read shift → class id → rows, in the file's order. UserError with the lines of an invalid table."""
    rows: dict[str, dict[str, list[int]]] = {}
    for (shift, class_id), row in _lines(content, place, _HEADER, 2, lambda cells: _number(cells[0])):
        rows.setdefault(shift, {}).setdefault(class_id, []).append(row)
    return rows


def read_chosen_rows(content: bytes, place: str, kind: ChosenKind) -> dict[tuple[str | None, str], list[PoolRow]]:
    """Return the chosen rows by cell, in the file's order. UserError, with the lines, for what is no such table."""
    header, value = {"retrieved": (_RETRIEVED, _retrieved), "edited": (_EDITED, _edited), "given": (_GIVEN, _given)}[
        kind
    ]
    rows: dict[tuple[str | None, str], list[PoolRow]] = {}
    for names, row in _lines(content, place, header, header.index("row"), value):
        shift = None if kind == "edited" else names[0]
        rows.setdefault((shift, names[-1]), []).append(row)
    return rows


def caption_problem(text: str) -> str | None:
    """Return a problem with a caption for a table of rows, or None."""
    if len(text) > LONGEST_CAPTION:
        return f"a caption of {len(text):,} characters, expected at most {LONGEST_CAPTION:,}"
    if not text.isprintable() or text != text.strip():
        return f"the caption {text[:80]!r}, expected one line without control characters"
    return None


def rows_csv(rows: ChosenRows) -> bytes:
    """Write the table as `read_rows_table` reads it."""
    return _text(_HEADER, ((shift, cls, row) for shift, own in rows.items() for cls, of in own.items() for row in of))


def chosen_rows_csv(rows: RowsByCell, kind: ChosenKind) -> bytes:
    """Write the table as `read_chosen_rows` reads it: nine digits keep scores distinct."""
    every = [(shift, class_id, one) for (shift, class_id), own in rows.items() for one in own]
    if kind == "retrieved":
        return _text(_RETRIEVED, ((shift, cls, one.row, one.rank, f"{one.score:.9g}") for shift, cls, one in every))
    if kind == "given":
        cells = ((*cell, one.row, one.index, "" if one.seed is None else one.seed, one.prompt) for *cell, one in every)
        return _text(_GIVEN, cells)
    return _text(_EDITED, ((class_id, one.row, one.caption or "") for _, class_id, one in every))


def _edited(cells: Sequence[str]) -> PoolRow | None:
    row = _number(cells[0])
    return None if row is None or caption_problem(cells[1]) is not None else PoolRow(row, caption=cells[1] or None)


def _retrieved(cells: Sequence[str]) -> PoolRow | None:
    row, rank = _number(cells[0]), _number(cells[1])
    try:
        (score,) = struct.unpack("f", struct.pack("f", float(cells[2])))
    except (ValueError, OverflowError):
        return None
    return PoolRow(row, rank, score) if row is not None and rank and math.isfinite(score) else None


def _given(cells: Sequence[str]) -> PoolRow | None:
    row, index, seed = _number(cells[0]), _number(cells[1]), _number(cells[2], MOST_SEED)
    sound = row is not None and index is not None and index < MOST_LINES and (seed is not None or not cells[2])
    sound = sound and one_line(cells[3]) == cells[3] and len(cells[3]) <= LONGEST_PROMPT
    return PoolRow(row, index=index, seed=seed, prompt=cells[3]) if sound and row is not None else None


def one_line(text: str) -> str:
    """Replace control characters and line ends, and collapse spaces."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _number(text: str, most: int = 10**15 - 1) -> int | None:
    sound = text.isascii() and text.isdecimal() and len(text) < 20
    return int(text) if sound and int(text) <= most else None


def _lines(
    content: bytes, place: str, header: Sequence[str], named: int, value: Callable[[Sequence[str]], Value | None]
) -> list[tuple[tuple[str, ...], Value]]:
    """Return the first `named` cells and the parsed others of each line."""
    rows: list[tuple[tuple[str, ...], Value]] = []
    problems: list[str] = []
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        first = next(lines, [])
        if first != list(header):
            raise UserError(f"{place}: the first line is {','.join(first)[:80]!r}, expected {','.join(header)!r}")
        for number, line in enumerate(lines, start=2):
            if number > MOST_LINES:
                raise UserError(f"{place}: more than {MOST_LINES:,} lines")
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


def _text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()
