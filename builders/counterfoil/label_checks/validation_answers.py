"""What a second judge answered to validation images, as counts: how they are pinned in a lock, and read from one.

A lock may come from anybody: what is read has the recipe's classes, and whole numbers up to those that are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# By true class id, how many images were answered as which class id.
ValidationAnswers = Mapping[str, Mapping[str, int]]

VALIDATION = "validation"
# What is no class of the recipe's. No class id has brackets.
OTHER = "(other)"
MOST_A_CLASS = 200


def without_validation(pins: Mapping[str, Any]) -> dict[str, Any]:
    """Judges' pins by name, each without what it answered to validation images: what says which judge it is."""
    return {
        name: {key: value for key, value in pin.items() if key != VALIDATION} if isinstance(pin, Mapping) else pin
        for name, pin in pins.items()
    }


def counted(answers: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts of (true class id, answered class id or `OTHER`)."""
    found: dict[str, dict[str, int]] = {}
    for true, answered in answers:
        own = found.setdefault(true, {})
        own[answered] = own.get(answered, 0) + 1
    return found


def validation_of(pin: Any, class_ids: Sequence[str]) -> ValidationAnswers | None:
    """The counts in a judge's pin; None where there are none. ValueError for what no build pins."""
    if not isinstance(pin, Mapping):
        raise ValueError("it pins no judge")
    counts = pin.get(VALIDATION)
    if counts is None:
        return None
    known = set(class_ids)
    if not isinstance(counts, Mapping) or not counts or not set(counts) <= known:
        raise ValueError("the judge's answers to validation images are not by class id")
    for own in counts.values():
        if not isinstance(own, Mapping) or not set(own) <= known | {OTHER}:
            raise ValueError("the judge's answers to validation images are not class ids")
        if not all(type(n) is int and n > 0 for n in own.values()) or not 0 < sum(own.values()) <= MOST_A_CLASS:
            raise ValueError(f"the judge's answers to validation images are not counts of 1 to {MOST_A_CLASS} images")
    return counts
