"""Report progress in the manner of logging: work reports how far it is, and a caller may listen.

A pool's threads inherit no listener, so the thread that drives a pool reports.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

Item = TypeVar("Item")

_EVERY = 0.2  # seconds between two updates of the line
_WIDTH = 78

# Called with a `Stage`, or with an event of some work's own (`BuildProgress`, `TokenProgress`, `Sending`).
Listener: TypeAlias = Callable[[Any], object]

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


class _Ended(BaseException):
    """The listener raised `error`. A BaseException, so that `except Exception` in the work does not catch it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Stage:
    """The progress of a stage: `done` of `total` images (or files, or shifts); `lost` reports a worker that was just
    lost.
    """

    name: str
    done: int
    total: int
    lost: str | None = None


def report(name: str, done: int, total: int, lost: str | None = None) -> None:
    tell(Stage(name, done, total, lost))


def tell(event: object) -> None:
    """Report an event of any type. An error of the listener ends the work: see `listening`."""
    listener = _listener.get()
    if listener is None:
        _line(event)
        return
    try:
        listener(event)
    except Exception as error:
        raise _Ended(error) from error


def track(items: Iterable[Item], name: str, total: int | None = None, every: int = 1) -> Iterator[Item]:
    """Yield the items; report each `every`-th and the last when the next is requested. `total` defaults to `len`."""
    if total is None:
        assert isinstance(items, Sized)
        total = len(items)
    for done, item in enumerate(items, 1):
        yield item
        if done % every == 0 or done == total:
            report(name, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send all reports within the block to `listener`; its error ends the work as Ctrl-C does, and is raised here."""
    before, refused = _listener.set(listener), None
    try:
        yield
    except _Ended as ended:
        refused = ended.error
    finally:
        _listener.reset(before)
    if refused is not None:
        raise refused


@contextmanager
def renamed(words: str | Callable[[Any], object]) -> Iterator[None]:
    """Change all reports within the block: to `words(event)`, or to stages of the name `words`."""
    outer = _listener.get() or _line
    before = _listener.set(lambda event: outer(words(event) if callable(words) else _called(event, words)))
    try:
        yield
    finally:
        _listener.reset(before)


def _called(event: Any, name: str) -> Any:
    return replace(event, name=name) if isinstance(event, Stage) else event


def disable_progress_bars() -> None:
    """Hide the progress line in notebooks and terminals. Commands still show their own progress."""
    _line.disabled = True


def enable_progress_bars() -> None:
    """Show the progress line in notebooks and terminals. This is the default."""
    _line.disabled = False


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _Line:
    """A line on stderr that is overwritten, in notebooks and on terminals, until its stage is done."""

    def __init__(self) -> None:
        self.disabled, self.written, self.length = False, 0.0, 0

    def __call__(self, event: Any) -> None:
        if self.disabled or threading.current_thread() is not threading.main_thread():
            return
        if not (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
            return
        described, now = _described(event), time.monotonic()
        if described is None:
            return
        text, over = described
        if over and self.length:
            self._write("")
            self._write("")
        elif not over and (not self.length or now - self.written >= _EVERY):
            self.written = now
            self._write(text)

    def _write(self, line: str) -> None:
        line = line if len(line) <= _WIDTH else f"{line[: _WIDTH - 2]} …"
        with suppress(OSError, ValueError):  # work must not fail if the terminal is gone or cannot encode a name
            sys.stderr.write(f"\r{line.ljust(self.length)}")
            sys.stderr.flush()
        self.length = len(line)


_line = _Line()


def _described(event: Any) -> tuple[str, bool] | None:
    """Describe a stage, a build, or the learning of tokens in a line; return it with whether it is over."""
    for what, done, total in (
        ("", "done", "total"),
        ("images", "images_done", "images"),
        ("steps", "steps_done", "steps"),
    ):
        if hasattr(event, done) and hasattr(event, total):
            name = str(getattr(event, "name", what))
            shown = "".join(letter if letter.isprintable() else " " for letter in name)
            finished, whole = getattr(event, done), getattr(event, total)
            return f"{shown}: {finished:,} of {whole:,}", finished >= whole
    return None
