"""Whether a list of classes, of any form, tells every label, and whether what was found for one is what it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def names_every_label(classes: Any) -> bool:
    """Whether a list of classes, of any form, tells the source label of each; one of another form does: the
    schema refuses it."""
    if classes is None:
        return False
    return not isinstance(classes, list | tuple) or all(
        not isinstance(entry, Mapping) or entry.get("source_label") is not None for entry in classes
    )


def same_classes(told: Any, found: Sequence[Any]) -> bool:
    """Whether classes that were found are those that a recipe tells: null means all; else every key is as told."""
    if told is None:
        return True
    if not isinstance(told, list | tuple) or len(told) != len(found):
        return False
    return all(
        isinstance(one, Mapping)
        and isinstance(other, Mapping)
        and all(value is None or other.get(key) == value for key, value in one.items())
        for one, other in zip(told, found, strict=True)
    )
