"""What a quota of images that classifiers get wrong costs: at most, and at the failure rates that a recipe tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.keep.misclassified import TOP1, MisclassifiedRule
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.schema_mine import mined_facts


@dataclass(frozen=True, slots=True)
class JudgedQuota:
    """A shift whose cells draw until `accepted` images are kept that judges get wrong, and `at_most` candidates.

    failure: the rule that says what is wrong. rate: the share that its `mined_from` tells one of the judges to get
    wrong by that rule, where one failure is enough; None where it tells none. candidates_each: that pass the screen,
    for a kept image. candidates_a_cell: for all of a cell.
    """

    shift: str
    cells: int
    judges: tuple[str, ...]
    accepted: int
    at_most: int
    rate: float | None
    candidates_each: float | None
    candidates_a_cell: float | None
    failure: str = TOP1


def judged_quotas(recipe: Recipe) -> tuple[JudgedQuota, ...]:
    """The shifts of a recipe that have a quota of what classifiers get wrong."""
    found = []
    for shift in recipe.all_shifts():
        rule = next((rule for rule in shift.keep if isinstance(rule, MisclassifiedRule)), None)
        if rule is None or shift.accepted is None:
            continue
        judges = tuple(map(without_folders, rule.models))
        facts = mined_facts(recipe.prompts.shifts[shift.name].mined_from)
        # A rate by another failure rule is no rate of what this rule keeps.
        same = rule.at_least == 1 and facts.target in judges and (facts.failure or TOP1) == rule.failure
        told = facts.set_rate if same else None
        rate = told or None  # at a rate of nothing no number of candidates is enough
        found.append(
            JudgedQuota(
                shift=shift.name,
                cells=len(shift.class_labels),
                judges=judges,
                accepted=shift.accepted,
                at_most=shift.candidates,
                rate=rate,
                candidates_each=1 / rate if rate else None,
                candidates_a_cell=shift.accepted / rate if rate else None,
                failure=rule.failure,
            )
        )
    return tuple(found)


def spoken_quotas(quotas: Sequence[JudgedQuota]) -> str:
    """One sentence of what they cost; `quotas` are at least one."""
    judges = list(dict.fromkeys(judge for one in quotas for judge in one.judges))
    who = judges[0] if len(judges) == 1 else f"{len(judges)} classifiers"
    verb = "gets" if len(judges) == 1 else "get"
    failures = sorted({one.failure for one in quotas} - {TOP1})
    by_rule = f" by the failure rule {' or '.join(failures)}" if failures else ""
    most = sum(one.cells * one.at_most for one in quotas)
    text = (
        f"at most {_span([one.at_most for one in quotas])} candidates a cell, {most:,} in all, until"
        f" {_span([one.accepted for one in quotas])} are kept that {who} {verb} wrong{by_rule}"
    )
    known = [one for one in quotas if one.rate is not None]
    if not known:
        return (
            f"{text}; no failure rate is told (mined_from), and at a rate of 1 % a kept image takes about 100"
            " candidates that pass the screen."
        )
    rates = [100 * one.rate for one in known if one.rate is not None]
    each = [one.candidates_each for one in known if one.candidates_each is not None]
    cell = [one.candidates_a_cell for one in known if one.candidates_a_cell is not None]
    text += (
        f"; at the failure rates that mined_from tells ({_span(rates, 3)} %) a kept image takes about {_span(each, 2)}"
        f" candidates that pass the screen, a cell about {_span(cell, 2)}"
    )
    short = sum(one.candidates_a_cell is not None and one.candidates_a_cell > one.at_most for one in quotas)
    if short:
        text += ", more than at_most" + (f" in {short} of {len(quotas)} shifts" if len(quotas) > 1 else "")
    unknown = len(quotas) - len(known)
    return f"{text}; {unknown} of {len(quotas)} shifts tell no rate." if unknown else f"{text}."


def _span(values: Sequence[float], digits: int | None = None) -> str:
    """The least to the most; counts are whole, other numbers are rounded to so many digits that count."""
    shown = [f"{value:,}" if digits is None else _rounded(value, digits) for value in (min(values), max(values))]
    return shown[0] if shown[0] == shown[1] else f"{shown[0]} to {shown[1]}"


def _rounded(value: float, digits: int) -> str:
    return f"{float(f'{value:.{digits}g}'):,.10g}"
