"""A table of results on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from counterfoil.report.tables import Table


def print_table(console: Console, shown: Table, most: int, where: str) -> None:
    """The first `most` rows, the small print of a cell below its text; what is cut off stands in the file `where`."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table as Rich

    shown = shown.first(most, "rows", where)
    table = Rich(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=escape(shown.caption), title_justify="left")
    for column in shown.columns:
        label = escape(column.label) + (f"\n[dim]{column.note}[/dim]" if column.note else "")
        table.add_column(label, justify="right" if column.kind == "number" else "left", overflow="fold")
    for row in shown.rows:
        cells = [escape(cell.text) + (f"\n[dim]{escape(cell.below)}[/dim]" if cell.below else "") for cell in row.cells]
        table.add_row(*cells, style="dim" if row.style else None)
    console.print(table)
    if shown.more:
        console.print(escape(shown.more))
