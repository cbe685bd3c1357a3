"""Registration: known translations and zooms are measured under other looks, and other scenes are not
known."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from counterfoil.corrupting.corrupt import corrupt
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.recipe.keep.registered import RegisteredRule
from counterfoil.registration import register

SIDE = 64


def scene(number: int, shift: str = "base") -> Image.Image:
    """Return a scene of the lab with its mirror images around it, three times its side."""
    pixels = render(wardrobe_scene("audit", number).shifted(shift))
    around = np.pad(pixels, ((SIDE, SIDE), (SIDE, SIDE), (0, 0)), mode="reflect")
    return Image.fromarray(around)


def seen(picture: Image.Image, right: float, down: float, zoom: float) -> Image.Image:
    """Return the middle square, zoomed about its middle and then moved, by plain resampling."""
    half = SIDE / 2 / zoom
    x = 1.5 * SIDE - right * SIDE / zoom
    y = 1.5 * SIDE - down * SIDE / zoom
    box = (x - half, y - half, x + half, y + half)
    return picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box)


def error(picture: Image.Image, number: int, right: float, down: float, zoom: float) -> float:
    """Return the largest error, in shares of a side and of the zoom, if the registration is
    known."""
    original = seen(scene(number), 0, 0, 1)
    measured = register(np.asarray(picture), np.asarray(original))
    assert measured.known
    return max(
        abs(measured.right - right), abs(measured.down - down), abs(measured.zoom / zoom - 1)
    )


@pytest.mark.parametrize(
    ("number", "right", "down", "zoom"), [(0, 0, 0, 1), (3, 0.2, -0.13, 1), (5, -0.1, 0.2, 0.8), (8, 0, 0.1, 1.25)]
)  # fmt: skip
def test_a_known_translation_and_zoom_are_found(
    number: int, right: float, down: float, zoom: float
) -> None:
    assert error(seen(scene(number), right, down, zoom), number, right, down, zoom) < 0.02


@pytest.mark.parametrize(("right", "zoom"), [(0.302, 1.0), (0.306, 1.02), (0.31, 0.98)])
def test_what_is_found_lies_within_what_verify_allows(right: float, zoom: float) -> None:
    original = seen(scene(3), 0, 0, 1)
    rule = RegisteredRule()
    columns = rule.measure_against(np.asarray(seen(scene(3), right, 0, zoom)), np.asarray(original))
    assert columns.keys() <= rule.measures.keys()
    for name, value in columns.items():
        least, most = rule.measures[name]
        assert least <= value <= most, name


@pytest.mark.parametrize("look", ["negative", "fog", "night"])
def test_the_look_does_not_matter(look: str) -> None:
    of_night = look == "night"
    picture = seen(scene(2, "at_night" if of_night else "base"), 0.08, 0.05, 1.1)
    if look == "negative":
        picture = ImageOps.invert(picture)
    elif look == "fog":
        picture = corrupt(picture, "fog", 3, seed=1)
    assert error(picture, 2, 0.08, 0.05, 1.1) < 0.02


def test_an_image_without_edges_is_not_known() -> None:
    flat = np.full((SIDE, SIDE, 3), 90, np.uint8)
    drawn = np.asarray(seen(scene(0), 0, 0, 1))
    for picture, original in ((flat, drawn), (drawn, flat), (flat, flat)):
        measured = register(picture, original)
        assert not measured.known
        assert measured.confidence < 0.01


def test_noise_is_not_registered_with_a_scene() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    assert not register(noise, np.asarray(seen(scene(4), 0, 0, 1))).known


def test_the_sizes_of_pictures_do_not_matter() -> None:
    picture = np.asarray(seen(scene(6), 0.1, 0, 1).resize((40, 40), Image.Resampling.BICUBIC))
    measured = register(picture, np.asarray(seen(scene(6), 0, 0, 1)))
    assert measured.known
    assert measured.right == pytest.approx(0.1, abs=0.01)
