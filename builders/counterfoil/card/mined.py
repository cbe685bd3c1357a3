"""The card's section of mined shifts: chosen because a classifier failed there, and what each came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import MOST_CLASSES, MinedFacts, mined_facts

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

MINED = "mined"
# The roles of failures; others are built beside them: what is easy, and the class as such.
FAILING = ("hard", "far_from")


@dataclass(frozen=True, slots=True)
class MinedRow:
    """A mined shift with what its `mined_from` tells, as text; a dash for what it does not."""

    name: str
    words: str
    caption: str
    role: str
    method: str
    target: str
    sha256: str
    rate: str
    rest: str
    p: str
    q: str
    classes: str


@dataclass(frozen=True, slots=True)
class Mined:
    """What the section shows: rows of the first of `all_shifts` mined ones, beside which there are `others`.

    targets: the classifiers that they are told to be failures of. judges: those that their keep rules ask. compared:
    whether some are told to have another role than that of failures. pairs, rows_tested: whether some were tested in
    pairs of the same noise, and whether others have the rate of the rest of their class.
    """

    rows: tuple[MinedRow, ...]
    all_shifts: int
    others: int
    targets: tuple[str, ...]
    judges: tuple[str, ...]
    compared: bool
    pairs: bool
    rows_tested: bool


def mined_of(recipe: Recipe, most_rows: int) -> Mined | None:
    """The section of a recipe's mined shifts; None where it has none."""
    shifts = [shift for shift in recipe.all_shifts() if shift.kind == MINED]
    if not shifts:
        return None
    facts = {shift.name: mined_facts(recipe.prompts.shifts[shift.name].mined_from) for shift in shifts}
    judges = [without_folders(name) for shift in shifts for rule in shift.keep for name in rule.judges()]
    return Mined(
        rows=tuple(_row(shift.name, facts[shift.name]) for shift in shifts[:most_rows]),
        all_shifts=len(shifts),
        others=len(recipe.prompts.shifts) - len(shifts),
        targets=tuple(dict.fromkeys(one.target for one in facts.values() if one.target)),
        judges=tuple(dict.fromkeys(judges)),
        compared=any(one.role not in (None, *FAILING) for one in facts.values()),
        pairs=any(one.tested_on == "pairs" for one in facts.values()),
        rows_tested=any(one.rest_rate is not None and one.tested_on != "pairs" for one in facts.values()),
    )


def _row(name: str, facts: MinedFacts) -> MinedRow:
    classes = ", ".join(facts.classes[:MOST_CLASSES])
    rest = len(facts.classes) - MOST_CLASSES
    return MinedRow(
        name=name,
        words=f"{facts.words or ''} ({', '.join(facts.marks)})" if facts.marks else facts.words or "",
        caption=facts.caption or "",
        role=facts.role or "",
        method=facts.method or "",
        target=facts.target or "",
        sha256=(facts.target_sha256 or "")[:12],
        rate=_percent(facts.set_rate),
        rest=_percent(facts.rest_rate),
        p=_small(facts.p),
        q=_small(facts.q),
        classes=f"{classes} and {rest} more" if rest > 0 else classes,
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _small(value: float | None) -> str:
    """A p- or q-value with two digits that count."""
    return "–" if value is None else f"{value:.2g}"
