"""The rule `registered`: what is far or zoomed is dropped, and what is not known only with a
limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.registered import RegisteredRule
from counterfoil.recipe.keep.rule import Verdict

shares = st.floats(-0.296875, 0.296875, width=32)
zooms = st.floats(0.6875, 1.375, width=32)


def verdict(right: float | None, down: float | None, zoom: float | None) -> Verdict:
    scores = {"translation_x": right, "translation_y": down, "zoom": zoom}
    return Verdict({"object": 0.3, **scores, "registration_confidence": 0.5}, {})


@given(shares, shares, zooms, st.floats(0, 0.296875, width=32), st.floats(1, 1.375, width=32))
def test_an_edit_within_both_limits_is_kept(
    right: float, down: float, zoom: float, translation: float, largest: float
) -> None:
    rule = RegisteredRule(translation=translation, zoom=largest)
    (reason,) = rule.dropped([verdict(right, down, zoom)])
    if max(abs(right), abs(down)) > translation:
        assert reason == "moved"
    elif not np.float32(1 / largest) <= zoom <= largest:
        assert reason == "zoomed"
    else:
        assert reason is None


def test_what_is_not_known_is_dropped_with_any_limit_and_without_one_nothing_is() -> None:
    unknown = verdict(None, None, None)
    far = verdict(0.3, -0.3, 1.3)
    assert RegisteredRule().dropped([unknown, far]) == [None, None]
    for rule in (RegisteredRule(translation=0.3), RegisteredRule(zoom=1.4)):
        assert rule.dropped([unknown, far]) == ["not_registered", None]


@pytest.mark.parametrize("settings", [{"translation": -0.1}, {"translation": 0.31}, {"zoom": 0.9}])
def test_limits_that_no_measurement_can_reach_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"greater|less"):
        RegisteredRule(**settings)


def test_measured_columns_are_in_their_bounds_and_empty_where_unknown() -> None:
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 256, (2, 32, 32, 3), np.uint8)
    rule = RegisteredRule()
    known = rule.measure_against(noise[0], noise[0])
    assert set(known) == set(rule.measures)
    assert known["zoom"] == pytest.approx(1, abs=0.01)
    for name, value in known.items():
        low, high = rule.measures[name]
        assert low <= value <= high
        assert value == np.float32(value)
    assert set(rule.measure_against(noise[1], noise[0])) == {"registration_confidence"}


@pytest.mark.parametrize("key", ["screen.keep", "prompts.shifts.red.keep"])
def test_only_edits_are_registered(key: str) -> None:
    with pytest.raises(UserError, match=f"(?s){key}.*registered.*generator.kind edit"):
        load_recipe("wardrobe-mini", [f"{key}=[registered, thresholds]"])
