"""What a notebook shows of a result: a small table, everything in it escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MOST_ROWS = 12


def shown_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    """HTML of a title, a table of at most `MOST_ROWS` rows, and a note."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    more = f"{len(rows) - MOST_ROWS:,} more rows. " if len(rows) > MOST_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><p><strong>{escape(title)}</strong></p>{table}<p>{escape(more + note)}</p></div>"
