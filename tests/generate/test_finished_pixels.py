"""Finished pixels are rounded by torch, on any device, as numpy rounds them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from counterfoil.generate.pictures import as_pictures


def _by_numpy(pixels: torch.Tensor) -> np.ndarray:
    numbers = pixels.float().permute(0, 2, 3, 1).numpy()
    return (numbers.clip(0, 1) * 255).round().astype(np.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_levels_are_numpys_at_halves_and_ends_too(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    halves = (torch.arange(-3, 259, dtype=torch.float64) + 0.5).div(255).float()
    near = torch.cat([halves, halves.nextafter(torch.tensor(9.0)), halves.nextafter(torch.tensor(-9.0))])
    values = torch.cat([near, torch.randn(3 * 64 * 64 * 2 - len(near), generator=generator)])
    pixels = values.to(dtype).reshape(2, 3, 64, 64)
    found = as_pictures(pixels)()
    expected = _by_numpy(pixels)
    assert len(np.unique(expected)) > 200
    for one, other in zip(found, expected, strict=True):
        assert one is not None and one.dtype == np.uint8 and one.flags.c_contiguous
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_not_finite_drops_its_picture_alone(wrong: float) -> None:
    pixels = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = _by_numpy(pixels)
    pixels[1, 2, 7, 7] = wrong
    found = as_pictures(pixels)()
    assert found[1] is None
    for place in (0, 2):
        np.testing.assert_array_equal(found[place], expected[place])
