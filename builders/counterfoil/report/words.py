"""Numbers, lists and tables as text: in percent, in points, with intervals, counted, listed.

The terminal, a page (`report-macros.html.j2`) and a card's Markdown print the same table object.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Literal

from counterfoil.errors import some_of
from counterfoil.regular_files import visible_text

if TYPE_CHECKING:
    from counterfoil.report.results import ResultRow, Results
    from counterfoil.report.sections import MeasureFacts
    from counterfoil.stats import Estimate

# `NOTHING` is printed instead of a number that could not be measured.
NOTHING = "–"
_MOST_NAMES = 6
_MOST_SHOWN = 12
# The most rows of a table in the terminal; the tables' files hold every row.
MOST_TERMINAL_ROWS = 40
_LONGEST_TEXT = 240
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_points(value: float | None, *, signed: bool = False, decimals: int = 1) -> str:
    """Return a fraction as percentage points; a dash for None. A value that rounds to zero has no
    sign."""
    return NOTHING if value is None else format_number(100 * value, decimals, signed=signed)


def format_percent(value: float | None, decimals: int = 1) -> str:
    """Return a fraction in percent; a dash for None."""
    return NOTHING if value is None else f"{format_points(value, decimals=decimals)} %"


def format_number(value: float | None, decimals: int = 2, *, signed: bool = False) -> str:
    """Return a number with so many decimals, thousands grouped and a true minus sign; a dash for
    None."""
    if value is None:
        return NOTHING
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def format_interval(estimate: Estimate | None, *, decimals: int = 1) -> str:
    """Return the interval of an estimate in points, as "low to high"; empty if there is no
    interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    low = format_points(estimate.low, decimals=decimals)
    return f"{low} to {format_points(estimate.high, decimals=decimals)}"


def format_range(bounded: Estimate | ResultRow, decimals: int = 2) -> str:
    """Return an interval in its own unit, as "low to high"; empty if there is no interval."""
    if bounded.low is None:
        return ""
    return f"{format_number(bounded.low, decimals)} to {format_number(bounded.high, decimals)}"


def with_interval(estimate: Estimate | None) -> str:
    """Return an estimate with its interval in brackets, "12.3 points (10.1 to 14.5)"; a dash for
    None."""
    if estimate is None or math.isnan(estimate.value):
        return NOTHING
    points = f"{format_points(estimate.value)} points"
    interval = format_interval(estimate)
    return f"{points} ({interval})" if interval else points


def interval_sign(bounded: Estimate | ResultRow | None) -> int:
    """Return 1 if an interval is wholly above 0, -1 if it is wholly below, else 0."""
    if bounded is None or bounded.low is None or bounded.high is None:
        return 0
    return int(bounded.low > 0) - int(bounded.high < 0)


def format_count(count: int, what: str, several: str | None = None) -> str:
    """Return a count and its noun, in the plural unless the count is 1: with an s, or as `several`
    spells it."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def format_list(names: Sequence[str], most: int = _MOST_NAMES, last: str = "and") -> str:
    """Return names in a sentence, "a, b and c"; if there are more than `most`, the first ones: "a,
    b and 3 more"."""
    if len(names) > most:
        return some_of(names, most)
    *first, final = names or [""]
    if not first:
        return final
    return f"{', '.join(first)} {last} {final}"


def over_classes(measured: int, classes: int, what: str = "classes") -> str:
    """Return which classes a drop is over, "over 7 of 10 classes"; empty if it is over all."""
    return f"over {measured:,} of {classes:,} {what}" if measured < classes else ""


def loss_in_words(drop: Estimate, measure: str) -> str:
    """Return a drop in words, "5.0 points of AP (1.0 to 9.0)"."""
    interval = f" ({format_interval(drop)})" if drop.low is not None else ""
    return f"{format_points(drop.value)} points of {measure}{interval}"


def preview_sentence(limit: int | None, what: str = "shift") -> str:
    """Return what every page of a preview says; empty where there is no limit."""
    if limit is None:
        return ""
    return f"A preview of {limit:,} images a {what}. The whole will give other numbers."


def in_words(name: str) -> str:
    """Return a shift's name as words: `in_the_snow` is "in the snow"."""
    return name.replace("_", " ")


def format_share(value: float | None) -> str:
    """Return a fraction as whole percent; with one decimal near 0 and 1, which would otherwise
    round to 0 or 100 %."""
    if value is None:
        return NOTHING
    near = 0 < value < 0.01 or 0.99 < value < 1
    text = f"{100 * value:.1f}" if near else str(int(100 * value + 0.5))
    if near and text in ("0.0", "100.0"):
        text = "<0.1" if value < 0.5 else ">99.9"
    return f"{text} %"


def format_probability(value: float) -> str:
    """Return a p- or q-value with its relation: `= .002`, `< .001`."""
    if value < 0.001:
        return "< .001"
    text = f"{value:.3f}" if value < 0.0995 else f"{value:.2f}"
    return f"= {text.removeprefix('0') if value < 0.995 else '1'}"


def e_value(log_e: float | None) -> str:
    """Return an e-value with its relation, from its natural logarithm, to two significant digits:
    `= 4,100`."""
    if log_e is None:
        return NOTHING
    if log_e > 99 * math.log(10):
        return "> 10⁹⁹"
    value = math.exp(log_e)
    if value < 0.01:
        return "< .01"
    if value < 9.95:
        text = f"{value:.2f}".removeprefix("0") if value < 0.995 else f"{value:.1f}"
    elif value < 995_000:
        text = f"{round(value, 1 - math.floor(math.log10(value))):,.0f}"
    else:
        digits, _, power = f"{value:.1e}".partition("e")
        text = f"{digits} × 10{str(int(power)).translate(_RAISED)}"
    return f"= {text}"


def format_ratio(ratio: float) -> str:
    """Return a ratio of rates to two significant digits."""
    if ratio >= 1e6:
        return "over a million"
    if ratio < 9.95:
        return f"{ratio:.1f}"
    return f"{round(ratio, 1 - math.floor(math.log10(ratio))):,.0f}"


def capitalised(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def safe_text(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return untrusted text made safe for a page: of bounded length, without control characters."""
    letters = []
    for letter in cut_text(text, longest):
        is_control = unicodedata.category(letter) in ("Cc", "Cs")
        letters.append("\N{REPLACEMENT CHARACTER}" if is_control else letter)
    return "".join(letters)


def cut_text(text: str, longest: int) -> str:
    """Return the text, cut to at most `longest` characters. A cut text ends in an ellipsis."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def csv_percent(value: float | None) -> str:
    """Return a fraction as percent with three decimals, as timm prints it; empty for None."""
    return "" if value is None else f"{100 * value:z.3f}"


def csv_interval(name: str, estimate: Estimate | None) -> dict[str, str]:
    """Return an estimate as three columns, in percentage points: NAME, NAME_low and NAME_high."""
    value = low = high = None
    if estimate is not None:
        value = estimate.value
        low = estimate.low
        high = estimate.high
    return {
        name: csv_percent(value),
        f"{name}_low": csv_percent(low),
        f"{name}_high": csv_percent(high),
    }


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell: its text, small print below it, a page's sort key, and a drop (a gain if negative) to
    tint by."""

    text: str
    below: str = ""
    sort: float | str = ""
    tint: float | None = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A heading. kind of its cells: an untrusted `name`, a shift's name, words or numbers. named:
    it is untrusted."""

    label: str
    kind: Literal["name", "shift", "text", "number"] = "number"
    note: str = ""
    named: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells; the first heads the row. style: a `base` row stays first however a page sorts, `quiet`
    is an extra row."""

    cells: tuple[TableCell, ...]
    style: Literal["", "base", "quiet"] = ""

    def of(self, table: Table) -> list[tuple[TableColumn, TableCell]]:
        return list(zip(table.columns, self.cells, strict=True))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; `more` says how many rows were cut off, and where they are."""

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    more: str = ""

    @classmethod
    def of(
        cls,
        caption: str,
        columns: Iterable[TableColumn | str],
        rows: Iterable[TableRow | Sequence[TableCell | str]],
    ) -> Table:
        """Return a table. A column that is a bare text holds numbers; a cell that is a bare text
        holds words."""
        heads = []
        for column in columns:
            heads.append(TableColumn(column) if isinstance(column, str) else column)

        def cell_of(column: TableColumn, cell: TableCell | str) -> TableCell:
            if isinstance(cell, TableCell):
                return cell
            return TableCell(cell) if column.kind == "number" else text_cell(cell)

        made = []
        for row in rows:
            style = ""
            if isinstance(row, TableRow):
                style = row.style
                row = row.cells
            made.append(TableRow(tuple(map(cell_of, heads, row)), style))
        return cls(caption, tuple(heads), tuple(made))

    def without_empty(self) -> Table:
        """Return the table without number columns that are empty in every row."""
        kept = []
        for index, column in enumerate(self.columns):
            texts = {row.cells[index].text for row in self.rows}
            if column.kind != "number" or texts - {NOTHING}:
                kept.append(index)
        rows = []
        for row in self.rows:
            cells = tuple(row.cells[index] for index in kept)
            rows.append(replace(row, cells=cells))
        return replace(self, columns=tuple(self.columns[index] for index in kept), rows=tuple(rows))

    def first(self, most: int, what: str, where: str) -> Table:
        """Return the first `most` rows and every quiet row; `what` names the rest, and `where` says
        where they are."""
        rows = [row for row in self.rows if row.style != "quiet"]
        if len(rows) <= most:
            return self
        beside = [row for row in self.rows if row.style == "quiet"]
        return replace(
            self,
            rows=(*rows[:most], *beside),
            more=f"and {len(rows) - most:,} more {what}, in {where}",
        )


def text_cell(text: str) -> TableCell:
    return TableCell(text, sort="" if text == NOTHING else text)


def count_cell(count: int) -> TableCell:
    return TableCell(f"{count:,}", sort=count)


def points_cell(
    value: Estimate | float | None, *, signed: bool = False, tint: bool = False, decimals: int = 1
) -> TableCell:
    """Return a fraction in percent or points without its unit, with its interval below; a dash for
    None."""
    if value is None:
        return TableCell(NOTHING)
    from counterfoil.stats import Estimate

    estimate = value if isinstance(value, Estimate) else Estimate(value)
    return TableCell(
        format_points(estimate.value, signed=signed, decimals=decimals),
        format_interval(estimate, decimals=decimals),
        sort=estimate.value,
        tint=-estimate.value if tint else None,
    )


def measure_tables(
    results: Results, output: Literal["terminal", "report", "card"]
) -> list[tuple[MeasureFacts, Table]]:
    """Return the tables of the measures that this output shows and that have numbers by model, by
    group or by both."""
    tables = []
    for measure in results.measures:
        rows_of_measure = results.rows.where(measure.name, class_id="", against="", at="")
        measured = [row for row in rows_of_measure if row.value is not None]
        if output not in measure.shown or not measured:
            continue
        models = list(dict.fromkeys(row.model for row in measured))
        cells = {}
        for row in measured:
            text = format_percent(row.value)
            ends = format_interval(row.estimate)
            if measure.unit == "points":
                text = f"{format_points(row.value)} points"
            elif measure.unit == "plain":
                text = format_number(row.value)
                ends = format_range(row)
            cells[row.model, row.group] = TableCell(text, ends, row.value or 0.0)
        rows = []
        for group in dict.fromkeys(row.group for row in measured):
            of_group = [cells.get((model, group), NOTHING) for model in models]
            rows.append((group or "all", *of_group))
        names = (
            TableColumn(results.short_names.get(model, model) or "all models", named=True)
            for model in models
        )
        tables.append(
            (measure, Table.of(measure.title, (TableColumn("group", "shift"), *names), rows))
        )
    return tables


def shown_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> str:
    """Return HTML for a notebook: a title, at most `_MOST_SHOWN` rows and a note, all escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ""
    for row in rows[:_MOST_SHOWN]:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        body += f"<tr>{cells}</tr>"
    more = f"{len(rows) - _MOST_SHOWN:,} more rows. " if len(rows) > _MOST_SHOWN else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return visible_text(
        f"<div><p><strong>{escape(title)}</strong></p>{table}<p>{escape(more + note)}</p></div>"
    )
