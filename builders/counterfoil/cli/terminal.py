"""Print lines, tables, JSON and errors on a terminal. Control characters in texts from elsewhere
are escaped.

An error is a short message on stderr and an exit code; COUNTERFOIL_DEBUG=1 adds the traceback.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from counterfoil.errors import CounterfoilError, RunFailure, UserError, first_of
from counterfoil.regular_files import on_a_line, visible_text
from counterfoil.report.terminal_tables import console_of, plain_text, rich_rows
from counterfoil.signals import obey_signal

if TYPE_CHECKING:
    from rich.console import Console

MOST_PROBLEMS = 100
LONGEST_PROBLEM = 2000

# Faults of the machine that any command can meet when it reads or writes.
MACHINE_HINTS = {
    errno.ENOSPC: "The disk is full. Free some space, then run the same command again.",
    errno.EDQUOT: "Your disk quota is used up. Free some space, then run the same command again.",
    errno.EACCES: "Give yourself permission for that path, or choose another.",
    errno.EPERM: "Give yourself permission for that path, or choose another.",
    errno.EROFS: "That file system is read-only. Choose another path.",
}


def print_line(text: str, *, err: bool = False) -> None:
    """Print one line that is never wrapped or styled. A name from elsewhere cannot break it.

    Print nothing after a signal: if a library caught it, the text may report damage that does not
    exist.
    """
    obey_signal()
    typer.echo(plain_text(on_a_line(text)), err=err)


def print_note(text: str) -> None:
    print(plain_text(on_a_line(text)), file=sys.stderr, flush=True)


def print_plain(console: Console, text: str) -> None:
    """Print a text that holds no markup, wrapped to the console."""
    console.print(text, markup=False, highlight=False)


def next_command(*words: str) -> None:
    """Print the command to run next on stderr, as one line that can be pasted into a shell."""
    print_note(f"Next: {shlex.join(words)}")


def make_console(piped_width: int = 140, *, stderr: bool = False) -> Console:
    """Return rich's console, with every text passed through `plain_text`. piped_width: of tables in a
    pipe."""
    console = console_of(stderr=stderr)
    return console if console.is_terminal or stderr else console_of(width=piped_width)


def confirmed(question: str, unasked: str, hint: str) -> bool:
    """Ask a question on the terminal. UserError, with these texts, if standard input is no
    terminal, or is closed."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError(unasked, hint)
    return typer.confirm(question, err=True)


def open_page(page: Path, wanted: bool) -> None:
    """Open a written page in a browser if `wanted`. Print a note on stderr if there is no
    browser."""
    if wanted and not show_in_browser(page.resolve().as_uri()):
        print_note(f"No browser was found. Open {page} yourself.")


def show_in_browser(address: str) -> bool:
    import webbrowser

    # Without a screen, a text browser may be found. It would take over the terminal.
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, screens)):
        return False
    return webbrowser.open(address)


def print_json(value: Any) -> None:
    obey_signal()
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # GitHub's runner may read ##[ anywhere in a line as a command.
    typer.echo(visible_text(text).replace("##[", "#\\u0023["))


def fields_of(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    left: Sequence[int] = (0,),
) -> None:
    """Print a table of texts in rich's markup. left: the indices of columns of words; others hold
    numbers."""
    console.print(rich_rows(columns, rows, title, left))


def refuse_low_limits() -> None:
    """Raise RunFailure for limits with which libraries and workers end in errors that do not name
    them."""
    with suppress(ImportError):  # on Windows
        import resource

        for limit, least, option, what in (
            (resource.RLIMIT_NOFILE, 64, "n", "open files"),
            (resource.RLIMIT_AS, 1 << 30, "v", "bytes of address space"),
        ):
            most, _ = resource.getrlimit(limit)
            if most != resource.RLIM_INFINITY and most < least:
                raise RunFailure(
                    f"a limit allows this process {most:,} {what} (ulimit -{option}), expected at"
                    f" least {least:,}",
                    "Raise it, and run the same command again.",
                )


def show_error(error: BaseException) -> int:
    """Print an error to stderr, and return the exit code."""
    if os.environ.get("COUNTERFOIL_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in MACHINE_HINTS:
        where = f"{error.filename}: " if error.filename is not None else ""
        error = RunFailure(f"{where}{error.strerror}", hint=MACHINE_HINTS[error.errno])
    if not isinstance(error, CounterfoilError):
        # Some errors, such as a missing network or memory, are no faults of the program.
        # If the installation is incomplete, the first error is reported.
        with suppress(ImportError):
            from counterfoil.models.loading_errors import known_cause

            error = known_cause("what this command needs", error) or error
    if isinstance(error, CounterfoilError):
        if len(error.problems) == 1:
            _line(f"error: {fit_text(error.problems[0])}", colour="red")
        else:
            _line(f"error: {len(error.problems)} problems", colour="red")
            problems = [f"- {fit_text(problem)}" for problem in error.problems]
            for problem in first_of(problems, MOST_PROBLEMS):
                _line(f"  {problem}")
        if error.hint:
            _line(fit_text(error.hint))
        return error.exit_code
    text = fit_text(" ".join(str(error).split()))
    _line(f"internal error: {type(error).__name__}: {text}", colour="red")
    _line("Please report it; run with COUNTERFOIL_DEBUG=1 for the traceback.")
    return 1


def fit_text(text: str) -> str:
    """Shorten a text and pass it through `plain`, because problems quote files that are not
    trusted."""
    if len(text) > LONGEST_PROBLEM:
        text = f"{text[: LONGEST_PROBLEM // 2]} […] {text[-LONGEST_PROBLEM // 4 :]}"
    return plain_text(text)


def _line(text: str, colour: str | None = None) -> None:
    typer.secho(text, fg=colour, err=True)
    sys.stderr.flush()
