"""lock.json: what a dataset directory is made from; anything else is not mixed into it.

It keeps the three hashes, the documents behind the plan and screen hashes (so that messages can say what differs),
the pinned inputs, the stack, and each group's number of shards in the plan's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.documents import differences, document_bytes
from counterfoil.errors import RunFailure, UserError
from counterfoil.recipe.names import GROUP_NAME
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import read_own_json
from counterfoil.store.layout import LOCK

VERSION = 1
# The input that records the realised levels of shifts.
LEVELS = "levels"
HASHES = ("plan", "screen", "inputs")
# The inputs that a build pins, and the keys of a pin that hold text or nothing.
_INPUTS = (
    "models", "source", "tokens", "embeddings", "judges", "loras", "pool", "retrieved", "edited", "given", "thresholds",
    LEVELS,
)  # fmt: skip
_TEXTS = ("name", "dataset", "revision", "license", "content")


@dataclass(frozen=True, slots=True)
class Lock:
    """The content of lock.json."""

    hashes: Mapping[str, str]
    plan: Mapping[str, Any]
    screen: Mapping[str, Any]
    inputs: Mapping[str, Any]
    stack: Mapping[str, Any]
    groups: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "hashes": dict(self.hashes),
            "plan": self.plan,
            "screen": self.screen,
            "inputs": self.inputs,
            "stack": self.stack,
            # A list, since JSON objects written with sorted keys lose the plan's order.
            "groups": [{"name": name, "shards": shards} for name, shards in self.groups.items()],
        }


def write_lock(directory: Path, lock: Lock) -> None:
    write_atomically(directory / LOCK, document_bytes(lock.document()))


def read_lock(directory: Path) -> Lock | None:
    """Read the lock of a directory, None if it has none. RunFailure if it is damaged."""
    path = directory / LOCK
    if not path.exists():
        return None
    document = read_own_json(directory, LOCK)
    try:
        version = document["version"]
        if version != VERSION:
            raise UserError(
                f"{path}: found version {version}, expected {VERSION}",
                hint="Use the release of Counterfoil that built this dataset.",
            )
        parts = {name: document[name] for name in ("hashes", "plan", "screen", "inputs", "stack")}
        lock = Lock(**parts, groups={group["name"]: group["shards"] for group in document["groups"]})
        wrong = _wrong_form(lock)
    except (KeyError, TypeError, AttributeError) as error:
        lock, wrong = None, repr(error)
    if lock is None or wrong is not None:
        raise RunFailure(
            f"{path} is not a lock of Counterfoil: {wrong}",
            hint="Restore it from a copy, or build into another folder.",
        )
    return lock


def _wrong_form(lock: Lock) -> str | None:
    """Return what is not of the form that Counterfoil writes, or None: the JSON may come from anyone."""
    for name in ("hashes", "plan", "screen", "inputs", "stack"):
        if not isinstance(getattr(lock, name), Mapping):
            return f"'{name}' is not a mapping"
    for name in _INPUTS:
        if not isinstance(lock.inputs.get(name), Mapping | None):
            return f"'inputs.{name}' is not a mapping"
    pins = {f"models.{name}": pin for name, pin in (lock.inputs.get("models") or {}).items()}
    pins |= {f"loras.{name}": pin for name, pin in (lock.inputs.get("loras") or {}).items()}
    pins |= {name: lock.inputs.get(name) or {} for name in ("source", "pool")}
    for name, pin in pins.items():
        if not isinstance(pin, Mapping) or not all(isinstance(pin.get(key), str | None) for key in _TEXTS):
            return f"'inputs.{name}' is not a pin"
    if not isinstance(lock.stack.get("versions"), Mapping | None):
        return "'stack.versions' is not a mapping"
    if not all(isinstance(value, str) for value in lock.hashes.values()):
        return "'hashes' holds something else than text"
    for name, shards in lock.groups.items():
        if not isinstance(name, str) or not GROUP_NAME.fullmatch(name) or type(shards) is not int or shards < 1:
            return f"'groups' holds {name!r} with {shards!r} shards"
    return None


def refuse_other_hashes(directory: Path, there: Lock, here: Lock) -> None:
    """Raise UserError with every difference if the directory has another plan, screen or inputs."""
    problems = []
    for name in HASHES:
        if there.hashes.get(name) == here.hashes.get(name):
            continue
        differs = "from other inputs" if name == "inputs" else f"with another {name}"
        problems.append(f"{directory} was built {differs}:")
        lines = differences(getattr(there, name), getattr(here, name))
        problems += [f"  {line}" for line in lines or differences(there.hashes, here.hashes, "hash")]
    if not problems and dict(there.groups) != dict(here.groups):
        problems = [f"{directory} was laid out in other shards:"]
        problems += [f"  {line}" for line in differences(dict(there.groups), dict(here.groups))]
    if problems:
        raise UserError(problems, hint="Build into another folder, or restore the recipe that this one was built with.")


def refuse_other_stack(directory: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise UserError with every difference if the directory was rendered with another stack."""
    if lines := differences(there, here):
        raise UserError(
            [f"{directory} was rendered by another stack, which may change bytes:", *(f"  {line}" for line in lines)],
            hint="Use the old stack, build into another folder, or pass --allow-mixed (the card will say so).",
        )
