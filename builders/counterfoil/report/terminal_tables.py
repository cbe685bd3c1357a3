"""Draw tables in plain characters, for the command line and for `print` in Python."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.regular_files import visible_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from counterfoil.report.words import Table

# Characters in a line of an evaluation's tables, in a pipe.
PIPED_WIDTH = 160


def plain_text(text: str) -> str:
    """Return a text that is `visible`. Break up texts that GitHub reads as commands."""
    text = visible_text(text)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # The bracket may follow a slash that escapes it for rich; rich prints it without the slash.
        text = re.sub(r":(?=:)|##(?=\\?\[)", "\\g<0>\u200b", text)
    return text


def console_of(**options: Any) -> Console:
    """Return rich's console, with every text passed through `plain_text`.

    A name such as `:cat:` is no emoji there. A text from elsewhere is printed with `markup=False`,
    or escaped.
    """
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain_text(text), **options)

    return Terminal(emoji=False, **options)


def rich_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str,
    left: Sequence[int],
) -> RichTable:
    """Return rich's table of texts in its markup. left: the indices of columns of words; others hold
    numbers."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=title or None,
        title_justify="left",
    )
    for index, column in enumerate(columns):
        side = "left" if index in left else "right"
        table.add_column(column, justify=side, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def print_table(console: Console, shown: Table) -> None:
    """Print a table, with a cell's note below its text."""
    from rich.markup import escape

    def cell(text: str, below: str) -> str:
        shown = escape(text)
        if below:
            shown += f"\n[dim]{escape(below)}[/dim]"
        return shown

    rows = []
    for row in shown.rows:
        cells = [cell(each.text, each.below) for each in row.cells]
        if row.style:
            cells = [f"[dim]{text}[/dim]" for text in cells]
        rows.append(cells)
    headings = [cell(column.label, column.note) for column in shown.columns]
    left = [index for index, column in enumerate(shown.columns) if column.kind != "number"]
    console.print(rich_rows(headings, rows, escape(shown.caption), left))
    if shown.more:
        console.print(escape(shown.more))


def table_text(shown: Table) -> str:
    """Return what `print_table` prints into a pipe."""
    file = io.StringIO()
    # In a notebook, or with FORCE_COLOR, rich would not write plain text into the file.
    console = console_of(file=file, width=PIPED_WIDTH, force_jupyter=False, force_terminal=False)
    print_table(console, shown)
    return file.getvalue()
