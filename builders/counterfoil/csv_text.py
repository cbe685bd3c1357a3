"""Tables as CSV that a spreadsheet opens as data, whatever a stranger's model, class, caption or group is called.

A text that begins with one of `= + - @`, a tab or a line break would be a formula there: it gets a `'` before it, which
spreadsheets do not show. Numbers, also negative ones, stand as they are. Whoever reads such a table by program takes
the `'` off again where one of these characters follows it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\n")


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """A header and a line a row; None is an empty cell. Without `columns` those of the first row; no row, no text."""
    rows = list(rows)
    if columns is None and not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if columns is None else columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: as_cell(value) for column, value in row.items()} for row in rows)
    return file.getvalue()


def as_cell(value: Any) -> Any:
    """A value as it stands in such a table."""
    if not isinstance(value, str):
        return value
    # Before Python 3.13 the writer leaves a lone carriage return bare, which readers take for the end of a line.
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    if not value.startswith(_BEGIN_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
