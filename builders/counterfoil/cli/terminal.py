"""What goes to a person's terminal: names and words of strangers move no cursor, ring no bell and change no title."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


def plain(text: str) -> str:
    """A text without control characters, which stand as Python escapes instead; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)


def say(text: str, *, err: bool = False) -> None:
    """A line that is never wrapped or styled."""
    typer.echo(plain(text), err=err)


def terminal(piped_width: int = 140, *, stderr: bool = False) -> Console:
    """rich's console, which shows every text as `plain` makes it: by itself it lets escape sequences through.

    Tables in a pipe are `piped_width` columns wide.
    """
    from rich.console import Console

    class Terminal(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(plain(text), **options)

    found = Terminal(stderr=stderr)
    return found if found.is_terminal or stderr else Terminal(width=piped_width)
