"""What this process asks of the file system, counted where Python asks it: by audit events, and by wrapped functions.

What C code asks by itself is not seen (the stat of a directory's entry, which a listing answers without one, mostly).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

_EVENTS = {
    "open": "opens",
    "os.scandir": "listings",
    "os.listdir": "listings",
    "os.rename": "renames",
    "os.remove": "removals",
    "os.mkdir": "new folders",
}
# These raise no audit event.
_CALLS = {"stat": "stats", "lstat": "stats", "fsync": "flushes"}
KINDS = ("opens", "stats", "listings", "flushes", "renames", "removals")


class CountedFiles:
    """Counts from when it is made until the process ends, but for what is done `aside`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._counting = True
        sys.addaudithook(self._hear)
        for name, kind in _CALLS.items():
            setattr(os, name, self._wrapped(getattr(os, name), kind))

    def since(self, before: Counter[str]) -> dict[str, int]:
        """What was asked since an earlier `counts.copy()`."""
        return {kind: self.counts[kind] - before[kind] for kind in KINDS}

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What is done inside is somebody else's: a worker's."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # What is opened by its number was opened by its name before.
        if self._counting and event in _EVENTS and not isinstance(arguments[0], int):
            self.counts[_EVENTS[event]] += 1

    def _wrapped(self, call: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._counting:
                self.counts[kind] += 1
            return call(*arguments, **options)

        return counted
