"""The card's section "What people say": selection frequencies of a stored review, shift by shift, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.label_checks import people_of
from counterfoil.report.labels import CheckedShare

# What a person reads; all of it is in review/selection.json.
MOST_SHIFTS = 40


@dataclass(frozen=True, slots=True)
class ReviewedRow:
    """A shift under both tasks, as text; a dash for a task that nobody was given."""

    name: str
    shows_class: str
    class_images: int
    class_kappa: str
    shows_shift: str
    shift_images: int
    shift_kappa: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What the section shows. real, without: the controls' pass rates as text, None where there were none; failed: how
    many raters got fewer than three in four of a kind right; looked_at_classes: whether any image was asked whether it
    shows its class, for of a shift alone no label is checked."""

    raters: int
    rows: tuple[ReviewedRow, ...]
    all_shifts: int
    real: str | None
    without: str | None
    failed: int
    looked_at_classes: bool


def reviewed_of(document: Mapping[str, Any] | None, shifts: Sequence[str]) -> Reviewed | None:
    """The section of a stored review (`store.sealed_folder`), its rows those of these shifts; None where there is none,
    or none of its form."""
    people = people_of(document)
    if people is None or document is None:
        return None
    try:
        without = document["controls"]["without_share"]
        controls = people_of({**document, "controls": {"real_share": without}})
        failed = sum(rater["failed_controls"] is True for rater in document["raters"])
    except (KeyError, TypeError):
        return None
    rows = [
        ReviewedRow(
            name=shift,
            shows_class=_percent(said.class_selected),
            class_images=said.class_images,
            class_kappa=_kappa(said.class_kappa),
            shows_shift=_percent(said.shift_selected),
            shift_images=said.shift_images,
            shift_kappa=_kappa(said.shift_kappa),
        )
        for shift in shifts
        if (said := people.of(shift).people) is not None
    ]
    if not rows or controls is None:
        return None
    return Reviewed(
        raters=people.raters,
        rows=tuple(rows[:MOST_SHIFTS]),
        all_shifts=len(rows),
        real=None if people.controls is None else _spoken(people.controls),
        without=None if controls.controls is None else _spoken(controls.controls),
        failed=failed,
        looked_at_classes=any(row.class_images for row in rows),
    )


def _percent(share: CheckedShare | None) -> str:
    return "–" if share is None else f"{100 * share.value:.1f} ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _spoken(share: CheckedShare) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _kappa(kappa: float | None) -> str:
    return "–" if kappa is None else f"{kappa:.2f}"
