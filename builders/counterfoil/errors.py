"""Errors for people. Each says what is wrong and where, what was expected, and what to do.

The command line prints such an error without a traceback. It exits with `exit_code`: 2 for a user's
mistake, 1 for a failed run. What may make a result wrong is a `CounterfoilWarning`, which the
command line prints as `Warning: …`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class CounterfoilError(Exception):
    """One or more problems that a person can act on, one line each. `hint` says what to do next."""

    exit_code = 1

    def __init__(self, problems: str | Sequence[str], hint: str | None = None) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        self.hint = hint
        super().__init__("\n".join(self.problems) + (f"\n{hint}" if hint else ""))

    def __reduce__(self):
        # Workers send errors to the build process, so an error must keep its problems and its hint
        # when pickled.
        return (type(self), (self.problems, self.hint))


class UserError(CounterfoilError):
    """The user's input (a recipe, an option, a path, a name) cannot be used as given."""

    exit_code = 2


class RunFailure(CounterfoilError):
    """The input was right, but the run could not go on: the disk is full, a model lacks a file, a
    worker died."""


class CounterfoilWarning(UserWarning):
    """A result stands, but may not mean what it seems to mean."""


def warn(text: str) -> None:
    """Warn at the line of the program that called this package."""
    level = 1
    frame = sys._getframe()
    while (
        frame is not None
        and str(frame.f_globals.get("__name__")).partition(".")[0] == "counterfoil"
    ):
        level = level + 1
        frame = frame.f_back
    warnings.warn(text, CounterfoilWarning, stacklevel=level)


MOST_SHOWN = 20


def first_of(lines: Sequence[str], most: int = MOST_SHOWN, count: int | None = None) -> list[str]:
    """Return at most `most` lines, then a line with the number of those left out. `count` defaults
    to `len(lines)`."""
    count = len(lines) if count is None else count
    first = list(lines[:most])
    if count > most:
        first.append(f"… and {count - most:,} more")
    return first


def some_of(
    names: Sequence[str], most: int = 5, *, count: int | None = None, what: str = ""
) -> str:
    """Join at most `most` names, then say how many more of `what` there are. `count` is the number
    of all names."""
    count = len(names) if count is None else count
    text = ", ".join(names[:most])
    more = count - len(names[:most])
    if more > 0:
        text += f" and {more:,} more"
        if what:
            text += f" {what}"
    return text


@contextmanager
def collected_in(errors: list[CounterfoilError]) -> Iterator[None]:
    """Append an error of the block to `errors`, and go on; `raise_together` raises it with those of
    later blocks."""
    try:
        yield
    except CounterfoilError as error:
        errors.append(error)


def raise_together(errors: Sequence[CounterfoilError], hint: str | None = None) -> None:
    """Raise one error for all: UserError if any of them is a UserError, else RunFailure. Without
    errors, do nothing."""
    if not errors:
        return
    if len(errors) == 1:
        error = errors[0]
        hints = filter(None, (error.hint, hint))
        raise type(error)(error.problems, " ".join(hints) or None)
    kind: type[CounterfoilError] = RunFailure
    lines: list[str] = []
    for error in errors:
        lines += error.problems
        if error.hint:
            lines[-1] += f" ({error.hint})"
        if isinstance(error, UserError):
            kind = UserError
    raise kind(lines, hint)
