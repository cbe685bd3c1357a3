"""The PSNR of pictures, on numbers that can be worked out by hand."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from PIL import Image

from counterfoil.generate.pictures import decoded, psnr


def test_equal_pictures_have_no_difference_and_opposite_ones_no_signal() -> None:
    grey = np.full((4, 6, 3), 90, np.uint8)
    assert psnr(grey, grey.copy()) == math.inf
    assert psnr(np.zeros_like(grey), np.full_like(grey, 255)) == 0


def test_the_difference_is_the_mean_over_all_values_and_has_no_sign() -> None:
    one = np.zeros((10, 10, 3), np.uint8)
    other = one.copy()
    other[0, 0, 0] = 30  # a squared error of 900 / 300 = 3
    assert psnr(one, other) == psnr(other, one) == pytest.approx(48.1308 - 10 * math.log10(3), abs=1e-4)


def test_pictures_are_decoded_as_rgb() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(decoded(file.getvalue()), np.repeat(pixels[:, :, None], 3, axis=2))
