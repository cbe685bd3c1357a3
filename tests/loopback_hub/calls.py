"""One request to the loopback Hub, as its endpoints see it, and the log of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopback_hub.answers import Refusal


@dataclass
class LoggedRequest:
    """A request in `hub.requests`. Neither its token nor the signature of an upload URL is kept.

    `status` is None if no answer left: the connection was dropped by a fault or by the client.
    `received` counts the bytes of the body that came in. `fault` names the fault that met it.
    `observer` marks the requests of an observer (see `clients.OBSERVER`): they meet no fault, count
    for no quota and call no hook.
    """

    number: int
    method: str
    path: str
    query: dict[str, list[str]]
    status: int | None = None
    received: int = 0
    fault: str | None = None
    observer: bool = False

    def __str__(self) -> str:
        return (
            f"{self.number} {self.method} {self.path} {self.status} {self.received}"
            f" {self.fault or ''}"
        ).rstrip()


@dataclass
class Call:
    """A request being answered. `user` owns the token that it brought; None for a stranger."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    user: str | None
    may_write: bool
    endpoint: str
    log: LoggedRequest
    chunks: Callable[[], Iterator[bytes]]
    _body: bytes | None = field(default=None, repr=False)

    @property
    def body(self) -> bytes:
        if self._body is None:
            self._body = b"".join(self.chunks())
        return self._body

    @property
    def json(self) -> dict[str, Any]:
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except ValueError as error:
            raise Refusal(400, f"The body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refusal(400, "The body is not a JSON object")
        return value

    def parameter(self, name: str) -> str | None:
        return self.query[name][0] if self.query.get(name) else None

    def truthy(self, name: str) -> bool:
        return (self.parameter(name) or "").lower() in {"1", "true"}
