"""Keep the best of a cell, as Jain 2023 takes the images nearest to a caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from counterfoil.recipe.keep.rule import KeepRule, Verdict


class TopRule(KeepRule):
    """Keep the k best of a cell by a score. Ties go by index; candidates without a score come
    last."""

    whole_cell = True
    reasons = ("below_top",)

    k: int = Field(ge=1, le=1_000_000)
    """Number of candidates to keep per cell."""
    by: Literal["object", "shift"] = "shift"
    """The score that ranks them, highest first."""

    def scores(self) -> tuple[str, ...]:
        return (self.by,)

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        def rank(index: int) -> tuple[bool, float]:
            score = left[index].scores.get(self.by)
            return score is None, -(score or 0)

        ranked = sorted(range(len(left)), key=rank)
        reasons: list[str | None] = ["below_top"] * len(left)
        for index in ranked[: self.k]:
            reasons[index] = None
        return reasons
