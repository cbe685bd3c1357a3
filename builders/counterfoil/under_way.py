"""Work that tells how far it is: a generator of its progress, whose return value is its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

Told = TypeVar("Told")
Result = TypeVar("Result")
Other = TypeVar("Other")

_EVERY = 0.2  # seconds between two writings of the line in a notebook
_WIDTH = 78

# Yields how far it is, returns what it made. One step inside another is `result = yield from step(...)`.
UnderWay: TypeAlias = Generator[Told, None, Result]


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a stage of some work is: `done` of `total` images (or files, or shifts) are through.

    lost: a sentence about a worker or a device that was lost just now, while the work goes on.
    """

    name: str
    done: int
    total: int
    lost: str | None = None


def finish(work: UnderWay[Told, Result]) -> Result:
    """Do all of the work; the result. In a notebook one line says how far it is, elsewhere nothing does."""
    if not in_notebook():
        return show(work, lambda told: None)
    line = ProgressLine()
    try:
        return show(work, line)
    finally:
        line.end()


def show(work: UnderWay[Told, Result], draw: Callable[[Told], object]) -> Result:
    """Do all of the work, and give what it tells to `draw` on the way; the result.

    Where `draw` raises, the work ends there too: what it holds (locks, threads, weights) is let go.
    """
    with closing(work):
        while True:
            try:
                told = next(work)
            except StopIteration as end:
                return end.value
            draw(told)


def told_as(work: UnderWay[Told, Result], words: Callable[[Told], Other]) -> UnderWay[Other, Result]:
    """The same work, which tells in other words: `result = yield from told_as(step(...), words)`."""
    with closing(work):
        while True:
            try:
                told = next(work)
            except StopIteration as end:
                return end.value
            yield words(told)


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class ProgressLine:
    """One line on stderr that is written over. It takes whatever a run tells: what it cannot put in words it skips."""

    def __init__(self) -> None:
        self.written, self.length = 0.0, 0

    def __call__(self, told: Any) -> None:
        line, now = _line(told), time.monotonic()
        if line and now - self.written >= _EVERY:
            self.written = now
            self._write(line)

    def end(self) -> None:
        """The line goes: what the work gives is what a cell shows."""
        if self.length:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, line: str) -> None:
        line = line if len(line) <= _WIDTH else f"{line[: _WIDTH - 2]} …"
        sys.stderr.write(f"\r{line.ljust(self.length)}")
        sys.stderr.flush()
        self.length = len(line)


def _line(told: Any) -> str:
    """Of a stage, a build, and the learning of tokens."""
    for what, done, total in (
        ("", "done", "total"),
        ("images", "images_done", "images"),
        ("steps", "steps_done", "steps"),
    ):
        if hasattr(told, done) and hasattr(told, total):
            name = str(getattr(told, "name", what))
            shown = "".join(letter if letter.isprintable() else " " for letter in name)
            return f"{shown}: {getattr(told, done):,} of {getattr(told, total):,}"
    return ""
