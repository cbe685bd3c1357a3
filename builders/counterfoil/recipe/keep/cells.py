"""What becomes of a cell: a reason for each candidate, how many a quota draws, and which table keeps an image.

Building, re-cutting and verification ask here, so that they cannot differ. Pure functions on verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from counterfoil.recipe.keep.rule import KeepRule, Verdict

ACCEPTED = "accepted"
SURPLUS = "surplus"  # it passed after its cell had all that the quota asks for
FAILED = "failed"
OPEN = "open"  # the threshold of the shift is not known yet, so nothing is decided


def decide_cell(rules: Sequence[KeepRule], verdicts: Sequence[Verdict], accepted: int | None) -> list[str]:
    """Return one reason for each candidate of a whole cell, in order of index: "accepted", or why it is dropped.

    With a quota the first `accepted` that pass are kept; what passes after them is `surplus`. Nothing is decided for
    what has an open threshold, whether its object passes or not: it is `open`, unless rendering failed.
    """
    reasons = [FAILED if verdict.failed else OPEN if verdict.open else ACCEPTED for verdict in verdicts]
    for rule in rules:
        left = [index for index, reason in enumerate(reasons) if reason == ACCEPTED]
        for place, why in zip(left, rule.dropped([verdicts[place] for place in left]), strict=True):
            reasons[place] = why or ACCEPTED
    if accepted is not None:
        passed = [index for index, reason in enumerate(reasons) if reason == ACCEPTED]
        for place in passed[accepted:]:
            reasons[place] = SURPLUS
    return reasons


def filled_at(reasons: Sequence[str], accepted: int) -> int | None:
    """Return how many candidates of a cell were looked at when its quota was full; None where it was not filled."""
    kept = [index for index, reason in enumerate(reasons) if reason == ACCEPTED]
    return kept[accepted - 1] + 1 if len(kept) >= accepted else None


def passing(rules: Sequence[KeepRule], verdicts: Sequence[Verdict]) -> int:
    """Return how many candidates count for a quota; its rules decide each candidate by itself."""
    return decide_cell(rules, verdicts, None).count(ACCEPTED)


def drawn(rules: Sequence[KeepRule], verdicts: Sequence[Verdict], batches: Iterable[int], accepted: int) -> int:
    """Return how many candidates a quota draws: whole batches (their sizes, in order) until enough pass, or there are
    no more.

    `verdicts` are those that are known; more than are known may be asked for.
    """
    count = passed = 0
    for size in batches:
        passed += passing(rules, verdicts[count : count + size])
        count += size
        if passed >= accepted:
            break
    return count


def before_judges(rules: Sequence[KeepRule], reason: str) -> bool:
    """Return whether a candidate with this reason came as far as the first rule that asks a classifier.

    Where no rule asks one, whether it passed them all. What failed, or is open, came nowhere.
    """
    first = next((index for index, rule in enumerate(rules) if rule.judges()), len(rules))
    return reason in (ACCEPTED, SURPLUS, *(why for rule in rules[first:] for why in rule.reasons))


def keeps_image(reason: str, keep_rejected: bool) -> bool:
    """Return whether `rejected` holds the image of a candidate that is not accepted.

    One that is open may yet be accepted, so it is kept until that is decided. What failed may have no image at all.
    """
    return reason != ACCEPTED and (keep_rejected or reason == OPEN)
