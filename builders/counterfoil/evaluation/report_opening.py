"""What opens the report: whether the base is the input dataset for the models, and the tiles that stand for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.evaluation.figure_style import spoken
from counterfoil.evaluation.reference_results import ReferenceGap
from counterfoil.evaluation.results import Evaluation, ModelResult, ShiftResult
from counterfoil.evaluation.spoken_numbers import between, percent, points

# A gap of more points is large, whatever its interval.
LARGE_GAP = 0.1


@dataclass(frozen=True)
class Opening:
    """Of validation → base: the section's title, warnings, and why it was not measured."""

    title: str
    warnings: tuple[str, ...]
    not_measured: str


@dataclass(frozen=True)
class Tile:
    """A number of the page's head."""

    label: str
    value: str
    note: str


def checked_shifts(evaluation: Evaluation) -> frozenset[str]:
    """The groups whose labels somebody, or something but the screen, has checked."""
    checks = evaluation.label_checks
    if checks is None:
        return frozenset()
    return frozenset(group.name for group in evaluation.groups if checks.of(group.name).checked)


def gap_words(gap: ReferenceGap) -> str:
    """What a gap says, in words."""
    if not gap.large:
        return "no large gap"
    lower = "lower" if gap.gap.value > 0 else "higher"
    return f"base {lower} by over 10 points" if abs(gap.gap.value) > LARGE_GAP else f"base {lower}, beyond the interval"


def opening(evaluation: Evaluation) -> Opening:
    """The opening of a report with a base."""
    reference = evaluation.reference
    title = "Validation → base"
    if reference is None or not reference.gaps:
        why = "it was not asked for" if reference is None else (reference.skipped or "no model has a gap")
        return Opening(title, (), f"Validation → base was not measured: {why}. So it is not known here whether the base"
                       " is as easy as the input dataset’s own images.")  # fmt: skip
    large = [gap for gap in reference.gaps if gap.large]
    if not large:
        return Opening(title, (), "")
    names = {model.name: model.short_name for model in evaluation.models}
    worst = max(large, key=lambda gap: abs(gap.gap.value))
    over = [gap for gap in large if abs(gap.gap.value) > LARGE_GAP]
    how = [
        f"{len(over)} by over 10 points" if over else "",
        f"{len(large) - len(over)} by less, but beyond the interval" if len(large) > len(over) else "",
    ]
    first = (
        f"The base is not the input dataset for {len(large)} of {_models(len(reference.gaps))}: validation and base"
        f" differ, {' and '.join(one for one in how if one)}. {names[worst.model]} has {percent(worst.validation.value)}"
        f" on validation and {percent(worst.base.value)} on the base. Drops below are from that base."
    )
    return Opening(title, (first,), "")


def headlines(evaluation: Evaluation, models: Sequence[ModelResult], shifts: Sequence[ShiftResult]) -> list[Tile]:
    """The tiles. Models near chance are in none, and a shift with unchecked labels is none's number."""
    found: list[Tile] = []
    sound = [model for model in models if model.base is not None and not model.near_chance]
    if sound:
        values = [model.base.value for model in sound if model.base]
        low, high = points(min(values)), points(max(values))
        note = f"{_models(len(sound))}, class average"
        floored = [model.short_name for model in models if model.near_chance]
        if floored:
            named = ", ".join(floored[:3]) + (f" and {len(floored) - 3} more" if len(floored) > 3 else "")
            note += f"; without {named}, near chance"
        found.append(Tile("accuracy on the base", f"{low} %" if low == high else f"{low}–{high} %", note))
    measured = [shift for shift in shifts if shift.impact is not None]
    checked = checked_shifts(evaluation)
    told = [shift for shift in measured if shift.name in checked]
    if measured and not told:
        note = (
            f"{spoken(measured[0].name)} has the largest, {_impact(measured[0])}, but nobody has checked whether"
            " the labels are still true"
        )
        found.append(Tile("impact of the shifts", "unchecked", note))
    for label, chosen in (("largest impact", told[:1]), ("smallest impact", told[1:][-1:])):
        for shift in chosen:
            assert shift.impact is not None
            note = f"{spoken(shift.name)} ({between(shift.impact)})"
            if len(told) < len(measured):
                note += f"; of {len(told)} checked shifts, {len(measured) - len(told)} unchecked"
            found.append(Tile(label, f"{points(shift.impact.value)} points", note))
    return found


def _impact(shift: ShiftResult) -> str:
    assert shift.impact is not None
    return f"{points(shift.impact.value)} points ({between(shift.impact)})"


def _models(count: int) -> str:
    return "1 model" if count == 1 else f"{count} models"
