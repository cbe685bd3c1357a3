"""What the proof of mending reports of uninformative images, and which pictures it uses."""

from __future__ import annotations

import numpy as np
import pytest

from mend_proof.null import SAID, counted
from mend_proof.pictures import without_class
from mend_proof.plan import Settings

HELPS = SAID[:2]
RUNS = 80


@pytest.mark.whole
@pytest.mark.parametrize("case", ["alike", "noise"])
def test_images_that_say_nothing_are_seldom_said_to_help(case: str) -> None:
    """One of up to five comparisons is won much more often than either control at both of its λ."""
    counts = counted(case, range(RUNS))
    helps = sum(counts.get(words, 0) for words in HELPS)
    assert counts["some"] / RUNS > 0.1 > helps / RUNS
    assert helps / RUNS <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / RUNS)
    # Images without a control of the same number are never said to help.
    assert not any(counts.get(f"alone: {words}") for words in HELPS)


@pytest.mark.whole
def test_images_of_what_fails_are_mostly_said_to_help() -> None:
    counts = counted("planted", range(20))
    assert sum(counts.get(words, 0) for words in HELPS) >= 16


def test_pictures_are_screened_as_the_recipe_screens() -> None:
    assert Settings().screen == "recipe"
    assert without_class("a photo of a {5} in the snow") == "a photo in the snow"
    assert without_class("a photo of a {0} or {4} in the snow") == "a photo in the snow"
    assert without_class("a photo of a {0} or {4}") is None
