"""Keep images whose two cosines reach their thresholds (Vendrow 2023, section 3.1)."""

from __future__ import annotations

from counterfoil.recipe.keep.rule import CLIP_SCORES, KeepRule, Verdict


class ThresholdsRule(KeepRule):
    """Keep candidates whose scores all reach their thresholds."""

    reasons = (*(f"low_{name}" for name in CLIP_SCORES), "low_both")

    def scores(self) -> tuple[str, ...]:
        return CLIP_SCORES

    def reason_of(self, verdict: Verdict) -> str | None:
        low = [name for name in CLIP_SCORES if verdict.is_low(name)]
        if len(low) == 2:
            return "low_both"
        return f"low_{low[0]}" if low else None
