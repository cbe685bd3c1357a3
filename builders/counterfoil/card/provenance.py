"""What a dataset's bytes come from beside its inputs: the three hashes of lock.json, and the stack, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OVER = {
    "plan": "what is rendered: classes, prompts, seed, samples, generator, format and layout",
    "screen": "what is kept: captions, CLIP model, thresholds, keep rule",
    "inputs": "what names stood for: commits and hashes of models, input dataset, tokens, thresholds",
}


def hash_rows(lock: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """(name, SHA-256, what it is over) of the hashes that lock.json has."""
    hashes = lock.get("hashes", {})
    return tuple((name, str(hashes[name]), over) for name, over in _OVER.items() if name in hashes)


def stack_lines(lock: Mapping[str, Any]) -> tuple[str, ...]:
    """`name value` of everything that the stack in lock.json holds, versions last; nothing for what is null."""
    stack = dict(lock.get("stack", {}))
    versions = stack.pop("versions", None) or {}
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in sorted(stack.items()) if value is not None]
    return (*settings, *(f"{name} {version}" for name, version in sorted(versions.items())))
