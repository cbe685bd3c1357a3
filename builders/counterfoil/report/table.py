"""A table as every output prints it: the terminal, a page (`report-macros.html.j2`) and a card's Markdown alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from counterfoil.report.words import NOTHING, between, points
from counterfoil.stats import Estimate


@dataclass(frozen=True, slots=True)
class Cell:
    """Text, what is said below it in small print, the value that a page sorts by, and a drop (or gain, below 0) whose
    heat tints it."""

    text: str
    below: str = ""
    sort: float | str = ""
    tint: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. kind: how its cells are shown: a `name` that somebody gave, a shift's, plain words, or numbers.

    named: whether the heading itself is a name that somebody gave.
    """

    label: str
    kind: Literal["name", "shift", "text", "number"] = "number"
    note: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells, the first of which heads the row. style: `base` stays first however a page sorts, `quiet` is beside."""

    cells: tuple[Cell, ...]
    style: Literal["", "base", "quiet"] = ""

    def of(self, table: Table) -> list[tuple[Column, Cell]]:
        """Each cell with the column that it stands in."""
        return list(zip(table.columns, self.cells, strict=True))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `more` says what was cut off, and where it stands."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    more: str = ""

    def first(self, most: int, what: str, where: str) -> Table:
        """The first so many rows, those beside always among them; the rest is named, `what` it is and `where`."""
        own = [row for row in self.rows if row.style != "quiet"]
        if len(own) <= most:
            return self
        beside = [row for row in self.rows if row.style == "quiet"]
        return replace(self, rows=(*own[:most], *beside), more=f"and {len(own) - most:,} more {what}, in {where}")


def text_cell(text: str) -> Cell:
    """Words, sorted as they are."""
    return Cell(text, sort=text)


def count_cell(count: int) -> Cell:
    """A count with its thousands grouped."""
    return Cell(f"{count:,}", sort=count)


def points_cell(value: Estimate | float | None, *, signed: bool = False, tint: bool = False) -> Cell:
    """A fraction in percent or points without its unit, its interval below; a dash for None."""
    if value is None:
        return Cell(NOTHING)
    estimate = value if isinstance(value, Estimate) else Estimate(value)
    heat = -estimate.value if tint else None
    return Cell(points(estimate.value, signed=signed), between(estimate), estimate.value, heat)


def table_of(caption: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """A table without the columns that no row has anything in."""
    kept = [
        place
        for place, column in enumerate(columns)
        if column.kind != "number" or any(row.cells[place].text != NOTHING for row in rows)
    ]
    return Table(
        caption,
        tuple(columns[place] for place in kept),
        tuple(replace(row, cells=tuple(row.cells[place] for place in kept)) for row in rows),
    )
