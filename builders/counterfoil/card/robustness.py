"""The card's section "What fails": models and shifts of stored results, as bounded tables with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What a person reads; all of it is in evaluation/robustness.csv.
MOST_MODELS = 20
MOST_COLUMNS = 6
MOST_SHIFTS = 40


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model with its plain accuracy on the base images and its drop averaged over shifts, as text."""

    name: str
    sha256: str
    accuracy: str
    average_drop: str


@dataclass(frozen=True, slots=True)
class ShiftRow:
    """A shift: its impact on all models, its slope, the classes counted, and the drops of the models shown, as text."""

    name: str
    impact: str
    slope: str
    classes: int
    left_out: int
    drops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Robustness:
    """What the section shows. `columns` are the models that have a column of drops; largest drops come first."""

    models: tuple[ModelRow, ...]
    all_models: int
    columns: tuple[str, ...]
    shifts: tuple[ShiftRow, ...]
    all_shifts: int
    min_images: int
    seed: int
    paired: bool
    slopes: bool
    unreadable: int


def robustness_of(results: Mapping[str, Any] | None) -> Robustness | None:
    """The section of these results (see `store.results`); None where there are none, or none of this form."""
    if results is None:
        return None
    try:
        return _robustness(results)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # sealed, but by another hand


def _robustness(results: Mapping[str, Any]) -> Robustness:
    models = sorted(results["models"], key=lambda model: (-model["accuracy"]["value"], model["name"]))
    columns = tuple(model["name"] for model in models[:MOST_COLUMNS])
    shifts = sorted(results["shifts"], key=_by_impact)
    return Robustness(
        models=tuple(_model_row(model) for model in models[:MOST_MODELS]),
        all_models=len(models),
        columns=columns,
        shifts=tuple(_shift_row(shift, columns) for shift in shifts[:MOST_SHIFTS]),
        all_shifts=len(shifts),
        min_images=int(results["min_images_per_class"]),
        seed=int(results["seed"]),
        paired=bool(results["paired"]),
        slopes=any(shift["slope"] for shift in shifts),
        unreadable=int(results["unreadable"]),
    )


def _by_impact(shift: Mapping[str, Any]) -> tuple[bool, float, str]:
    """Largest drops first; what was not measured comes last."""
    impact = shift["impact"]
    return (impact is None, 0.0 if impact is None else -impact["value"], shift["name"])


def _model_row(model: Mapping[str, Any]) -> ModelRow:
    drop = model["average_drop"]
    return ModelRow(
        name=str(model["name"]),
        sha256=str(model["sha256"]),
        accuracy=_percent(model["accuracy"]),
        average_drop="–" if drop is None else f"{100 * drop:.1f}",
    )


def _shift_row(shift: Mapping[str, Any], columns: Sequence[str]) -> ShiftRow:
    line = shift["slope"]
    return ShiftRow(
        name=str(shift["name"]),
        impact=_percent(shift["impact"]),
        slope="–" if line is None else f"{line['slope']:.2f} ({line['low']:.2f} to {line['high']:.2f})",
        classes=int(shift["classes"]),
        left_out=len(shift["classes_left_out"]),
        drops=tuple(_percent(shift["models"][name]["drop"]) for name in columns),
    )


def _percent(estimate: Mapping[str, Any] | None) -> str:
    """A fraction in percent with its interval."""
    if estimate is None:
        return "–"
    value = f"{100 * estimate['value']:.1f}"
    if estimate["low"] is None or estimate["high"] is None:
        return value
    return f"{value} ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"
