"""Decide a cell: give each candidate a reason, count what a quota draws, and decide whether an
image is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterfoil.recipe.keep.rule import KeepRule, Verdict

ACCEPTED = "accepted"
SURPLUS = "surplus"  # the candidate passed after its cell was full
FAILED = "failed"
OPEN = "open"  # the threshold of the shift is not known yet, so no candidate is decided


def decide_cell(
    rules: Sequence[KeepRule],
    verdicts: Sequence[Verdict],
    accepted: int | None,
) -> list[str]:
    """Return for each candidate of a whole cell, in order of index, "accepted" or the reason to
    drop it.

    With a quota, the first `accepted` candidates that pass are kept. With an open threshold no
    candidate is decided.
    """
    reasons = []
    for verdict in verdicts:
        reason = OPEN if verdict.open else ACCEPTED
        reasons.append(FAILED if verdict.failed else reason)
    for rule in rules:
        left = _accepted(reasons)
        dropped = rule.dropped([verdicts[index] for index in left])
        for index, reason in zip(left, dropped, strict=True):
            reasons[index] = reason or ACCEPTED
    if accepted is not None:
        for index in _accepted(reasons)[accepted:]:
            reasons[index] = SURPLUS
    return reasons


def _accepted(reasons: Sequence[str]) -> list[int]:
    """Return the indices of the candidates that no rule dropped."""
    return [index for index, reason in enumerate(reasons) if reason == ACCEPTED]


def filled_at(reasons: Sequence[str], accepted: int) -> int | None:
    """Return how many candidates of a cell were screened until its quota was full, or None if it
    never was."""
    kept = _accepted(reasons)
    return kept[accepted - 1] + 1 if len(kept) >= accepted else None


def quota_passes(rules: Sequence[KeepRule], verdicts: Sequence[Verdict]) -> int:
    """Return how many candidates pass the rules of a quota."""
    return decide_cell(rules, verdicts, None).count(ACCEPTED)


def quota_draws(
    rules: Sequence[KeepRule],
    verdicts: Sequence[Verdict],
    batches: Iterable[int],
    accepted: int,
) -> int:
    """Return how many candidates a quota draws: whole batches of these sizes, until enough verdicts
    pass."""
    count = passed = 0
    for size in batches:
        passed += quota_passes(rules, verdicts[count : count + size])
        count += size
        if passed >= accepted:
            break
    return count


def before_judges(rules: Sequence[KeepRule], reason: str) -> bool:
    """Return whether a candidate with this reason passed all rules before the first rule that asks
    a classifier."""
    passed = [ACCEPTED, SURPLUS]
    judged = False
    for rule in rules:
        judged = judged or bool(rule.judges())
        if judged:
            passed += rule.reasons
    return reason in passed


def keeps_image(reason: str, keep_rejected: bool) -> bool:
    """Return whether the table `rejected` has a candidate's image. It has the image of every open
    candidate."""
    return reason != ACCEPTED and (keep_rejected or reason == OPEN)
