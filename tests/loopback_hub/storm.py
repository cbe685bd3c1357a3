"""A storm: faults drawn from a seed for any request, the same for the same requests, never for one
request forever."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlencode

from loopback_hub.faults import Fault, Faults

STATUSES = (408, 429, 500, 502, 503, 504)
KINDS = (
    "latency",
    "status",
    "conflict",
    "drop",
    "drop_upload",
    "lose_answer",
    "truncate",
    "expire",
)


@dataclass
class _Met:
    times: int = 0
    in_a_row: int = 0


@dataclass
class Storm(Faults):
    """Meets each request with probability `rate`.

    What is drawn depends on the seed, the request (method, path and query) and how often it came
    before: neither on the clock nor on the order in which threads send. After `at_most_in_a_row`
    failures the same request succeeds.
    """

    seed: int
    rate: float
    kinds: Collection[str] = KINDS
    at_most_in_a_row: int = 2
    latency: float = 0.02
    _seen: dict[str, _Met] = field(default_factory=lambda: defaultdict(_Met), repr=False)

    def __post_init__(self) -> None:
        super().__init__()
        unknown = set(self.kinds) - set(KINDS)
        if unknown:
            raise ValueError(f"a storm has no {sorted(unknown)}; there are {KINDS}")

    def draw(
        self, method: str, path: str, query: Mapping[str, list[str]], *, storage: bool
    ) -> Fault | None:
        """Return a fault listed with `add`, else the storm's fault for this request."""
        listed = super().draw(method, path, query, storage=storage)
        if listed is not None:
            return listed
        request = f"{method} {path}?{urlencode(sorted(query.items()), doseq=True)}"
        with self._lock:
            met = self._seen[request]
            met.times += 1
            random = Random(hashlib.sha256(f"{self.seed} {met.times} {request}".encode()).digest())
            fault = (
                self._fault(random, method, path, storage=storage)
                if random.random() < self.rate
                else None
            )
            fails = fault is not None and fault.kind != "latency"
            if fails and met.in_a_row >= self.at_most_in_a_row:
                fault = None
                fails = False
            met.in_a_row = met.in_a_row + 1 if fails else 0
        return fault

    def _fault(self, random: Random, method: str, path: str, *, storage: bool) -> Fault | None:
        kind = random.choice([kind for kind in KINDS if kind in self.kinds])
        brings_body = method in {"POST", "PUT"}
        if kind == "status":
            code = random.choice(STATUSES)
            return Fault.status(code, retry_after=1 if code in {429, 503} else None)
        if kind == "conflict":
            # What a commit or a merge meets where another one came first.
            return (
                Fault.status(412)
                if method == "POST" and ("/commit/" in path or path.endswith("/merge"))
                else None
            )
        if kind == "drop_upload":
            return Fault.drop_upload(after=random.randrange(1, 4096)) if brings_body else None
        if kind == "expire":
            return Fault.expire() if storage else None
        if kind == "truncate" and method == "HEAD":
            return None
        return Fault.latency(random.random() * self.latency) if kind == "latency" else Fault(kind)
