"""What is wrong with the rows of one file, each kind of fault told once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]


class RowFaults:
    """What is wrong with the rows of one file: each kind of fault once, with its first row and the number of rows."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._rows: dict[str, int] = {}

    def add(self, alike: str, key: Any, text: str) -> None:
        """`alike` says which faults are alike, such as the name of a column."""
        self._first.setdefault(alike, f"is wrong in {_plain(key)}: {text}")
        self._rows[alike] = self._rows.get(alike, 0) + 1

    def lines(self) -> Iterator[str]:
        for alike, first in self._first.items():
            more = self._rows[alike] - 1
            yield first + (f" (and {more} more row{'s' if more > 1 else ''} like it)" if more else "")

    def __bool__(self) -> bool:
        return bool(self._first)


def _plain(key: Any) -> str:
    """A key as it is written; what is none is quoted, since a stranger's file may hold anything."""
    return key if isinstance(key, str) and key.replace("_", "").replace("-", "").isalnum() else shown_value(key)


def shown_value(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"
