"""How far work is, as logging has it: work reports where it is, and whoever calls it may listen.

Reports are heard by the thread that listens: a pool's threads inherit no listener, so the thread that drives reports.
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

_EVERY = 0.2  # seconds between two writings of the line
_WIDTH = 78

# Hears a `Stage`, or what some work tells in its own words (`BuildProgress`, `TokenProgress`, `Sending`).
Listener: TypeAlias = Callable[[Any], object]

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


class _Ended(BaseException):
    """The listener raised `error`: no `except Exception` of the work is meant."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a stage of some work is: `done` of `total` images (or files, or shifts) are through.

    lost: a sentence about a worker or a device that was lost just now, while the work goes on.
    """

    name: str
    done: int
    total: int
    lost: str | None = None


def report(name: str, done: int, total: int, lost: str | None = None) -> None:
    """Tell that a stage is so far. See `Stage`."""
    tell(Stage(name, done, total, lost))


def tell(event: object) -> None:
    """Tell how far work is, in words of its own.

    An error of the listener ends the work, whatever errors the work itself would catch: see `listening`.
    """
    listener = _listener.get()
    if listener is None:
        _line(event)
        return
    try:
        listener(event)
    except Exception as error:
        raise _Ended(error) from error


def track(items: Iterable[Item], name: str, total: int | None = None, every: int = 1) -> Iterator[Item]:
    """The items; each `every`-th, and the last, is reported once the next is asked for. `total` defaults to `len`."""
    if total is None:
        assert isinstance(items, Sized)
        total = len(items)
    for done, item in enumerate(items, 1):
        yield item
        if done % every == 0 or done == total:
            report(name, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Whatever is reported within goes to `listener`, and to no other.

    What it raises ends the work as Ctrl-C does: the work lets go what it holds (locks, workers, weights) and takes it
    for no error of its own. Here it is raised as it was.
    """
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
    """Whatever is reported within is reported in other words: as the value of `words`, or as a stage of that name."""
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
    """Whether this process is a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _Line:
    """One line on stderr that is written over, for whom nobody listens, in a notebook and on a terminal.

    It takes whatever is reported: what it cannot put in words it skips. With a stage that is done it goes.
    """

    def __init__(self) -> None:
        self.disabled, self.written, self.length = False, 0.0, 0

    def __call__(self, event: Any) -> None:
        if self.disabled or threading.current_thread() is not threading.main_thread():
            return
        if not (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
            return
        said, now = _said(event), time.monotonic()
        if said is None:
            return
        text, over = said
        if over and self.length:
            self._write("")
            self._write("")
        elif not over and (not self.length or now - self.written >= _EVERY):
            self.written = now
            self._write(text)

    def _write(self, line: str) -> None:
        line = line if len(line) <= _WIDTH else f"{line[: _WIDTH - 2]} …"
        with suppress(OSError, ValueError):  # no work fails for a terminal that is gone, or cannot spell a name
            sys.stderr.write(f"\r{line.ljust(self.length)}")
            sys.stderr.flush()
        self.length = len(line)


_line = _Line()


def _said(event: Any) -> tuple[str, bool] | None:
    """A stage, a build, or the learning of tokens as a line, and whether it is over."""
    for what, done, total in (
        ("", "done", "total"),
        ("images", "images_done", "images"),
        ("steps", "steps_done", "steps"),
    ):
        if hasattr(event, done) and hasattr(event, total):
            name = str(getattr(event, "name", what))
            shown = "".join(letter if letter.isprintable() else " " for letter in name)
            far, whole = getattr(event, done), getattr(event, total)
            return f"{shown}: {far:,} of {whole:,}", far >= whole
    return None
