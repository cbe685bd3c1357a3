"""What a part measured in a world, kept as JSON: a killed run goes on, and what has changed since is measured again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from counterfoil.models.names import folder_sha256
from directions_proof.worlds import AuditedWorld

_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[1] / "builders" / "counterfoil"
# What every part stands on, beside its own file and those of this folder that it imports. Reports and recipes of mining
# change no number.
_MINING = ("methods", "captions.py", "hypotheses.py", "pools.py", "collected.py", "label_check.py")
_BENEATH = (
    *(_PACKAGE / "mining" / name for name in _MINING),
    _PACKAGE / "lab" / "planted.py",
    _PACKAGE / "stats.py",
)
_IMPORT = re.compile(r"^from directions_proof\.(\w+) import", re.MULTILINE)
_TELLS_NO_NUMBER = frozenset({"plan", "intervals"})


def measured(
    part: str, audited: AuditedWorld, measure: Callable[[AuditedWorld], dict[str, Any]], settings: Any = None
) -> dict[str, Any]:
    """What `measure` gives of a world: from an earlier run of the same code, classifier and settings, or now."""
    key = hashlib.sha256(
        json.dumps([_code(part), *_classifiers(audited), settings], sort_keys=True).encode()
    ).hexdigest()
    path = audited.kept / "results" / part / f"{audited.name}-{key[:16]}.json"
    if path.exists():
        return json.loads(path.read_text())
    found = measure(audited)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n")
    temporary.replace(path)
    return found


def _classifiers(audited: AuditedWorld) -> list[str | None]:
    """What was trained in this world."""
    folders = (audited.folder, audited.early_folder, audited.biased_folder)
    return [folder_sha256(folder) if (folder / "config.json").exists() else None for folder in folders]


@cache
def _code(part: str) -> str:
    digest = hashlib.sha256()
    for place in (*_BENEATH, *(_HERE / f"{name}.py" for name in sorted(_imported(part)))):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _imported(name: str) -> set[str]:
    """A file of this folder and those that it imports, and they import."""
    found, waiting = set(), {name}
    while waiting:
        found |= waiting
        texts = [(_HERE / f"{one}.py").read_text(encoding="utf-8") for one in waiting]
        waiting = {one for text in texts for one in _IMPORT.findall(text)} - found - _TELLS_NO_NUMBER
    return found
