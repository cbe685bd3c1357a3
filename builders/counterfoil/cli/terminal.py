"""What goes to a person's terminal: lines, tables, JSON, errors. Strangers' words move no cursor and ring no bell.

An error is a short message on stderr and an exit code, never a traceback; COUNTERFOIL_DEBUG=1 adds that.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from counterfoil.errors import CounterfoilError, RunFailure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from counterfoil.report.words import Table

MOST_PROBLEMS = 100
LONGEST_PROBLEM = 2000

INTERRUPTED = 130  # what shells report for Ctrl-C

# Faults of the machine that any command can meet while it reads or writes.
MACHINE_HINTS = {
    errno.ENOSPC: "The disk is full. Free some space, then run the same command again.",
    errno.EDQUOT: "Your disk quota is used up. Free some space, then run the same command again.",
    errno.EACCES: "Give yourself permission for that path, or choose another.",
    errno.EPERM: "Give yourself permission for that path, or choose another.",
    errno.EROFS: "That file system is read-only. Choose another path.",
}


def plain(text: str) -> str:
    """A text without control characters, which stand as Python escapes instead; line breaks stay.

    On GitHub's runners a line of output may be a command to the runner: there no text has one in it, however it folds.
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # A bracket may be escaped from rich, which shows it without the slash.
        text = re.sub(r":(?=:)|##(?=\\?\[)", "\\g<0>\u200b", text)
    return text


def say(text: str, *, err: bool = False) -> None:
    """A line that is never wrapped or styled."""
    typer.echo(plain(text), err=err)


def note(text: str) -> None:
    """One plain line on stderr."""
    print(plain(text), file=sys.stderr, flush=True)


def print_doubts(lines: Sequence[str]) -> None:
    """What speaks against CLIP (`ScreenDoubts.lines`), before what rests on it: on stderr, a line each."""
    for at, line in enumerate(lines):
        note(line if at else f"Warning: {line}")


def next_command(*words: str) -> None:
    """What to run next, on stderr: one line that a shell takes as it is printed."""
    note(f"Next: {shlex.join(words)}")


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


def open_page(page: Path, wanted: bool) -> None:
    """Open a page that was written, where somebody wants that; a line on stderr where no browser is here."""
    if wanted and not show_in_browser(page.resolve().as_uri()):
        note(f"No browser was found. Open {page} yourself.")


def show_in_browser(address: str) -> bool:
    """Open an address in the browser; False where there is none."""
    import webbrowser

    # Without a screen a browser of text may be found, which would take the terminal.
    screenless = sys.platform.startswith("linux") and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return bool(not screenless or os.environ.get("BROWSER")) and webbrowser.open(address)


def print_json(value: Any) -> None:
    """Print a value to stdout as JSON, paths as text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # Names of files may hold half a character, which no terminal and no file takes; JSON spells it.
    # Every line of it begins with a bracket, a quote or a number; a runner's older commands may stand anywhere.
    text = text.replace("##[", "#\\u0023[")
    typer.echo(text if text.isascii() or _is_text(text) else json.dumps(value, indent=2, default=str))


def fields_of(value: Any, *names: str) -> dict[str, Any]:
    """Some fields of a result, as JSON has them under their own names."""
    return {name: getattr(value, name) for name in names}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def print_rows(
    console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", left: Sequence[int] = (0,)
) -> None:
    """A table of texts in rich's markup, names in it escaped; the columns `left` are words, the others numbers."""
    from rich import box
    from rich.table import Table as Rich

    table = Rich(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title or None, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_table(console: Console, shown: Table, most: int, where: str) -> None:
    """The first `most` rows, the small print of a cell below its text; what is cut off stands in the file `where`."""
    from rich.markup import escape

    def cell(text: str, below: str) -> str:
        return escape(text) + (f"\n[dim]{below}[/dim]" if below else "")

    shown = shown.first(most, "rows", where)
    rows = [[cell(each.text, escape(each.below)) for each in row.cells] for row in shown.rows]
    quiet = [[f"[dim]{text}[/dim]" for text in cells] for cells in rows]
    print_rows(
        console,
        [cell(column.label, column.note) for column in shown.columns],
        [dim if row.style else own for row, own, dim in zip(shown.rows, rows, quiet, strict=True)],
        escape(shown.caption),
        [place for place, column in enumerate(shown.columns) if column.kind != "number"],
    )
    if shown.more:
        console.print(escape(shown.more))


def show_error(error: BaseException) -> int:
    """Print an error to stderr; the exit code to end with."""
    if os.environ.get("COUNTERFOIL_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in MACHINE_HINTS:
        where = f"{error.filename}: " if error.filename is not None else ""
        error = RunFailure(f"{where}{error.strerror}", hint=MACHINE_HINTS[error.errno])
    if not isinstance(error, CounterfoilError):
        # What reached nobody who could say what was being done, and is no fault of the program: no network, no memory.
        # An installation that is not whole is reported as what it met first.
        with suppress(ImportError):
            from counterfoil.models.loading_errors import meaning

            error = meaning("what this command needs", error) or error
    if isinstance(error, CounterfoilError):
        if len(error.problems) == 1:
            _line(f"error: {fit(error.problems[0])}", colour="red")
        else:
            _line(f"error: {len(error.problems)} problems", colour="red")
            for problem in error.problems[:MOST_PROBLEMS]:
                _line(f"  - {fit(problem)}")
            if len(error.problems) > MOST_PROBLEMS:
                _line(f"  … and {len(error.problems) - MOST_PROBLEMS} more")
        if error.hint:
            _line(fit(error.hint))
        return error.exit_code
    text = fit(" ".join(str(error).split()))
    _line(f"internal error: {type(error).__name__}: {text}", colour="red")
    _line("Please report it; run with COUNTERFOIL_DEBUG=1 for the traceback.")
    return 1


def show_interrupted() -> int:
    """Say calmly that Ctrl-C ended the command; the exit code to end with.

    Which work is stored by now nobody here knows, and perhaps none is.
    """
    _line("\nInterrupted. Run the same command again: it does only what is not stored yet.")
    return INTERRUPTED


def fit(text: str) -> str:
    """A text as a terminal may be shown it: of bounded length, and without what would move its cursor or ring its bell.

    Problems quote what they found, in files that may come from anybody.
    """
    if len(text) > LONGEST_PROBLEM:
        text = f"{text[: LONGEST_PROBLEM // 2]} […] {text[-LONGEST_PROBLEM // 4 :]}"
    return plain(text)


def _line(text: str, colour: str | None = None) -> None:
    typer.secho(text, fg=colour, err=True)
    sys.stderr.flush()
