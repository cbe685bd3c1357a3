"""Faults on demand: what a network and a busy Hub do to requests, listed one by one or drawn as a seeded storm."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with the `nth` request (and `times - 1` after it) of a method and path pattern.

    `path` is searched for as a regular expression; an empty `method` is any. Made by the functions below.
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
        """The answer takes this much longer."""
        return cls("latency", method, path, seconds=seconds, **when)

    @classmethod
    def status(
        cls, code: int, method: str = "", path: str = "", *, retry_after: int | None = None, **when: int
    ) -> Fault:
        """This status in place of the work."""
        return cls("status", method, path, code=code, retry_after=retry_after, **when)

    @classmethod
    def drop(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """The connection closes before the body is read."""
        return cls("drop", method, path, **when)

    @classmethod
    def drop_upload(cls, method: str = "PUT", path: str = "", *, after: int = 1, **when: int) -> Fault:
        """The connection is reset once this many bytes of the body have come in."""
        return cls("drop_upload", method, path, after=after, **when)

    @classmethod
    def lose_answer(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """The work is done, then the connection closes without an answer."""
        return cls("lose_answer", method, path, **when)

    @classmethod
    def truncate(cls, method: str = "", path: str = "", **when: int) -> Fault:
        """The answer ends in the middle of its body."""
        return cls("truncate", method, path, **when)

    @classmethod
    def expire(cls, method: str = "PUT", path: str = "/lfs/", **when: int) -> Fault:
        """A signed address has expired."""
        return cls("expire", method, path, **when)

    def meets(self, method: str, path: str) -> bool:
        return self.method in {"", method} and re.search(self.path, path) is not None


class Faults:
    """The faults that a hub deals out; without any, none."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = list(faults)
        self._met = [0] * len(self._faults)
        self._lock = threading.Lock()

    @staticmethod
    def storm(seed: int, rate: float, **settings: Any) -> Faults:
        """Faults drawn at random, reproducibly; settings as in `storm.Storm`."""
        from loopback_hub.storm import Storm

        return Storm(seed, rate, **settings)

    def add(self, *faults: Fault) -> None:
        """More faults; they count requests from now on."""
        with self._lock:
            self._faults.extend(faults)
            self._met.extend(0 for _ in faults)

    def clear(self) -> None:
        with self._lock:
            self._faults, self._met = [], []

    def draw(self, method: str, path: str, query: Mapping[str, list[str]], *, storage: bool) -> Fault | None:
        """The fault that this request meets: the first listed one whose turn it is."""
        found = None
        with self._lock:
            for index, fault in enumerate(self._faults):
                if fault.meets(method, path):
                    self._met[index] += 1
                    if found is None and fault.nth <= self._met[index] < fault.nth + fault.times:
                        found = fault
        return found
