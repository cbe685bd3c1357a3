"""What is wrong with a file of a dataset, as data, and how an error about it is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import CounterfoilError

RESTORE = "These cannot be made again: restore them from a copy, such as the published dataset."
_MOST_LINES = 3  # of one fault or error, where it is told in one


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file of a dataset, by its path in the directory; `lines` tell more where there is more.

    `mistake` says that a person changed it and nothing is lost, `consequence` that a change of the file, which hashes
    tell, explains it. `hint` is what to do.
    """

    path: str
    what: str
    lines: tuple[str, ...] = ()
    mistake: bool = False
    consequence: bool = False
    hint: str = RESTORE

    def __str__(self) -> str:
        return f"{self.what}: {_in_one_line(self.lines)}" if self.lines else self.what


def told(error: Exception, path: Path) -> tuple[str, ...]:
    """The lines of an error about a file, without the path that they begin with."""
    if not isinstance(error, CounterfoilError):
        return (f"{type(error).__name__}: {error}",)
    return tuple(line.removeprefix(f"{path} ").removeprefix(f"{path}: ") for line in error.problems)


def told_in_one_line(error: Exception, path: Path) -> str:
    """The same in one line, which tells of the first three."""
    return _in_one_line(told(error, path))


def _in_one_line(lines: tuple[str, ...]) -> str:
    more = len(lines) - _MOST_LINES
    return "; ".join(lines[:_MOST_LINES]) + (f"; and {more} more" if more > 0 else "")
