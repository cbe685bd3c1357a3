"""JSON documents of a dataset: one way to write them, so that equal content is equal bytes; and how two differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import CounterfoilError, RunFailure
from counterfoil.store.inside import read_inside


def document_bytes(document: Any) -> bytes:
    """Sorted keys, two spaces, UTF-8, a final newline; refuses NaN, which is not JSON."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_document(directory: Path, path: str) -> Any:
    """A JSON file of a dataset directory, as Counterfoil writes it; RunFailure when it is damaged or not its own."""
    hint = "Restore it from a copy, or build into another folder."
    try:
        return parse_document(read_inside(directory, path))
    except OSError as error:
        raise RunFailure(f"{directory / path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{directory / path} is damaged: {error}", hint) from error


def parse_document(content: bytes) -> Any:
    """The value of a JSON file that may come from anybody. ValueError for what is none, or nested without bound."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_MOST_LINES = 20
_MOST_CHARACTERS = 60
_MOST_IN_ONE = 3  # of one fault or error, where it is shown in one line
_ABSENT = object()


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """Lines for every value that differs, in the order of `there`, at most 20 and a count of the rest."""
    lines = _compare(there, here, path)
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"… and {len(lines) - _MOST_LINES} more"]
    return lines


def _compare(there: Any, here: Any, path: str) -> list[str]:
    left, right = _named(there), _named(here)
    if left is None or right is None:
        if type(there) is type(here) and there == here:
            return []
        return [f"{path or 'content'}: {_shown(there)} there, {_shown(here)} here"]
    lines = []
    for key in {**left, **right}:
        below = f"{path}.{key}" if path else str(key)
        lines += _compare(left.get(key, _ABSENT), right.get(key, _ABSENT), below)
    if not lines and isinstance(there, list | tuple) and list(left) != list(right):
        lines.append(f"{path or 'content'}: the same entries in another order")
    return lines


def _named(value: Any) -> Mapping[str, Any] | None:
    """A mapping or a list as name → entry; None for a plain value. Entries go by id, name or shift."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list | tuple):
        return None
    for name in ("id", "name", "shift"):
        names: list[Any] = [entry.get(name) if isinstance(entry, Mapping) else None for entry in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return {f"[{position}]": entry for position, entry in enumerate(value)}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def error_lines(error: Exception, path: Path) -> tuple[str, ...]:
    """The lines of an error about a file, without the path that they begin with."""
    if not isinstance(error, CounterfoilError):
        return (f"{type(error).__name__}: {error}",)
    return tuple(line.removeprefix(f"{path} ").removeprefix(f"{path}: ") for line in error.problems)


def in_one_line(lines: Sequence[str]) -> str:
    """The first three of some lines, and how many more there are."""
    more = len(lines) - _MOST_IN_ONE
    return "; ".join(lines[:_MOST_IN_ONE]) + (f"; and {more} more" if more > 0 else "")
