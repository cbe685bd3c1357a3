"""An edit that is no longer like its row is dropped; the number is float32, and is only compared where it is there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.keep import SOURCE_SIMILARITY, SameImageRule, Verdict, similarity
from counterfoil.recipe import load_recipe

cosines = st.floats(-1, 1, width=32)


def verdict(value: float | None) -> Verdict:
    return Verdict({"object": 0.3, SOURCE_SIMILARITY: value}, {})


@given(st.lists(cosines, max_size=10), cosines, cosines)
def test_raising_the_setting_never_keeps_more(found: list[float], one: float, other: float) -> None:
    verdicts = [verdict(value) for value in found]
    loose = SameImageRule(similarity=min(one, other)).dropped(verdicts)
    strict = SameImageRule(similarity=max(one, other)).dropped(verdicts)
    assert all(kept == "other_image" or why is None for kept, why in zip(strict, loose, strict=True))
    assert strict == [None if value >= max(one, other) else "other_image" for value in found]


def test_without_a_setting_or_a_number_nothing_is_dropped() -> None:
    assert SameImageRule().dropped([verdict(-1.0), verdict(None)]) == [None, None]
    assert SameImageRule(similarity=0.9).dropped([verdict(None), Verdict({}, {})]) == [None, None]


def test_a_number_that_is_exactly_the_setting_passes() -> None:
    for value in (0.1, 0.7, 0.9):
        assert SameImageRule(similarity=value).dropped([verdict(float(np.float32(value)))]) == [None]


def test_the_cosine_of_an_image_with_itself_is_in_bounds() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for one in vectors:
        assert 0.99999 < similarity(one, one) <= 1
        assert similarity(one, -one) >= -1
        assert np.float32(similarity(one, vectors[0])) == similarity(one, vectors[0])


@pytest.mark.parametrize("place", ["screen.keep", "prompts.shifts.red.keep"])
def test_only_edits_have_a_row_to_be_compared_with(place: str) -> None:
    with pytest.raises(UserError, match=f"(?s){place}.*same_image.*generator.kind edit"):
        load_recipe("wardrobe-mini", [f"{place}=[same_image, thresholds]"])
