"""Keep rules: from the scores of one cell to one reason for each candidate. Pure functions on numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ACCEPTED = "accepted"
LOW_OBJECT = "low_object"
LOW_SHIFT = "low_shift"
LOW_BOTH = "low_both"
SURPLUS = "surplus"
FAILED = "failed"
OPEN = "open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores and thresholds of one candidate; `object_score` is None where rendering failed.

    `shift_score` and `shift_threshold` are None where the shift is not screened (the base). `open` says that
    the shift's threshold is not known yet: a percentile over candidates that are still being made.
    """

    object_score: float | None
    shift_score: float | None
    object_threshold: float | None
    shift_threshold: float | None
    open: bool = False


def by_thresholds(verdict: Verdict) -> str:
    """Vendrow 2023, section 3.1: both cosines must reach their thresholds."""
    if verdict.object_score is None:
        return FAILED
    object_low = verdict.object_threshold is not None and verdict.object_score < verdict.object_threshold
    shift_low = (
        verdict.shift_threshold is not None
        and verdict.shift_score is not None
        and verdict.shift_score < verdict.shift_threshold
    )
    if object_low and shift_low:
        return LOW_BOTH
    return LOW_OBJECT if object_low else LOW_SHIFT if shift_low else ACCEPTED


KEEP_RULES: dict[str, Callable[[Verdict], str]] = {"thresholds": by_thresholds}
"""Name in a recipe → the rule. A rule returns "accepted", or the reason for dropping (an open string)."""


def decide_cell(rule: str, verdicts: Sequence[Verdict], accepted: int | None) -> list[str]:
    """One reason for each candidate of a whole cell, in order of index.

    With a quota the first `accepted` that pass are kept; what passes after them is `surplus`. Nothing is decided
    for what has an open threshold, whether its object passes or not: it is `open`, unless rendering failed.
    """
    keep = KEEP_RULES[rule]
    reasons, kept = [], 0
    for verdict in verdicts:
        reason = OPEN if verdict.open and verdict.object_score is not None else keep(verdict)
        if reason == ACCEPTED:
            kept += 1
            if accepted is not None and kept > accepted:
                reason = SURPLUS
        reasons.append(reason)
    return reasons
