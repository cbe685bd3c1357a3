"""The Hub's quotas: calls in five minutes, commits in an hour to one repository, bytes stored."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict

from loopback_hub.answers import Refusal

CALL_WINDOW = 300  # seconds; the Hub's rate limits, 2026
COMMIT_WINDOW = 3600


class Window:
    """At most `limit` takings in `seconds`, counted from the first; None as limit is no limit.

    `scale` is the one of the clients' sleeps: at 0.01 an hour of this clock is 36 seconds.
    """

    def __init__(self, limit: int | None, seconds: int, scale: float) -> None:
        self.limit = limit
        self.seconds = seconds
        self._scale = scale
        self._lock = threading.Lock()
        self._opened = -math.inf
        self._taken = 0

    def take(self) -> int | None:
        """Return None if the window has room, else the whole seconds until it has."""
        if self.limit is None:
            return None
        with self._lock:
            self._renew()
            if self._taken < self.limit:
                self._taken += 1
                return None
            return self._left()

    def headers(self, name: str) -> dict[str, str]:
        """Return the headers about a window that the Hub sends with every answer."""
        if self.limit is None:
            return {}
        with self._lock:
            self._renew()
            return {
                "RateLimit": f'"{name}";r={self.limit - self._taken};t={self._left()}',
                "RateLimit-Policy": f'"fixed window";"{name}";q={self.limit};w={self.seconds}',
            }

    def _renew(self) -> None:
        if self._now() >= self._opened + self.seconds:
            self._opened, self._taken = self._now(), 0

    def _left(self) -> int:
        return max(1, math.ceil(self._opened + self.seconds - self._now()))

    def _now(self) -> float:
        return time.monotonic() / self._scale


class Limits:
    """The quotas of one hub; None is no limit."""

    def __init__(
        self,
        *,
        commits: int | None = None,
        calls: int | None = None,
        storage: int | None = None,
        scale: float = 1.0,
    ) -> None:
        self.storage = storage
        self.calls = Window(calls, CALL_WINDOW, scale)
        self._commits: dict[str, Window] = defaultdict(
            lambda: Window(commits, COMMIT_WINDOW, scale)
        )

    def count_call(self) -> None:
        wait = self.calls.take()
        if wait is not None:
            raise Refusal(429, "We had to rate limit you.", headers={"Retry-After": str(wait)})

    def count_commit(self, repository: str) -> None:
        window = self._commits[repository]
        wait = window.take()
        if wait is not None:
            message = (
                f"You have exceeded the rate limit for repository commits ({window.limit} per"
                " hour). "
                f"You can retry this action in about {math.ceil(wait / 60)} minutes."
            )
            raise Refusal(
                429, message, headers={"Retry-After": str(wait), **window.headers("commits")}
            )

    def check_storage(self, stored: int, added: int, *, private: bool) -> None:
        if self.storage is not None and stored + added > self.storage:
            kind = "Private" if private else "Public"
            raise Refusal(
                403,
                f"{kind} repository storage limit reached, please upgrade your plan to increase"
                " your "
                f"{kind.lower()} storage limit.",
            )
