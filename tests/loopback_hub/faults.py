"""Faults on demand: what a network and a busy Hub do to requests, listed one by one or drawn as a
seeded storm."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with the `nth` request (and `times - 1` after it) of a method and
    path pattern.

    `path` is searched for as a regular expression; an empty `method` is any. Made by the functions
    below.
    """

    kind: str
    method: str = ""
    path: str = ""
    nth: int = 1
    times: int = 1
    code: int = 0
    retry_after: int | None = None
    seconds: float = 0.0
    after: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.code}" if self.kind == "status" else self.kind

    @classmethod
    def latency(cls, seconds: float, method: str = "", path: str = "", **when: int) -> Fault:
        return cls("latency", method, path, seconds=seconds, **when)

    @classmethod
    def status(
        cls,
        code: int,
        method: str = "",
        path: str = "",
        *,
        retry_after: int | None = None,
        **when: int,
    ) -> Fault:
        """Answer with this status instead of doing the work."""
        return cls("status", method, path, code=code, retry_after=retry_after, **when)

    @classmethod
    def drop(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """Close the connection before the body is read."""
        return cls("drop", method, path, **when)

    @classmethod
    def drop_upload(
        cls, method: str = "PUT", path: str = "", *, after: int = 1, **when: int
    ) -> Fault:
        """Reset the connection after this many bytes of the body."""
        return cls("drop_upload", method, path, after=after, **when)

    @classmethod
    def lose_answer(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """Do the work, then close the connection without an answer."""
        return cls("lose_answer", method, path, **when)

    @classmethod
    def truncate(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """End the answer in the middle of its body."""
        return cls("truncate", method, path, **when)

    @classmethod
    def expire(cls, method: str = "PUT", path: str = "/lfs/", **when: int) -> Fault:
        """Refuse a signed address as expired."""
        return cls("expire", method, path, **when)

    def meets(self, method: str, path: str) -> bool:
        return self.method in {"", method} and re.search(self.path, path) is not None


class Faults:
    """The faults of a hub, by default none."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = list(faults)
        self._met = [0] * len(self._faults)
        self._lock = threading.Lock()

    @staticmethod
    def storm(seed: int, rate: float, **settings: Any) -> Faults:
        """Return random, reproducible faults; settings as in `storm.Storm`."""
        from loopback_hub.storm import Storm

        return Storm(seed, rate, **settings)

    def add(self, *faults: Fault) -> None:
        """Add faults; they count requests from now on."""
        with self._lock:
            self._faults.extend(faults)
            self._met.extend(0 for _ in faults)

    def clear(self) -> None:
        with self._lock:
            self._faults = []
            self._met = []

    def draw(
        self, method: str, path: str, query: Mapping[str, list[str]], *, storage: bool
    ) -> Fault | None:
        """Return the first listed fault whose turn it is at this request."""
        drawn = None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.meets(method, path):
                    self._met[index] += 1
                    if drawn is None and fault.nth <= self._met[index] < fault.nth + fault.times:
                        drawn = fault
        return drawn
