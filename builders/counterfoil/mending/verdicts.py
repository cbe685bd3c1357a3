"""What is said of an arm: how its controls are called, which are missing, and whether it helped."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from counterfoil.mending.arms import CONTROL_WORDS, RETRAINED, Arm
from counterfoil.mending.debug_images import CLASS_NAME, CONTEXTS, RANDOM
from counterfoil.mending.document import (
    CONFIRM,
    HELDOUT,
    SAME_LAMBDA,
    TEST,
    TEST_FAILED,
    ArmResult,
    GainDifference,
)
from counterfoil.mending.gains import HeadsCompared, MendVerdict, verdict
from counterfoil.stats import Estimate

BY_TEST = (
    "The confirm half confirmed the failures that these images show, so that it does not judge them; the failures of"
    " the test do."
)


def control_words(against: str, lam: float | None = None) -> str:
    """How a control is called, with the λ that was chosen for it where it has one."""
    what = against.removesuffix(SAME_LAMBDA)
    words = CONTROL_WORDS.get(what, what)
    if what != against:
        return f"{words}{SAME_LAMBDA}"
    return words if lam is None else f"{words} at λ = {lam:g}"


def verdict_of(
    comparisons: Sequence[GainDifference], arm: ArmResult, *, has_test: bool, missing: str = ""
) -> MendVerdict:
    """Whether an arm helped: on held-out failures against its controls, on all confirm rows, and on test.

    What the confirm half chose is judged by the failures of test, and by all its rows. A control whose λ is 0 is the
    head retrained alone, which is said and counted once. has_test: whether the rows of test are a split of their own;
    else they are the confirm half. missing: what `missing_controls` says.
    """
    by_test = arm.judged_by == TEST
    failures, every = (TEST_FAILED, TEST) if by_test else (HELDOUT, CONFIRM)
    heldout = [one for one in comparisons if one.set == failures]
    if not heldout:
        half = "The model fails on no row of the test" if by_test else "No failure is held out on the confirm half"
        return MendVerdict("not known", f"{half}, so nothing says whether this helped.")
    nothing = [one.against for one in heldout if one.lam == 0]
    against: dict[str, HeadsCompared] = {}
    controls: dict[str, list[str]] = {}
    for one in heldout:
        if one.lam != 0:
            words = control_words(one.against, one.lam)
            against[words] = _heads(one)
            if one.against != RETRAINED:
                controls.setdefault(one.against.removesuffix(SAME_LAMBDA), []).append(words)
    everywhere = next((_heads(one) for one in comparisons if (one.against, one.set) == (RETRAINED, every)), None)
    notes = [BY_TEST] if by_test else []
    if nothing:
        notes.append(
            f"λ = 0 was chosen for {' and for '.join(map(control_words, nothing))}, so that by the λ of"
            f" {'its' if len(nothing) == 1 else 'their'} own {'this is' if len(nothing) == 1 else 'these are'} the head"
            " retrained alone, and no second comparison."
        )
    if missing:
        notes.append(missing)
    test = arm.of_set(TEST)
    on_test = None if test is None or test.gain is None else Estimate(test.gain, test.low, test.high)
    test_is = "test accuracy" if has_test else "accuracy on the confirm half, for there is no test split,"
    return verdict(
        against,
        on_test,
        controls=list(controls.values()),
        everywhere=everywhere,
        test_is=test_is,
        notes=notes,
        rows_are=("failures of the test", "the test") if by_test else ("failures held out", "the confirm half"),
    )


def _heads(one: GainDifference) -> HeadsCompared:
    return HeadsCompared(Estimate(one.difference, one.low, one.high), one.ahead, one.behind)


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
