"""Chosen rows of a pool, by shift and class: a mapping in the recipe, or a CSV file beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from counterfoil.errors import UserError

# Where a dataset directory keeps its own.
# Two million rows and more; what a stranger's file may take.
MOST_BYTES = 64_000_000

_HEADER = ["shift", "class_id", "row"]
_MOST_PROBLEMS = 20

ChosenRows = Mapping[str, Mapping[str, Sequence[int]]]


def read_rows_table(content: bytes, place: str) -> dict[str, dict[str, list[int]]]:
    """Shift → class id → rows, in the file's order. UserError, with the lines, for what is no such table."""
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = next(lines, [])
        if header != _HEADER:
            raise UserError(f"{place}: the first line is {','.join(header)[:80]!r}, expected {','.join(_HEADER)!r}")
        rows: dict[str, dict[str, list[int]]] = {}
        problems: list[str] = []
        for number, line in enumerate(lines, start=2):
            if len(line) != 3 or not (line[2].isascii() and line[2].isdecimal() and len(line[2]) < 16):
                problems.append(f"{place}, line {number}: found {','.join(line)[:80]!r}, expected shift,class_id,row")
            else:
                rows.setdefault(line[0], {}).setdefault(line[1], []).append(int(line[2]))
            if len(problems) == _MOST_PROBLEMS:
                break
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise UserError(f"{place}: not CSV: {error}") from error
    if problems:
        raise UserError(problems)
    return rows


def rows_csv(rows: ChosenRows) -> bytes:
    """The table as a file that `read_rows_table` reads back."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for shift, classes in rows.items():
        for class_id, own in classes.items():
            writer.writerows((shift, class_id, row) for row in own)
    return text.getvalue().encode()
