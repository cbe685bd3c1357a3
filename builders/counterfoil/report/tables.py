"""A table as every output prints it: the terminal, a page (`report-macros.html.j2`) and a card's Markdown alike.

Each section of results makes its own; a measure that no section tells has one of its own here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from counterfoil.report.words import NOTHING, between, number, percent, points
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from counterfoil.report.results import MeasureFacts, Results


@dataclass(frozen=True, slots=True)
class TableCell:
    """Text, what is said below it in small print, the value that a page sorts by, and a drop (or gain, below 0) whose
    heat tints it."""

    text: str
    below: str = ""
    sort: float | str = ""
    tint: float | None = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A heading. kind: how its cells are shown: a `name` that somebody gave, a shift's, plain words, or numbers.

    named: whether the heading itself is a name that somebody gave.
    """

    label: str
    kind: Literal["name", "shift", "text", "number"] = "number"
    note: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells, the first of which heads the row. style: `base` stays first however a page sorts, `quiet` is beside."""

    cells: tuple[TableCell, ...]
    style: Literal["", "base", "quiet"] = ""

    def of(self, table: Table) -> list[tuple[TableColumn, TableCell]]:
        """Each cell with the column that it stands in."""
        return list(zip(table.columns, self.cells, strict=True))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `more` says what was cut off, and where it stands."""

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    more: str = ""

    def first(self, most: int, what: str, where: str) -> Table:
        """The first so many rows, those beside always among them; the rest is named, `what` it is and `where`."""
        own = [row for row in self.rows if row.style != "quiet"]
        if len(own) <= most:
            return self
        beside = [row for row in self.rows if row.style == "quiet"]
        return replace(self, rows=(*own[:most], *beside), more=f"and {len(own) - most:,} more {what}, in {where}")


def text_cell(text: str) -> TableCell:
    """Words, sorted as they are."""
    return TableCell(text, sort=text)


def count_cell(count: int) -> TableCell:
    """A count with its thousands grouped."""
    return TableCell(f"{count:,}", sort=count)


def points_cell(value: Estimate | float | None, *, signed: bool = False, tint: bool = False) -> TableCell:
    """A fraction in percent or points without its unit, its interval below; a dash for None."""
    if value is None:
        return TableCell(NOTHING)
    estimate = value if isinstance(value, Estimate) else Estimate(value)
    heat = -estimate.value if tint else None
    return TableCell(points(estimate.value, signed=signed), between(estimate), estimate.value, heat)


def table_of(caption: str, columns: Sequence[TableColumn], rows: Sequence[TableRow]) -> Table:
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


def measure_tables(results: Results, place: Literal["terminal", "report", "card"]) -> list[tuple[MeasureFacts, Table]]:
    """The tables of the measures that are shown there and have numbers of models and groups, or of either."""
    short = {model.name: model.short_name for model in results.models}
    found = []
    for measure in results.measures:
        own = [one for one in results.rows.where(measure.name, class_id="", against="", at="") if one.value is not None]
        if place not in measure.shown or not own:
            continue
        models = list(dict.fromkeys(one.model for one in own))
        cells = {(one.model, one.group): _measured(measure, one.estimate) for one in own}
        rows = [
            TableRow((text_cell(group or "all"), *(cells.get((model, group), TableCell(NOTHING)) for model in models)))
            for group in dict.fromkeys(one.group for one in own)
        ]
        names = (TableColumn(short.get(model, model) or "all models", named=True) for model in models)
        found.append((measure, Table(measure.title, (TableColumn("group", "shift"), *names), tuple(rows))))
    return found


def _measured(measure: MeasureFacts, estimate: Estimate | None) -> TableCell:
    """The number in the measure's unit, and its interval."""
    if estimate is None:
        return TableCell(NOTHING)
    if measure.unit == "plain":
        ends = f"{number(estimate.low)} to {number(estimate.high)}" if estimate.low is not None else ""
        return TableCell(number(estimate.value), ends, estimate.value)
    told = f"{points(estimate.value)} points" if measure.unit == "points" else percent(estimate.value)
    return TableCell(told, between(estimate), estimate.value)
