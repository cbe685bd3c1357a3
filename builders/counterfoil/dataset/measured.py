"""Thresholds that a dataset directory has measured of validation images, believed where its lock pins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.screen.known_classes import KnownClasses
from counterfoil.screen.thresholds import Measured, ThresholdEntry, Thresholds
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import THRESHOLDS
from counterfoil.store.lock import Lock


@dataclass(frozen=True, slots=True)
class MeasuredBefore:
    """Entries by caption, class and percentile, and what CLIP made of the classes; nothing where nothing is known."""

    entries: Mapping[Measured, ThresholdEntry] = field(default_factory=dict)
    known: KnownClasses | None = None


def measured_thresholds(directory: Path, lock: Lock) -> MeasuredBefore:
    """What is there; nothing where thresholds.json is absent, of another form or not as the lock pins it."""
    try:
        thresholds = Thresholds.read(read_inside(directory, THRESHOLDS))
        if thresholds.pin() != lock.inputs.get("thresholds"):
            return MeasuredBefore()
        captions = {shift["shift"]: shift["object_caption"] for shift in lock.screen["shifts"]}
        return MeasuredBefore(thresholds.measured(captions), thresholds.known)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return MeasuredBefore()
