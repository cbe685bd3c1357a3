"""Files of the proof, whole or not at all, and results as JSON, found again by what decides them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def saved(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all, by a function that takes an open one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{id(write):x}.part")
    with temporary.open("wb") as stream:
        write(stream)
    temporary.replace(path)


def measured(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The JSON of a path, measured where it is not there."""
    if not path.exists():
        found = measure()
        saved(path, lambda to: to.write((json.dumps(found, indent=1) + "\n").encode()))
    return json.loads(path.read_text(encoding="utf-8"))
