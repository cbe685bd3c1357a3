"""What is said of an arm names the controls that it lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.mending.arms import CLASS_NAME, RANDOM, RETRAINED, Arm, DebugImages
from counterfoil.mending.document import (
    CONFIRM,
    HEADLINES,
    HELDOUT,
    HELPS,
    SAME_LAMBDA,
    TEST,
    TEST_FAILED,
    ArmResult,
    GainDifference,
    SetMeasured,
)
from counterfoil.mending.judging import BY_TEST, missing_controls, verdict_of
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


def test_without_equal_numbers_nothing_is_shown_to_help() -> None:
    """On failures any head that is moved further gains, whatever moved it."""
    words = verdict_of([difference(RETRAINED, 1)], ARM, has_test=True, missing=NOT_KNOWN)[1]
    assert words.startswith("It is not shown to help: on failures held out it gains more than the head retrained")
    assert NOT_KNOWN in words
    assert "confirm half" in verdict_of([difference(RETRAINED, 1)], ARM, has_test=False)[1]


def test_a_control_whose_lambda_is_0_is_no_second_comparison() -> None:
    told = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.0)]
    same = f"{CLASS_NAME}{SAME_LAMBDA}"
    words = verdict_of([*told, difference(same, 1, lam=0.5)], ARM, has_test=True)[1]
    assert words.startswith("It helps: ") and "class names at λ = 0" not in words
    assert "λ = 0 was chosen for as many images of class names" in words
    # At the arm's own λ that control gains as much: then it is not shown to help at all.
    words = verdict_of([*told, difference(same, 0, lam=0.5)], ARM, has_test=True)[1]
    assert words.startswith("It is not shown to help: ")
    assert "No difference is shown to as many images of class names at the same λ" in words
    own = [difference(CLASS_NAME, 1, lam=2.0), difference(same, 1, lam=0.5)]
    other = verdict_of([difference(RETRAINED, 1), *own], ARM, has_test=True)[1]
    assert "as many images of class names at λ = 2 (" in other and "λ = 0 was chosen" not in other


@pytest.mark.parametrize(
    ("own", "same", "other", "retrained", "begins"),
    [
        (1, 1, 1, 1, "It helps: "),
        (1, 1, 0, 1, "It helps in part: "),
        (1, 0, 0, 1, "It is not shown to help: on failures held out it gains more than the head"),
        (0, 1, 0, 1, "It is not shown to help: "),
        (1, 1, 1, 0, "It is not shown to help: on failures held out it gains more than as many"),
        (0, 0, 0, 1, "It is not shown to help: "),
        (0, 0, 0, 0, "It is not shown to help: on failures held out it gains more than none of the controls."),
    ],
)
def test_in_part_asks_for_a_control_at_its_own_lambda_and_at_the_same(
    own: int, same: int, other: int, retrained: int, begins: str
) -> None:
    told = [
        difference(RETRAINED, retrained),
        difference(CLASS_NAME, own, lam=0.1),
        difference(f"{CLASS_NAME}{SAME_LAMBDA}", same, lam=0.5),
        difference(RANDOM, other, lam=0.5),  # the λ that was chosen for it is the arm's
    ]
    outcome, words = verdict_of(told, ARM, has_test=True)
    assert words.startswith(begins) and begins.lower().startswith(f"it {outcome}".replace("it not", "it is not"))
    shown = bool(retrained) and begins.startswith("It is not")
    assert ("but not more than as many other images at the same λ" in words) == shown


def test_what_the_confirm_half_chose_is_judged_by_the_test() -> None:
    told = [difference(RETRAINED, 1), difference(CLASS_NAME, 1, lam=0.5)]
    arm = replace(ARM, judged_by=TEST)
    on_test = [replace(one, set=TEST_FAILED) for one in told]
    words = verdict_of(on_test, arm, has_test=True)[1]
    assert words.startswith("It helps: on failures of the test it gains more than") and "held out" not in words
    assert BY_TEST in words and BY_TEST not in verdict_of(told, ARM, has_test=True)[1]
    assert verdict_of(told, arm, has_test=True)[1].startswith("The model fails on no row of the test")
    loses = difference(RETRAINED, -1, on=TEST)
    words = verdict_of([*on_test, loses], arm, has_test=True)[1]
    assert "It helps on failures of the test and loses elsewhere" in words and "Of all rows of the test it" in words


@pytest.mark.parametrize(("side", "loses"), [(1, False), (0, False), (-1, True)])
@pytest.mark.parametrize("helps", [1, 0])
def test_what_loses_on_all_confirm_rows_is_not_simply_said_to_help(side: int, loses: bool, helps: int) -> None:
    told = [
        difference(RETRAINED, helps),
        difference(CLASS_NAME, helps, lam=0.5),
        difference(RETRAINED, side, on=CONFIRM),
    ]
    outcome, words = verdict_of(told, ARM, has_test=True)
    assert words.startswith("It helps") == bool(helps) and (outcome == HELPS) == (bool(helps) and not loses)
    assert ("keep your model" in HEADLINES[outcome]) == (outcome != HELPS)
    if helps:
        assert words.startswith("It helps on failures held out and loses elsewhere: ") == loses
    assert ("it gets fewer right than the head retrained alone" in words) == loses
