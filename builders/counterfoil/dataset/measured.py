"""Thresholds that a dataset directory has measured of validation images, believed where its lock pins them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from counterfoil.screen.thresholds import Measured, ThresholdEntry, Thresholds
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import THRESHOLDS
from counterfoil.store.lock import Lock


def measured_thresholds(directory: Path, lock: Lock) -> Mapping[Measured, ThresholdEntry]:
    """What is there; nothing where thresholds.json is absent, of another form or not as the lock pins it."""
    try:
        thresholds = Thresholds.read(read_inside(directory, THRESHOLDS))
        if thresholds.pin() != lock.inputs.get("thresholds"):
            return {}
        return thresholds.measured({shift["shift"]: shift["object_caption"] for shift in lock.screen["shifts"]})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
