"""How errors reach a person: a short message on stderr and an exit code, never a traceback.

COUNTERFOIL_DEBUG=1 adds the traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback

import typer

from counterfoil.cli.terminal import plain
from counterfoil.errors import CounterfoilError, RunFailure

MOST_PROBLEMS = 100
LONGEST_PROBLEM = 2000

INTERRUPTED = 130  # what shells report for Ctrl-C

# Faults of the machine that any command can meet while it reads or writes.
_MACHINE_HINTS = {
    errno.ENOSPC: "The disk is full: make room, then run the same command again.",
    errno.EDQUOT: "The disk quota is used up: make room, then run the same command again.",
    errno.EACCES: "Give yourself permission for that path, or choose another.",
    errno.EPERM: "Give yourself permission for that path, or choose another.",
    errno.EROFS: "That file system is read-only: choose another path.",
}


def show_error(error: BaseException) -> int:
    """Print an error to stderr; the exit code to end with."""
    if os.environ.get("COUNTERFOIL_DEBUG") == "1":
        traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in _MACHINE_HINTS:
        where = f"{error.filename}: " if error.filename is not None else ""
        error = RunFailure(f"{where}{error.strerror}", hint=_MACHINE_HINTS[error.errno])
    if not isinstance(error, CounterfoilError):
        error = _of_a_library(error) or error
    if isinstance(error, CounterfoilError):
        _show_problems(error)
        return error.exit_code
    text = fit(" ".join(str(error).split()))
    _line(f"internal error: {type(error).__name__}: {text}", colour="red")
    _line("Please report it; run with COUNTERFOIL_DEBUG=1 for the traceback.")
    return 1


def _of_a_library(error: BaseException) -> CounterfoilError | None:
    """What reached nobody who could say what was being done, and is no fault of the program: no network, no memory."""
    from counterfoil.models.loading_errors import meaning

    try:
        return meaning("what this command needs", error)
    except ImportError:  # an installation that is not whole is told as what it met first
        return None


def show_interrupted() -> int:
    """Say calmly that Ctrl-C ended the command; the exit code to end with."""
    _line("\nInterrupted. What was finished is kept; run the same command again to go on.")
    return INTERRUPTED


def _show_problems(error: CounterfoilError) -> None:
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
