"""What is visible: measured of pixels, compared as it is stored, and decided by settings that are null by default."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from counterfoil.errors import UserError
from counterfoil.keep import OBJECT, Verdict, VisibleRule, decide_cell, passing
from counterfoil.keep.visible import visibility
from counterfoil.recipe import Recipe, load_recipe

SIDE = 40


def picture(value: int = 0) -> np.ndarray:
    return np.full((SIDE, SIDE, 3), value, np.uint8)


def verdict(**scores: float | None) -> Verdict:
    return Verdict({OBJECT: 0.5, **scores}, {})


@given(st.integers(0, 2**32 - 1), st.integers(1, 255))
def test_it_is_what_pillow_and_numpy_say(seed: int, most: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, most + 1, (7, 11, 3)).astype(np.uint8)
    found = visibility(pixels)
    luma = np.asarray(Image.fromarray(pixels).convert("L"))
    assert found["black"] == np.float32((luma <= 8).mean())
    assert found["white"] == np.float32((luma >= 247).mean())
    channels = pixels.reshape(-1, 3)
    ends = [np.percentile(channels, tail, axis=0, method="inverted_cdf") for tail in (5, 95)]
    # 77 pixels: a twentieth of them is no whole number, so that every definition of a percentile of levels agrees.
    assert found["contrast"] == (ends[1].astype(int) - ends[0].astype(int)).max()


def test_a_lamp_in_the_dark_is_no_contrast() -> None:
    dark = picture(3)
    dark[:8, :8] = 255  # 4 % of the pixels, whose standard deviation is 49
    assert visibility(dark)["contrast"] == 0
    dark[:10, :10] = 255  # 6 %
    assert visibility(dark)["contrast"] == 252
    assert visibility(picture(3)) == {"contrast": 0.0, "black": 1.0, "white": 0.0}
    assert visibility(picture(250)) == {"contrast": 0.0, "black": 0.0, "white": 1.0}


def test_what_differs_by_colour_alone_is_visible() -> None:
    """Red and green of one luma: an image in grey would be a plain surface."""
    red_and_green = picture()
    red_and_green[:, : SIDE // 2] = (100, 0, 0)
    red_and_green[:, SIDE // 2 :] = (0, 51, 0)
    assert len(np.unique(np.asarray(Image.fromarray(red_and_green).convert("L")))) == 1
    assert visibility(red_and_green)["contrast"] == 100


def test_it_measures_only_where_nothing_is_set() -> None:
    black = verdict(contrast=0.0, black=1.0, white=0.0)
    assert VisibleRule().dropped([black]) == [None]
    assert set(VisibleRule().columns()) == set(VisibleRule().measures) == {"contrast", "black", "white"}


def test_each_setting_has_its_reason_and_what_is_not_there_misses_nothing() -> None:
    rule = VisibleRule(contrast=5, black=0.9, white=0.8)
    rows = [
        (verdict(contrast=4.0, black=1.0, white=0.0), "low_contrast"),
        (verdict(contrast=5.0, black=0.95, white=0.0), "too_black"),
        (verdict(contrast=5.0, black=0.0, white=0.85), "too_white"),
        (verdict(contrast=5.0, black=0.5, white=0.5), None),
        (verdict(contrast=None, black=None, white=None), None),
        (verdict(), None),
    ]
    assert rule.dropped([one for one, _ in rows]) == [why for _, why in rows]
    assert set(rule.reasons) == {why for _, why in rows if why}


@pytest.mark.parametrize("parts", range(1, 20))
def test_a_share_that_is_exactly_the_setting_passes(parts: int) -> None:
    """A column is float32, whose 0.1 is more than the 0.1 of a recipe."""
    pixels = picture(255)
    pixels[: 2 * parts] = 0
    found = visibility(pixels)
    assert VisibleRule(black=parts / 20).dropped([verdict(**found)]) == [None]
    assert VisibleRule(black=parts / 20 - 1e-4).dropped([verdict(**found)]) == ["too_black"]
    assert np.float32(found["black"]) == found["black"]


def test_it_stands_before_thresholds_and_fills_quotas() -> None:
    recipe = load_recipe(
        "wardrobe-mini",
        ["screen.keep=[{visible: {contrast: 5}}, thresholds]", "samples={candidates: null, accepted: 2, at_most: 4}"],
    )
    assert all(isinstance(shift.keep[0], VisibleRule) for shift in recipe.all_shifts())  # the base's too
    shown, dark = verdict(contrast=80.0), verdict(contrast=1.0)
    rules = [VisibleRule(contrast=5)]
    assert decide_cell(rules, [shown, dark, shown, shown], 2) == ["accepted", "low_contrast", "accepted", "surplus"]
    assert passing(rules, [shown, dark, shown]) == 2


def test_its_columns_are_in_every_table_and_enter_the_screen_alone() -> None:
    plain = load_recipe("wardrobe-mini", ["screen.keep=thresholds"])
    asked = load_recipe("wardrobe-mini", ["screen.keep=[{visible: {}}, thresholds]"])
    assert asked.plan_hash == plain.plan_hash and asked.screen_hash != plain.screen_hash
    assert [asked.added_columns[name].type for name in ("contrast", "black", "white")] == ["float32"] * 3
    assert Recipe.model_validate(asked.model_dump(mode="json")).screen_hash == asked.screen_hash


@pytest.mark.parametrize("settings", [{"contrast": 256}, {"black": 1.1}, {"white": -0.1}, {"dark": 1}])
def test_what_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        VisibleRule.model_validate(settings)
    with pytest.raises(UserError):
        load_recipe("wardrobe-mini", [f"screen.keep=[{{visible: {settings}}}, thresholds]".replace("'", "")])
