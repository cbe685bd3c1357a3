"""What a part measured in a world, kept as JSON: a killed run goes on, and what has changed since is measured again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from counterfoil.models.names import folder_sha256
from directions_proof.worlds import AuditedWorld

_PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil"
# Every part stands on these, and on its own file.
_BENEATH = (_PACKAGE / "mining", _PACKAGE / "lab" / "planted.py", Path(__file__).with_name("worlds.py"))


def measured(
    part: str, audited: AuditedWorld, measure: Callable[[AuditedWorld], dict[str, Any]], settings: Any = None
) -> dict[str, Any]:
    """What `measure` gives of a world: from an earlier run of the same code, classifier and settings, or now."""
    key = hashlib.sha256(
        json.dumps([_code(part), folder_sha256(audited.folder), _others(audited), settings], sort_keys=True).encode()
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


def _others(audited: AuditedWorld) -> list[str | None]:
    """What else was trained in this world."""
    folders = (audited.early_folder, audited.biased_folder)
    return [folder_sha256(folder) if (folder / "config.json").exists() else None for folder in folders]


@cache
def _code(part: str) -> str:
    digest = hashlib.sha256()
    for place in (*_BENEATH, Path(__file__).with_name(f"{part}.py")):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
