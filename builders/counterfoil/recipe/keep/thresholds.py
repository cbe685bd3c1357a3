"""Keep images whose two cosines reach their thresholds (Vendrow 2023, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from counterfoil.recipe.keep.rule import CLIP_SCORES, KeepRule, Verdict


class ThresholdsRule(KeepRule):
    """Keep candidates whose scores all reach their thresholds."""

    reasons: ClassVar[tuple[str, ...]] = (*(f"low_{name}" for name in CLIP_SCORES), "low_both")

    def scores(self) -> tuple[str, ...]:
        return CLIP_SCORES

    def dropped(self, left: Sequence[Verdict]) -> list[str | None]:
        lows = [[name for name in CLIP_SCORES if verdict.is_low(name)] for verdict in left]
        return [
            None if not low else f"low_{low[0]}" if len(low) == 1 else "low_both" for low in lows
        ]
