"""Files of the proof, whole or not at all, and results as JSON, found again by what decides them."""

from __future__ import annotations

import hashlib
import json
import re
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


_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[1] / "builders" / "counterfoil"
_BENEATH = (
    "mending/fitting.py", "mending/judging.py", "mending/arms.py", "mending/fitting.py", "mending/judging.py",
    "mending/judging.py", "mending/judging.py",
    "mining/contexts/choosing.py", "mining/directions", "mining/captions/scoring.py", "sources/halves.py",
    "lab/planted.py", "lab/scenes.py",
)  # fmt: skip
_IMPORT = re.compile(r"^(?:from mend_proof\.(\w+) import|from mend_proof import (.+))", re.MULTILINE)
_TELLS_NO_NUMBER = frozenset({"plan", "kept", "parts", "drawing"})


def code_of(name: str) -> str:
    """A hash of a file of this folder, of those of this folder that it imports, and of the package beneath."""
    digest = hashlib.sha256()
    files = [_HERE / f"{name}.py" for name in sorted(_imported(name))]
    for place in (*(_PACKAGE / name for name in _BENEATH), *files):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _imported(name: str) -> set[str]:
    found, waiting = set(), {name}
    while waiting:
        found |= waiting
        texts = [(_HERE / f"{one}.py").read_text(encoding="utf-8") for one in waiting]
        named = [
            one for text in texts for pair in _IMPORT.findall(text) for one in (pair[0], *pair[1].split(", ")) if one
        ]
        waiting = set(named) - found - _TELLS_NO_NUMBER
    return found
