"""Finished pixels as pictures: rounded alike everywhere, encoded as the recipe says, compared."""

from __future__ import annotations

import io
import math
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.generate.pictures import as_pictures, decode_image, encode_image, psnr
from counterfoil.lab.world import render
from counterfoil.recipe import Recipe, load_recipe
from lab_training.corpora import unbiased_scene


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
    decoded = np.asarray(_decoded(encode_image(Image.fromarray(stripes), recipe)))
    # At 4:2:0, colour has half the resolution: red beside blue becomes purple.
    assert np.abs(decoded.astype(int) - stripes).mean() < 15


def test_saved_size_is_the_size_that_is_stored() -> None:
    recipe = _recipe("generator.saved_size=32")
    content = encode_image(Image.fromarray(_pictures()[0]), recipe)
    assert _decoded(content).size == (32, 32)
    expected = Image.fromarray(_pictures()[0]).resize((32, 32), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(np.asarray(_decoded(content)), np.asarray(expected))


def _by_numpy(pixels: torch.Tensor) -> np.ndarray:
    numbers = pixels.float().permute(0, 2, 3, 1).numpy()
    return (numbers.clip(0, 1) * 255).round().astype(np.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_levels_are_numpys_at_halves_and_ends_too(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    halves = (torch.arange(-3, 259, dtype=torch.float64) + 0.5).div(255).float()
    near = torch.cat(
        [halves, halves.nextafter(torch.tensor(9.0)), halves.nextafter(torch.tensor(-9.0))]
    )
    values = torch.cat([near, torch.randn(3 * 64 * 64 * 2 - len(near), generator=generator)])
    pixels = values.to(dtype).reshape(2, 3, 64, 64)
    pictures = as_pictures(pixels)()
    expected = _by_numpy(pixels)
    assert len(np.unique(expected)) > 200
    for picture, expected_picture in zip(pictures, expected, strict=True):
        assert picture is not None and picture.dtype == np.uint8 and picture.flags.c_contiguous
        np.testing.assert_array_equal(picture, expected_picture)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_drops_its_picture_alone(wrong: float) -> None:
    pixels = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = _by_numpy(pixels)
    pixels[1, 2, 7, 7] = wrong
    pictures = as_pictures(pixels)()
    assert pictures[1] is None
    for index in (0, 2):
        np.testing.assert_array_equal(pictures[index], expected[index])


def test_equal_pictures_have_no_difference_and_opposite_ones_no_signal() -> None:
    grey = np.full((4, 6, 3), 90, np.uint8)
    assert psnr(grey, grey.copy()) == math.inf
    assert psnr(np.zeros_like(grey), np.full_like(grey, 255)) == 0


def test_the_difference_is_the_mean_over_all_values_and_has_no_sign() -> None:
    black = np.zeros((10, 10, 3), np.uint8)
    lighter = black.copy()
    lighter[0, 0, 0] = 30  # a squared error of 900 / 300 = 3
    assert (
        psnr(black, lighter)
        == psnr(lighter, black)
        == pytest.approx(48.1308 - 10 * math.log10(3), abs=1e-4)
    )


def test_pictures_are_decoded_as_rgb() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(decode_image(file.getvalue()), np.repeat(pixels[:, :, None], 3, axis=2))
