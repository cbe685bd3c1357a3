"""Encoded images decode to what was rendered: exactly as PNG, closely as JPEG and WebP."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest
from PIL import Image

from counterfoil.generate import encode_image
from counterfoil.lab.scenes import unbiased_scene
from counterfoil.lab.world import render
from counterfoil.recipe import Recipe, load_recipe


@cache
def _pictures() -> list[np.ndarray]:
    return [render(unbiased_scene(number)) for number in range(6)]


def _recipe(*changes: str) -> Recipe:
    return load_recipe("wardrobe-mini", changes)


def _decoded(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content)).copy()


def test_png_is_lossless() -> None:
    for pixels in _pictures():
        content = encode_image(Image.fromarray(pixels), _recipe())
        assert content == encode_image(Image.fromarray(pixels), _recipe())
        with Image.open(io.BytesIO(content)) as picture:
            assert picture.format == "PNG"
            np.testing.assert_array_equal(np.asarray(picture), pixels)


@pytest.mark.parametrize(("name", "format"), [("jpg", "JPEG"), ("webp", "WEBP")])
def test_lossy_formats_are_close_and_follow_their_quality(name: str, format: str) -> None:
    sizes = []
    for quality in (40, 95):
        recipe = _recipe(f"output.image={{format: {name}, quality: {quality}}}")
        contents = [encode_image(Image.fromarray(pixels), recipe) for pixels in _pictures()]
        sizes.append(sum(map(len, contents)))
        for content, pixels in zip(contents, _pictures(), strict=True):
            with Image.open(io.BytesIO(content)) as picture:
                assert picture.format == format
                error = np.abs(np.asarray(picture.convert("RGB")).astype(int) - pixels).mean()
            assert error < (5 if quality == 95 else 20)
    assert sizes[0] < sizes[1]


def test_jpeg_keeps_the_colours_of_fine_edges() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2, 0] = stripes[:, 1::2, 2] = 255
    recipe = _recipe("output.image={format: jpg}")
    found = np.asarray(_decoded(encode_image(Image.fromarray(stripes), recipe)))
    # At 4:2:0, colour has half the resolution: red beside blue becomes purple.
    assert np.abs(found.astype(int) - stripes).mean() < 15


def test_saved_size_is_the_size_that_is_stored() -> None:
    recipe = _recipe("generator.saved_size=32")
    content = encode_image(Image.fromarray(_pictures()[0]), recipe)
    assert _decoded(content).size == (32, 32)
    expected = Image.fromarray(_pictures()[0]).resize((32, 32), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(np.asarray(_decoded(content)), np.asarray(expected))
