"""What opens the report: what a gap to the input dataset says, and the tiles that stand for all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.card.spoken_results import LARGE_GAP
from counterfoil.evaluation.figure_style import spoken
from counterfoil.evaluation.results import Evaluation, ModelResult, ShiftResult
from counterfoil.evaluation.spoken_numbers import between, points
from counterfoil.evaluation.spoken_reference import reference_note
from counterfoil.report.nested import ReferenceGap


@dataclass(frozen=True)
class Tile:
    """A number of the page's head."""

    label: str
    value: str
    note: str


def checked_shifts(evaluation: Evaluation) -> frozenset[str]:
    """The groups whose labels somebody, or something but the screen, has checked, or that are the source's own."""
    checks = evaluation.label_checks
    if checks is None:
        return frozenset()
    return frozenset(group.name for group in evaluation.groups if checks.own or checks.of(group.name).checked)


def gap_words(gap: ReferenceGap) -> str:
    """What a gap says, in words."""
    if not gap.large:
        return "no large gap"
    lower = "lower" if gap.gap.value > 0 else "higher"
    if abs(gap.gap.value) > LARGE_GAP:
        return f"base {lower} by more than {100 * LARGE_GAP:.0f} points"
    return f"base {lower}, the interval excludes 0"


def without_reference(evaluation: Evaluation) -> str | None:
    """Why nothing is said of validation images; None where something is."""
    if evaluation.reference is not None and evaluation.reference.gaps:
        return None
    if evaluation.reference is None and evaluation.label_checks is not None and evaluation.label_checks.own:
        return "The base is images of the input dataset as they are, so that there is no gap to it."
    why = reference_note(evaluation) or "Validation → base was not measured."
    return f"{why.rstrip('.')}. So it is not known here whether the base is the input dataset for these models."


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
            f"{spoken(measured[0].name)} has the largest, {_impact(measured[0])}, but nobody and nothing"
            " has checked whether its labels are still true"
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
