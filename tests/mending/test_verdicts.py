"""What is said of an arm names the controls that it lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterfoil.mending.arms import RETRAINED, Arm
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM, DebugImages
from counterfoil.mending.document import HELDOUT, TEST, GainDifference, SetMeasured
from counterfoil.mending.verdicts import missing_controls, verdict_of
from counterfoil.sources import LabelledImages

NONE = np.zeros(0, dtype=np.int64)
NO_IMAGE = LabelledImages("made", "0" * 64, (), NONE, NONE, ("made",), lambda wanted: iter(()))
NOT_KNOWN = "Only the head retrained alone is beside it; whether as many other images would do the same is not known."
NO_CHANGE = SetMeasured(TEST, 100, 100, 0.8, 0.8, 0.0, -0.02, 0.02, 1, 1, 1.0)


def images_of(group: str) -> Arm:
    debug = DebugImages("a", "a", group, NO_IMAGE, NONE, (), NONE, frozenset(), None, (), "0", "a", 0)
    return Arm("a", "mended", debug=debug)


def difference(against: str, side: int, on: str = HELDOUT) -> GainDifference:
    """Twelve units all decided one way, or evenly."""
    ahead, behind = {1: (12, 0), 0: (6, 6), -1: (0, 12)}[side]
    value = 0.1 * side
    return GainDifference(
        against, on, 100, value, value - 0.05, value + 0.05, ahead, behind, 2 / 2**12 if side else 1.0
    )


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
    words = verdict_of([difference(RETRAINED, 1)], [NO_CHANGE], has_test=True, missing=NOT_KNOWN)
    assert words.startswith("It helps: ") and NOT_KNOWN in words
    assert "confirm half" in verdict_of([difference(RETRAINED, 1)], [replace(NO_CHANGE)], has_test=False)
