"""What is said of an arm names the controls that it lacks."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mending.arms import RETRAINED, Arm
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM, DebugImages
from counterfoil.mending.document import CONFIRM, HELDOUT, SAME_LAMBDA, TEST, ArmResult, GainDifference, SetMeasured
from counterfoil.mending.verdicts import missing_controls, verdict_of
from counterfoil.sources import LabelledImages

NONE = np.zeros(0, dtype=np.int64)
NO_IMAGE = LabelledImages("made", "0" * 64, (), NONE, NONE, ("made",), lambda wanted: iter(()))
NOT_KNOWN = "Only the head retrained alone is beside it; whether as many other images would do the same is not known."
NO_CHANGE = SetMeasured(TEST, 100, 100, 0.8, 0.8, 0.0, -0.02, 0.02, 1, 1, 1.0)
ARM = ArmResult("a", "mended", None, None, 9, 9, 0.5, True, True, (NO_CHANGE,))


def images_of(group: str) -> Arm:
    debug = DebugImages("a", "a", group, NO_IMAGE, NONE, (), NONE, frozenset(), None, (), "0", "a", 0)
    return Arm("a", "mended", debug=debug)


def difference(against: str, side: int, on: str = HELDOUT, lam: float | None = None) -> GainDifference:
    """Twelve units all decided one way, or evenly."""
    ahead, behind = {1: (12, 0), 0: (6, 6), -1: (0, 12)}[side]
    value = 0.1 * side
    p = 2 / 2**12 if side else 1.0
    return GainDifference(against, on, 100, value, value - 0.05, value + 0.05, lam, ahead, behind, p)


@pytest.mark.parametrize(
    ("arm", "kinds", "says"),
    [
        (images_of("contexts"), [], NOT_KNOWN),
        (images_of("hard"), [], NOT_KNOWN),
        (images_of("contexts"), [CLASS_NAME, RANDOM], ""),
        (images_of("hard"), [CLASS_NAME], ""),
        (images_of("contexts"), [RANDOM], "Whether as many images of class names would do the same is not known"),
        (
            images_of("contexts"),
            [CLASS_NAME],
            "Whether as many images of random contexts would do the same is not known",
        ),
        (
            Arm("w", "upweighted", weights=np.ones(3)),
            [],
            "whether weighing as many other training rows would do the same",
        ),
        (Arm("dfr:clip", "rival", groups=NONE), [], "Only the head retrained alone is beside it"),
    ],
)
def test_the_control_that_is_missing_is_named(arm: Arm, kinds: list[str], says: str) -> None:
    found = missing_controls(arm, kinds)
    assert found.startswith(says) or says in found
    assert bool(found) == bool(says)


def test_a_verdict_without_equal_numbers_says_so() -> None:
    words = verdict_of([difference(RETRAINED, 1)], ARM, has_test=True, missing=NOT_KNOWN)
    assert words.startswith("It helps: ") and NOT_KNOWN in words
    assert "confirm half" in verdict_of([difference(RETRAINED, 1)], ARM, has_test=False)


def test_a_control_whose_lambda_is_0_is_no_second_comparison() -> None:
    told = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.0)]
    words = verdict_of(told, ARM, has_test=True)
    gains = words.split(". ")[0]
    assert gains.startswith("It helps: ") and "class names" not in gains
    assert "λ = 0 was chosen for as many images of class names" in words
    # At the arm's own λ that control gains as much: then it does not help more than these.
    same = difference(f"{CLASS_NAME}{SAME_LAMBDA}", 0, lam=0.5)
    words = verdict_of([*told, same], ARM, has_test=True)
    assert (
        words.startswith("It helps in part: ")
        and "No difference is shown to as many images of class names at the same λ" in words
    )
    other = verdict_of([difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=2.0)], ARM, has_test=True)
    assert "and as many images of class names at λ = 2 (" in other and "λ = 0 was chosen" not in other


@pytest.mark.parametrize(("side", "loses"), [(1, False), (0, False), (-1, True)])
@pytest.mark.parametrize("helps", [1, 0])
def test_what_loses_on_all_confirm_rows_is_not_simply_said_to_help(side: int, loses: bool, helps: int) -> None:
    told = [difference(RETRAINED, helps), difference(RETRAINED, side, on=CONFIRM)]
    words = verdict_of(told, ARM, has_test=True)
    assert words.startswith("It helps") == bool(helps)
    if helps:
        assert words.startswith("It helps on held-out failures and loses elsewhere: ") == loses
    assert ("it gets fewer right than the head retrained alone" in words) == loses
