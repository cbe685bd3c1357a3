"""What the loopback Hub answers: contents, refusals, and the Hub's own words and error codes for
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """A status, headers and a body: bytes, or the part from `start` on of a file, `length` bytes
    long."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    start: int = 0
    length: int = 0

    @classmethod
    def of(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
        """Return a JSON document as an answer."""
        kind = {"Content-Type": "application/json; charset=utf-8"}
        return cls(status, json.dumps(value).encode(), {**kind, **(headers or {})})

    @property
    def size(self) -> int:
        return len(self.body) if self.file is None else self.length


class Refusal(Exception):
    """A request that cannot be granted, as the Hub says it: message, and a code where it gives
    one."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def answer(self) -> Answer:
        # A header is one line of ASCII; the body has the message as it is.
        shown = " ".join(self.message.split()).encode("ascii", "replace").decode()
        headers = {**self.headers, "X-Error-Message": shown}
        if self.code is not None:
            headers["X-Error-Code"] = self.code
        answer = Answer.of({"error": self.message, **self.more}, self.status)
        return Answer(self.status, answer.body, {**answer.headers, **headers})


def repository_not_found(*, known: bool) -> Refusal:
    """Refuse a known user with 404 and a stranger with 401, whether the repository is missing or
    hidden.

    Clients of the Hub know a stranger's 401 by its https address; here they know it by the code.
    """
    if known:
        return Refusal(404, "Repository not found", "RepoNotFound")
    return Refusal(401, "Invalid username or password.", "RepoNotFound")


def revision_not_found(revision: str) -> Refusal:
    return Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def entry_not_found(message: str = "Entry not found", *, commit: str | None = None) -> Refusal:
    """Return the refusal of a missing entry; clients remember it if it names the commit."""
    return Refusal(
        404, message, "EntryNotFound", headers={"X-Repo-Commit": commit} if commit else None
    )
