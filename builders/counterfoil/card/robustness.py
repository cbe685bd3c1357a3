"""The card's section "What fails": models and shifts of stored results, as bounded tables with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.card.spoken_results import Gap, gap_sentences, near_chance_sentences, unknown_sentences

# What a person reads; all of it is in evaluation/robustness.csv.
MOST_MODELS = 20
MOST_COLUMNS = 6
MOST_SHIFTS = 40


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model: its class-averaged accuracy on the base, the gap from validation images, its drop over shifts, as text.

    near_chance: whether averages over models leave it out.
    """

    name: str
    sha256: str
    accuracy: str
    validation: str
    gap: str
    average_drop: str
    near_chance: bool


@dataclass(frozen=True, slots=True)
class ShiftRow:
    """A shift: its impact on all models, its slope, the classes counted, and the drops of the models shown, as text.

    relative: the share of base accuracy that is lost, averaged over models. drops tell the base accuracy beside each.
    """

    name: str
    impact: str
    relative: str
    slope: str
    classes: int
    left_out: int
    drops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoredSource:
    """The source's validation images, as DATASET:SPLIT: how many were scored, of how many classes, where any were."""

    split: str
    images: int
    classes: int
    skipped: bool


@dataclass(frozen=True, slots=True)
class Robustness:
    """What the section shows. `columns` are the models that have a column of drops; largest drops come first.

    warnings: sentences on a base that is not like the validation images; floor: on what is near chance there, with the
    models that are.
    """

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
    reference: ScoredSource | None
    warnings: tuple[str, ...]
    floor: tuple[str, ...]
    near_chance: frozenset[str]


def robustness_of(results: Mapping[str, Any] | None) -> Robustness | None:
    """The section of these results (see `store.results`); None where there are none, or none of this form."""
    if results is None:
        return None
    try:
        return _robustness(results)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # sealed, but by another hand


def _robustness(results: Mapping[str, Any]) -> Robustness:
    models = sorted(results["models"], key=_by_base)
    columns = tuple(model["name"] for model in models[:MOST_COLUMNS])
    near = {str(model["name"]) for model in models if model["near_chance"]}
    shifts = sorted(results["shifts"], key=_by_impact)
    reference = results.get("reference")
    compared = {} if reference is None else reference["models"]
    gaps = {str(name): _gap(name, one) for name, one in compared.items()}
    low_classes = [str(one["name"]) for one in results["near_chance_classes"]]
    base = results["base"]
    all_classes = 0 if base is None else int(base["classes"]) + len(base["classes_left_out"])
    unseen = None if reference is None or reference["unseen"] is None else float(reference["unseen"])
    known = reference is not None and bool(reference.get("unseen_known"))
    return Robustness(
        models=tuple(_model_row(model, gaps.get(str(model["name"]))) for model in models[:MOST_MODELS]),
        all_models=len(models),
        columns=columns,
        shifts=tuple(_shift_row(shift, columns, near) for shift in shifts[:MOST_SHIFTS]),
        all_shifts=len(shifts),
        min_images=int(results["min_images_per_class"]),
        seed=int(results["seed"]),
        paired=bool(results["paired"]),
        slopes=any(shift["slope"] for shift in shifts),
        unreadable=int(results["unreadable"]),
        reference=None if reference is None else _reference(reference),
        warnings=gap_sentences(list(gaps.values()), low_classes, unseen, known=known),
        floor=(
            *near_chance_sentences(low_classes, all_classes, sorted(near), len(models)),
            *unknown_sentences(low_classes, unseen, known=known),
        ),
        near_chance=frozenset(near),
    )


def _reference(reference: Mapping[str, Any]) -> ScoredSource:
    return ScoredSource(
        str(reference["split"]), int(reference["images"]), int(reference["classes"]), bool(reference["skipped"])
    )


def _gap(name: str, one: Mapping[str, Any]) -> Gap:
    ends = [None if one["gap"][end] is None else float(one["gap"][end]) for end in ("low", "high")]
    values = (float(each["value"]) for each in (one["validation"], one["base"], one["gap"]))
    return Gap(str(name), *values, *ends)


def _by_base(model: Mapping[str, Any]) -> tuple[bool, float, str]:
    """The best on the base first; what has no number there comes last."""
    base = model["base"]
    return (base is None, 0.0 if base is None else -base["value"], model["name"])


def _by_impact(shift: Mapping[str, Any]) -> tuple[bool, float, str]:
    """Largest drops first; what was not measured comes last."""
    impact = shift["impact"]
    return (impact is None, 0.0 if impact is None else -impact["value"], shift["name"])


def _model_row(model: Mapping[str, Any], gap: Gap | None) -> ModelRow:
    drop = model["average_drop"]
    return ModelRow(
        name=str(model["name"]),
        sha256=str(model["sha256"]),
        accuracy=_percent(model["base"]),
        validation="–" if gap is None else f"{100 * gap.validation:.1f} %",
        gap="–" if gap is None else _points({"value": gap.gap, "low": gap.low, "high": gap.high}),
        average_drop="–" if drop is None else f"{100 * drop:.1f} points",
        near_chance=bool(model["near_chance"]),
    )


def _shift_row(shift: Mapping[str, Any], columns: Sequence[str], near: set[str]) -> ShiftRow:
    line = shift["slope"]
    sound = [one for name, one in shift["models"].items() if name not in near and one["relative_drop"] is not None]
    relative = sum(one["relative_drop"]["value"] for one in sound) / len(sound) if sound else None
    return ShiftRow(
        name=str(shift["name"]),
        impact=_points(shift["impact"]),
        relative="–" if relative is None else f"{100 * relative:.1f} %",
        slope="–" if line is None else f"{line['slope']:.2f} ({line['low']:.2f} to {line['high']:.2f})",
        classes=int(shift["classes"]),
        left_out=len(shift["classes_left_out"]),
        drops=tuple(_drop(shift["models"][name]) for name in columns),
    )


def _drop(score: Mapping[str, Any]) -> str:
    """A drop in points, beside the base accuracy that it is from."""
    if score["drop"] is None or score["base_accuracy"] is None:
        return "–"
    return f"{_points(score['drop'])} of {100 * score['base_accuracy']:.1f} %"


def _percent(estimate: Mapping[str, Any] | None) -> str:
    """An accuracy in percent with its interval."""
    return _with_interval(estimate, " %")


def _points(estimate: Mapping[str, Any] | None) -> str:
    """A difference of accuracies in points with its interval."""
    return _with_interval(estimate, " points")


def _with_interval(estimate: Mapping[str, Any] | None, unit: str) -> str:
    if estimate is None:
        return "–"
    value = f"{100 * estimate['value']:.1f}{unit}"
    if estimate["low"] is None or estimate["high"] is None:
        return value
    return f"{value} ({100 * estimate['low']:.1f} to {100 * estimate['high']:.1f})"
