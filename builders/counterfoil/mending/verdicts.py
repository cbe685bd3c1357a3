"""What is said of an arm: how its controls are called, which are missing, and whether it helped."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterfoil.evaluation.statistics import Estimate
from counterfoil.mending.arms import CONTROL_WORDS, Arm
from counterfoil.mending.debug_images import CLASS_NAME, CONTEXTS, RANDOM
from counterfoil.mending.document import HELDOUT, TEST, GainDifference, SetMeasured
from counterfoil.mending.gains import HeadsCompared, verdict


def verdict_of(
    comparisons: Sequence[GainDifference], measured: Sequence[SetMeasured], *, has_test: bool, missing: str = ""
) -> str:
    """Whether an arm helped, in words: on held-out failures against its controls, and on test.

    has_test: whether the rows of test are a split of their own; else they are the confirm half. missing: what
    `missing_controls` says.
    """
    against = {
        CONTROL_WORDS.get(one.against, one.against): HeadsCompared(
            Estimate(one.difference, one.low, one.high), one.ahead, one.behind
        )
        for one in comparisons
        if one.set == HELDOUT
    }
    test = next(one for one in measured if one.set == TEST)
    on_test = None if test.gain is None else Estimate(test.gain, test.low, test.high)
    if not against:
        return "No failure is held out on the confirm half, so nothing says whether this helped."
    test_is = "test accuracy" if has_test else "accuracy on the confirm half, for there is no test split,"
    return verdict(against, on_test, test_is=test_is, notes=[missing] if missing else [])


def missing_controls(arm: Arm, kinds: Collection[str]) -> str:
    """A sentence for the equal-number controls that an arm lacks, nothing where it has them; kinds: those it has."""
    alone = "Only the head retrained alone is beside it; whether"
    if arm.debug is None:
        what = (
            "weighing as many other training rows"
            if arm.weights is not None
            else "as many other rows, or other groups,"
        )
        return f"{alone} {what} would do the same is not known."
    wanted = [CLASS_NAME, *([RANDOM] if arm.debug.group == CONTEXTS else [])]
    lacking = [what for what in wanted if what not in kinds]
    if not kinds:
        return f"{alone} as many other images would do the same is not known."
    if not lacking:
        return ""
    return (
        f"Whether {' or '.join(CONTROL_WORDS[what] for what in lacking)} would do the same is not known: it has none."
    )
