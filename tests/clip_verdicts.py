"""Verdicts as tests write them: the two cosines and their thresholds, each as (object, shift)."""

from __future__ import annotations

from counterfoil.recipe.keep.rule import CLIP_SCORES, Verdict

Pair = tuple[float | None, float | None]


def clip_verdict(scores: Pair, thresholds: Pair, *, open: bool = False) -> Verdict:
    return Verdict(
        dict(zip(CLIP_SCORES, scores, strict=True)),
        dict(zip(CLIP_SCORES, thresholds, strict=True)),
        open,
    )
