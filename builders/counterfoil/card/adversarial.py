"""The card's section of images that are there because classifiers were wrong about them: which, and at what yield."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.card.tables import counts_by_shift
from counterfoil.keep import ACCEPTED, before_judges
from counterfoil.keep.failure_names import TOP1
from counterfoil.keep.misclassified import MisclassifiedRule
from counterfoil.recipe.names import without_folders

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt


@dataclass(frozen=True, slots=True)
class AdversarialRow:
    """A shift that keeps what judges get wrong: candidates drawn, those that passed the screen, were wrong, are kept.

    each: how many were drawn for each that is kept, as text.
    """

    name: str
    judges: tuple[str, ...]
    at_least: int
    drawn: int
    screened: int
    wrong: int
    kept: int
    each: str


@dataclass(frozen=True, slots=True)
class Adversarial:
    """What the section shows: rows of the first of `all_shifts` such shifts, beside which there are `others`.

    judges: every one, in the recipe's order. needed: (judges of a rule, how many must be wrong), each once.
    failures: the failure rules by which they were asked, where that was not by the first answer alone.
    """

    rows: tuple[AdversarialRow, ...]
    all_shifts: int
    others: int
    judges: tuple[str, ...]
    needed: tuple[tuple[int, int], ...]
    total: AdversarialRow
    failures: tuple[str, ...] = ()


def adversarial_of(recipe: Recipe, receipts: Sequence[Receipt], most_rows: int) -> Adversarial | None:
    """The section of a recipe whose keep rules keep what classifiers get wrong; None where none does."""
    judged = [
        (shift, rule) for shift in recipe.all_shifts() for rule in shift.keep if isinstance(rule, MisclassifiedRule)
    ]
    if not judged:
        return None
    counts = counts_by_shift(receipts)
    rows = []
    for shift, rule in judged:
        reasons = counts.get(shift.name, {})
        screened = sum(count for why, count in reasons.items() if before_judges(shift.keep, why))
        right = sum(count for why, count in reasons.items() if why in rule.reasons)
        judges = tuple(map(without_folders, rule.models))
        rows.append(
            _row(shift.name, judges, rule.at_least, sum(reasons.values()), screened, right, reasons.get(ACCEPTED, 0))
        )
    every = tuple(dict.fromkeys(judge for row in rows for judge in row.judges))
    sums = [sum(getattr(row, name) for row in rows) for name in ("drawn", "screened", "wrong", "kept")]
    return Adversarial(
        rows=tuple(rows[:most_rows]),
        all_shifts=len(rows),
        others=len(recipe.prompts.shifts) - len(rows),
        judges=every,
        needed=tuple(sorted({(len(row.judges), row.at_least) for row in rows})),
        failures=tuple(sorted({rule.failure for _, rule in judged}))
        if any(rule.failure != TOP1 for _, rule in judged)
        else (),
        total=_row("", every, 0, sums[0], sums[1], sums[1] - sums[2], sums[3]),
    )


def _row(
    name: str, judges: tuple[str, ...], at_least: int, drawn: int, screened: int, right: int, kept: int
) -> AdversarialRow:
    each = f"{drawn / kept:,.1f}" if kept else "–"
    return AdversarialRow(name, judges, at_least, drawn, screened, screened - right, kept, each)
