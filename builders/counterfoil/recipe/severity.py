"""The levels of a shift, and the way to them.

A plan has one shift for each level, and these shifts are in one group. The shift at level 1 has the
name and images of the shift without levels.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer

from counterfoil.recipe.section import Section, field_check

SEVERITY = "severity"
REALISED = "severity_realised"
MOST_SEVERE = 5
MOST_LEVELS = 20
By = Literal["prompt", "steps", "lora", "corruption", "mix"]
_Level = Annotated[float, Field(gt=0, le=1)]


def as_shares(levels: Any) -> Any:
    """Return listed severities of a corruption, whole numbers up to 5 of which one is above 1, as
    shares of the way."""
    if not isinstance(levels, list | tuple) or not all(type(value) is int for value in levels):
        return levels
    if 1 < max(levels, default=0) <= MOST_SEVERE:
        return tuple(value / MOST_SEVERE for value in levels)
    return levels


def _unordered(values: tuple[float, ...]) -> str | None:
    if all(earlier < later for earlier, later in pairwise(values)):
        return None
    shown = ", ".join(f"{value:g}" for value in values)
    return f"found [{shown}], expected rising levels"


def _too_fine(values: tuple[float, ...]) -> str | None:
    for value in values:
        if round(value, 2) != value:
            return f"found {value:g}, expected levels of at most two decimals"
    return None


class SeverityLevels(Section):
    """The levels of a shift: shares of the way, or of the gain in CLIP's shift score."""

    written_as = "a list of levels, or `realised:`"
    short = ("raw", (list, tuple))

    raw: tuple[_Level, ...] | None = Field(default=None, min_length=1, max_length=MOST_LEVELS)
    """Shares of the way from the base, rising."""
    realised: tuple[_Level, ...] | None = Field(default=None, min_length=1, max_length=MOST_LEVELS)
    """Shares of the gain in the screening CLIP's shift score, rising. `build` looks for the share
    of the way that reaches each of them."""
    scales: tuple[_Level, ...] | None = Field(default=None, min_length=1, max_length=MOST_LEVELS)
    """The shares of the way that reach `realised`. `build` measures them and writes them into the
    dataset's recipe; it replaces any that are given."""

    _rising = field_check(
        "raw",
        "realised",
        "scales",
        by=_unordered,
    )
    _in_percent = field_check("raw", "realised", by=_too_fine)

    def problem(self) -> str | None:
        if (self.raw is None) == (self.realised is None):
            return "expected a list of levels, or `realised:` (null drops an inherited one)"
        if self.scales is not None and len(self.scales) != len(self.realised or ()):
            return f"found {len(self.scales)} scales, expected one for each of `realised`, or none"
        return None

    @model_serializer
    def _as_written(self) -> Any:
        if self.raw is not None:
            return list(self.raw)
        named = {"realised": self.realised, "scales": self.scales}
        return {name: list(values) for name, values in named.items() if values is not None}

    @property
    def asked(self) -> tuple[float, ...]:
        return self.raw or self.realised or ()


class SeveritySpec(Section):
    """How much of a shift: levels and a way to them. kind corrupt may have one severity from 1 to 5
    instead."""

    written_as = "a mapping with `levels`, or with kind corrupt a whole number"
    short = ("fixed", (int, float))

    fixed: int | None = Field(default=None, ge=1, le=MOST_SEVERE)
    """kind corrupt: one severity, 1 to 5."""
    by: By | None = None
    """How a picture gets there. `prompt`: between the base's encoded prompt and the shift's.
    `steps`: the shift's prompt in the last share of the steps. `lora`: the scale of a LoRA. `mix`:
    as `prompt`, for rows that are edited. `corruption`: the severities 1 to 5 of a corruption, as
    fifths. null: `prompt`, or what the generator's kind has."""
    lora: str | None = None
    """by: lora: which of generator.lora. It is used at level × its scale, and in no other shift."""
    levels: SeverityLevels | None = None
    """Levels above 0 up to 1, rising; or `realised:` with shares of CLIP's gain."""

    def problem(self) -> str | None:
        has_number = self.fixed is not None
        if has_number == (self.levels is not None) or (has_number and self.by is not None):
            return "expected `levels`, or with kind corrupt a whole number from 1 to 5"
        return None

    @model_serializer
    def _as_written(self) -> Any:
        if self.fixed is not None:
            return self.fixed
        assert self.levels is not None
        named = {
            "by": self.by,
            "lora": self.lora,
            "levels": self.levels.model_dump(mode="json"),
        }
        return {name: value for name, value in named.items() if value is not None}


def level_name(shift: str, level: float, *, corrupts: bool = False) -> str:
    """Return the name of a shift at a level: the shift's own name at 1, otherwise `red_50` for 0.5,
    or `fog_3` if it corrupts.
    """
    if level == 1:
        return shift
    if corrupts:
        return f"{shift}_{round(level * MOST_SEVERE)}"
    return f"{shift}_{round(level * 100):02d}"
