"""How two documents differ, one readable line a key: "generator.steps: 20 there, 30 here"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_MOST_LINES = 20
_MOST_CHARACTERS = 60
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
