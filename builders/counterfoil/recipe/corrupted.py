"""Corruptions in a recipe: their names, their severities, and those that no dataset stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.errors import quoted
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.section import Section, field_check, raise_problem
from counterfoil.recipe.severity import MOST_SEVERE, SeveritySpec, as_shares, level_name


def severities_are_levels(value: Any, info: ValidationInfo) -> Any:
    """Return a severity whose listed levels of a corruption are shares of the way."""
    given = isinstance(value, Mapping) and "levels" in value
    if not given or info.data.get("corruption") is None:
        return value
    return {**value, "levels": as_shares(value["levels"])}


def computed_clash(corrupted: Mapping[str, CorruptedSpec], taken: Collection[str]) -> str | None:
    """Return a name that two computed shifts have, or that is taken; else None. A shift has a group
    for each of its severities."""
    seen: set[str] = set()
    for shift, spec in corrupted.items():
        if shift in taken:
            return shift
        severity = spec.severity
        levels = (1,) if severity is None or severity.levels is None else severity.levels.asked
        for level in levels:
            group = level_name(shift, level, corrupts=True)
            if group in taken or group in seen or (group != shift and group in corrupted):
                return group
            seen.add(group)
    return None


def corruption_problem(name: str, others: Sequence[str] = ()) -> str | None:
    """Return a problem with the name of a corruption, or None. others: names that are known too."""
    known = [*CORRUPTIONS, *others]
    if name in known:
        return None
    near = did_you_mean(name, known) or f" ({', '.join(CORRUPTIONS)})"
    return f"found {quoted(name)}, expected the name of a corruption{near}"


class CorruptedSpec(Section):
    """A corruption that is computed while models answer, at each model's own size."""

    corruption: str = Field(json_schema_extra={"enum": [*CORRUPTIONS]})
    """The corruption, by name, as in `prompts.shifts` of kind corrupt."""
    severity: SeveritySpec | None = None
    """One severity, from 1 to 5 (null: 3), or several: `{by: corruption, levels: [1, 3, 5]}`."""

    @field_validator("severity", mode="before")
    @classmethod
    def _severities(cls, value: Any, info: ValidationInfo) -> Any:
        levels = value.get("levels") if isinstance(value, Mapping) else None
        # A level of 1 is all of the way, which is severity 5.
        if isinstance(levels, list | tuple) and [*levels] == [1] and type(levels[0]) is int:
            raise_problem(
                "levels: [1] may be severity 1, or all of the way; write `severity: 1`,"
                f" or `severity: {MOST_SEVERE}`"
            )
        return severities_are_levels(value, info)

    _known = field_check("corruption", by=corruption_problem)

    def problem(self) -> str | None:
        severity = self.severity
        if severity is None or severity.levels is None:
            return None
        shares = {number / MOST_SEVERE for number in range(1, MOST_SEVERE + 1)}
        levels = severity.levels.raw or (0,)
        if severity.by not in (None, "corruption") or not shares.issuperset(levels):
            return (
                f"expected severities 1 to {MOST_SEVERE}:"
                " {by: corruption, levels: [1, 2, 3, 4, 5]}"
            )
        return None
