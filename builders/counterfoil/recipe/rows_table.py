"""Read and write tables of rows as CSV: rows that a recipe lists, retrieved or edited rows, images
drawn elsewhere."""

from __future__ import annotations

import csv
import io
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from counterfoil.errors import UserError

# The largest file that is read: more than two million rows.
MOST_BYTES = 64_000_000

_HEADER = ["shift", "class_id", "row"]
_RETRIEVED = [*_HEADER, "rank", "score"]
_EDITED = ["class_id", "row", "caption"]
_GIVEN = [*_HEADER, "index", "seed", "prompt"]
_MOST_PROBLEMS = 20
MOST_LINES = 3_000_000
LONGEST_CAPTION = 1000  # in characters; models may read fewer characters (generate/kinds/edit.py)
LONGEST_PROMPT = 10_000  # of an image drawn elsewhere, in characters
# Seeds are stored as signed 64-bit integers; -1 means no seed.
MOST_SEED = 2**63 - 1
NO_SEED = -1

ChosenRows = Mapping[str, Mapping[str, Sequence[int]]]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A row that a build chose from a pool or from the split that is edited.

    rank, score: for a retrieved row, its rank by nearness to its prompt in the whole pool, from 1,
    and its cosine with the prompt, float32. caption: for an edited row, its caption if prompts need
    one. index, seed, prompt: for an image drawn elsewhere, the values that are known.
    """

    row: int
    rank: int | None = None
    score: float | None = None
    caption: str | None = None
    index: int | None = None
    seed: int | None = None
    prompt: str = ""


# Keys of tables of chosen rows in a lock's inputs.
ChosenKind = Literal["retrieved", "edited", "given"]
# (shift, class id) → rows by index. The shift is None if a class has the same rows under every
# shift.
RowsByCell = Mapping[tuple[str | None, str], Sequence[PoolRow]]


def read_rows_table(content: bytes, source: str) -> dict[str, dict[str, list[int]]]:
    """Read shift → class id → rows, in the file's order. Raise UserError with every invalid
    line."""
    rows: dict[str, dict[str, list[int]]] = {}
    lines = _lines(
        content,
        source,
        _HEADER,
        2,
        lambda cells: _number(cells[0]),
    )
    for (shift, class_id), row in lines:
        of_shift = rows.setdefault(shift, {})
        of_shift.setdefault(class_id, []).append(row)
    return rows


def read_chosen_rows(
    content: bytes,
    source: str,
    kind: ChosenKind,
) -> dict[tuple[str | None, str], list[PoolRow]]:
    """Return the chosen rows by cell, in the file's order. Raise UserError with every invalid
    line."""
    header, value = _FORMS[kind]
    rows: dict[tuple[str | None, str], list[PoolRow]] = {}
    for names, row in _lines(
        content,
        source,
        header,
        header.index("row"),
        value,
    ):
        shift = None if kind == "edited" else names[0]
        rows.setdefault((shift, names[-1]), []).append(row)
    return rows


def rows_csv(rows: ChosenRows) -> bytes:
    """Write the table in the form that `read_rows_table` reads."""
    lines = []
    for shift, by_class in rows.items():
        for class_id, numbers in by_class.items():
            lines += [(shift, class_id, row) for row in numbers]
    return _text(_HEADER, lines)


def chosen_rows_csv(rows: RowsByCell, kind: ChosenKind) -> bytes:
    """Write the table in the form that `read_chosen_rows` reads. Scores have nine digits, so
    float32 numbers stay distinct.
    """
    lines: list[tuple[object, ...]] = []
    for (shift, class_id), cell_rows in rows.items():
        for row in cell_rows:
            if kind == "retrieved":
                lines.append((shift, class_id, row.row, row.rank, f"{row.score:.9g}"))
            elif kind == "given":
                seed = "" if row.seed is None else row.seed
                lines.append((shift, class_id, row.row, row.index, seed, row.prompt))
            else:
                lines.append((class_id, row.row, row.caption or ""))
    header, _ = _FORMS[kind]
    return _text(header, lines)


def _edited(cells: Sequence[str]) -> PoolRow | None:
    row = _number(cells[0])
    caption = cells[1]
    sound = len(caption) <= LONGEST_CAPTION and caption.isprintable() and caption == caption.strip()
    if row is None or not sound:
        return None
    return PoolRow(row, caption=caption or None)


def _retrieved(cells: Sequence[str]) -> PoolRow | None:
    row = _number(cells[0])
    rank = _number(cells[1])
    try:
        (score,) = struct.unpack("f", struct.pack("f", float(cells[2])))
    except (ValueError, OverflowError):
        return None
    if row is None or not rank or not math.isfinite(score):
        return None
    return PoolRow(row, rank, score)


def _given(cells: Sequence[str]) -> PoolRow | None:
    row = _number(cells[0])
    index = _number(cells[1])
    seed = _number(cells[2], MOST_SEED)
    prompt = cells[3]
    if row is None or index is None or index >= MOST_LINES:
        return None
    if seed is None and cells[2]:
        return None
    if one_line(prompt) != prompt or len(prompt) > LONGEST_PROMPT:
        return None
    return PoolRow(
        row,
        index=index,
        seed=seed,
        prompt=prompt,
    )


_FORMS: dict[ChosenKind, tuple[list[str], Callable[[Sequence[str]], PoolRow | None]]] = {
    "retrieved": (_RETRIEVED, _retrieved),
    "edited": (_EDITED, _edited),
    "given": (_GIVEN, _given),
}


def one_line(text: str) -> str:
    """Replace control characters and line ends, and collapse spaces."""
    letters = [letter if letter.isprintable() else " " for letter in text]
    return " ".join("".join(letters).split())


def _number(text: str, most: int = 10**15 - 1) -> int | None:
    if not text.isascii() or not text.isdecimal() or len(text) >= 20:
        return None
    number = int(text)
    return number if number <= most else None


def _lines(
    content: bytes,
    source: str,
    header: Sequence[str],
    named: int,
    value: Callable[[Sequence[str]], Value | None],
) -> list[tuple[tuple[str, ...], Value]]:
    """Return the first `named` cells of each line, and the parsed value of the other cells."""
    rows: list[tuple[tuple[str, ...], Value]] = []
    problems: list[str] = []
    expected = ",".join(header)
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = csv.reader(text, strict=True)
        first = next(lines, [])
        if first != list(header):
            shown = ",".join(first)[:80]
            raise UserError(f"{source}: the first line is {shown!r}, expected {expected!r}")
        for number, line in enumerate(lines, start=2):
            if number > MOST_LINES:
                raise UserError(f"{source}: more than {MOST_LINES:,} lines")
            parsed = value(line[named:]) if len(line) == len(header) else None
            if parsed is not None:
                rows.append((tuple(line[:named]), parsed))
                continue
            shown = ",".join(line)[:80]
            problems.append(f"{source}, line {number}: found {shown!r}, expected {expected}")
            if len(problems) == _MOST_PROBLEMS:
                break
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise UserError(f"{source}: not CSV: {error}") from error
    if problems:
        raise UserError(problems)
    return rows


def _text(header: Sequence[str], lines: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue().encode()
