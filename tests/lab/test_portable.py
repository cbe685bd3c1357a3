"""Elementary functions against numpy's, to the last bits, and the blur against scipy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from counterfoil.lab import portable

RNG = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("function", "reference", "x"),
    [
        (portable.sine, np.sin, RNG.uniform(-90_000, 90_000, 100_000)),
        (portable.sine, np.sin, RNG.uniform(-8, 8, 100_000)),
        (portable.cosine, np.cos, RNG.uniform(-90_000, 90_000, 100_000)),
        (portable.cosine, np.cos, np.arange(-40, 41) * np.pi / 4),
    ],
)
def test_sines_and_cosines_are_right_to_the_last_bits(
    function: Callable[..., np.ndarray], reference: Callable[..., np.ndarray], x: np.ndarray
) -> None:
    np.testing.assert_allclose(function(x), reference(x), rtol=0, atol=2e-15)


def test_exponentials_and_powers_are_right_to_the_last_bits() -> None:
    x = np.concatenate([RNG.uniform(-700, 700, 100_000), RNG.uniform(-1, 1, 100_000), [0.0]])
    np.testing.assert_allclose(portable.exponential(x), np.exp(x), rtol=2e-15)
    base = np.concatenate([RNG.random(100_000), RNG.uniform(1, 1e6, 10_000), [0.0, 1.0]])
    for exponent in (0.2, 0.8, 1.3, 2.4):
        np.testing.assert_allclose(portable.power(base, exponent), base**exponent, rtol=1e-14)
    assert portable.power([0.0, 1.0], 0.8).tolist() == [0.0, 1.0]


def test_a_number_gives_a_number() -> None:
    assert float(portable.sine(0.5)) == pytest.approx(np.sin(0.5), abs=1e-15)
    assert float(portable.power(0.5, 1.3)) == pytest.approx(0.5**1.3, rel=1e-14)


@pytest.mark.parametrize(("mode", "scipys"), [("wrap", "wrap"), ("symmetric", "reflect")])
@pytest.mark.parametrize("deviations", [0.4, 1.6, 6.0, (0.7, 7.0), (3.0, 0.1)])
def test_the_blur_is_scipys(
    mode: Literal["wrap", "symmetric"], scipys: str, deviations: float | tuple[float, float]
) -> None:
    field = RNG.standard_normal((40, 64)).astype(np.float32)
    blurred = portable.portable_blur(field, deviations, mode)
    np.testing.assert_allclose(
        blurred, gaussian_filter(field, deviations, mode=scipys), rtol=0, atol=2e-7
    )


def test_uniform_numbers_are_numpys() -> None:
    rng = np.random.default_rng(3)
    reference = np.random.default_rng(3)
    assert portable.uniform(rng, -2.5, 7.25) == reference.uniform(-2.5, 7.25)
    np.testing.assert_allclose(
        portable.uniform(rng, 1, 9, (4, 5)), reference.uniform(1, 9, (4, 5)), rtol=1e-15
    )
