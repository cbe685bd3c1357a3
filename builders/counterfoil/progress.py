"""Report progress as logging reports events: a function reports how far it is, and a caller may
listen.

The threads of a pool do not inherit the listener, so the thread that started the pool must report.
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

from counterfoil.signals import obey_signal

Item = TypeVar("Item")

_EVERY = 0.2  # seconds between two updates of the line
_WIDTH = 78

# A listener is called with a `Stage` or with a more specific event (`BuildProgress`,
# `TokenProgress`, `Sending`).
Listener: TypeAlias = Callable[[Any], object]

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


class _Ended(BaseException):
    """The listener raised `error`. A BaseException, so that `except Exception` in the work does not
    catch it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class Stage:
    """The progress of a stage: `done` of `total` images, files or shifts.

    lost: a message about a worker that was just lost.
    """

    name: str
    done: int
    total: int
    lost: str | None = None


def report_progress(name: str, done: int, total: int, lost: str | None = None) -> None:
    report_event(Stage(name, done, total, lost))


def report_event(event: object) -> None:
    """Report an event of any type. If the listener raises an error, the work ends (see
    `listening`)."""
    obey_signal()
    listener = _listener.get()
    if listener is None:
        _line(event)
        return
    try:
        listener(event)
    except Exception as error:
        raise _Ended(error) from error


def track(
    items: Iterable[Item],
    name: str,
    total: int | None = None,
    every: int = 1,
) -> Iterator[Item]:
    """Yield the items. Report after every `every`-th item and after the last. `total` defaults to
    `len(items)`."""
    if total is None:
        assert isinstance(items, Sized)
        total = len(items)
    for done, item in enumerate(items, 1):
        yield item
        if done % every == 0 or done == total:
            report_progress(name, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send all reports within the block to `listener`. If it raises an error, the work ends and the
    block raises it."""
    before = _listener.set(listener)
    refused = None
    try:
        yield
    except _Ended as ended:
        refused = ended.error
    finally:
        _listener.reset(before)
    if refused is not None:
        raise refused


@contextmanager
def rename_stages(words: str | Callable[[Any], object]) -> Iterator[None]:
    """Change all reports within the block: replace each event by `words(event)`, or rename each
    stage to `words`."""
    outer = _listener.get() or _line

    def renamed(event: Any) -> None:
        if callable(words):
            event = words(event)
        elif isinstance(event, Stage):
            event = replace(event, name=words)
        outer(event)

    before = _listener.set(renamed)
    try:
        yield
    finally:
        _listener.reset(before)


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
    """A line on stderr, in notebooks and on terminals. Each report of a stage overwrites it until
    the stage is done."""

    def __init__(self) -> None:
        self.disabled = False
        self.written = 0.0
        self.length = 0

    def __call__(self, event: Any) -> None:
        if self.disabled or threading.current_thread() is not threading.main_thread():
            return
        if not (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
            return
        described = _described(event)
        now = time.monotonic()
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
        # the work must not fail if the terminal is gone or cannot encode a name
        with suppress(OSError, ValueError):
            sys.stderr.write(f"\r{line.ljust(self.length)}")
            sys.stderr.flush()
        self.length = len(line)


_line = _Line()


def _described(event: Any) -> tuple[str, bool] | None:
    """Describe a stage, a build or the learning of tokens; return the line and whether the work is
    finished."""
    for what, done, total in (
        ("", "done", "total"),
        ("images", "images_done", "images"),
        ("steps", "steps_done", "steps"),
    ):
        if hasattr(event, done) and hasattr(event, total):
            name = str(getattr(event, "name", what))
            strange = {ord(letter): " " for letter in name if not letter.isprintable()}
            shown = name.translate(strange)
            finished = getattr(event, done)
            whole = getattr(event, total)
            return f"{shown}: {finished:,} of {whole:,}", finished >= whole
    return None
