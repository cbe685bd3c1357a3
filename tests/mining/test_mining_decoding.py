"""Vectors to draw: on the sphere between a caption and a direction, hard away from what is easy."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.mining.decoding import decoded_vectors, direction_in_raw_space, slerp

RNG = np.random.default_rng(12)
REFERENCE, WEIGHTS, SPREAD = RNG.normal(size=64), RNG.normal(size=64), RNG.uniform(0.2, 3, 64)


def angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 1.0])
def test_a_slerp_goes_its_share_of_the_angle_in_the_plane_of_both(share: float) -> None:
    found = slerp(3 * REFERENCE, 0.1 * WEIGHTS, share)
    whole = angle(REFERENCE, WEIGHTS)
    assert np.linalg.norm(found) == pytest.approx(1)
    assert angle(found, REFERENCE) == pytest.approx(share * whole, abs=1e-7)
    assert angle(found, WEIGHTS) == pytest.approx((1 - share) * whole, abs=1e-7)


def test_a_slerp_between_equal_and_nearly_equal_vectors_stays_there() -> None:
    near = REFERENCE + 1e-9 * WEIGHTS
    for other in (REFERENCE, 2 * REFERENCE, near):
        np.testing.assert_allclose(slerp(REFERENCE, other, 0.3), REFERENCE / np.linalg.norm(REFERENCE), atol=1e-8)


def test_a_normal_of_whitened_space_orders_raw_points_as_there() -> None:
    centre, points = RNG.normal(size=64), RNG.normal(size=(200, 64))
    there = (points - centre) / SPREAD @ WEIGHTS
    here = points @ direction_in_raw_space(WEIGHTS, SPREAD)
    np.testing.assert_array_equal(np.argsort(there), np.argsort(here))


def test_a_dimension_without_spread_says_nothing() -> None:
    spread = SPREAD.copy()
    spread[[3, 9]] = 0
    found = direction_in_raw_space(WEIGHTS, spread)
    assert found[3] == found[9] == 0
    assert np.isfinite(found).all() and np.linalg.norm(found) == pytest.approx(1)


def test_hard_lies_against_the_direction_and_easy_along_it_at_the_encoders_length() -> None:
    hard, easy = decoded_vectors(REFERENCE, WEIGHTS, 0.2, 11.5, SPREAD)
    normal = WEIGHTS / SPREAD
    assert hard @ normal < 11.5 * REFERENCE / np.linalg.norm(REFERENCE) @ normal < easy @ normal
    for vector in (hard, easy):
        assert vector.dtype == np.float32 and vector.shape == (64,)
        assert np.linalg.norm(vector) == pytest.approx(11.5, rel=1e-6)
    hard, easy = decoded_vectors(REFERENCE, WEIGHTS, 0.0, 1.0)
    np.testing.assert_array_equal(hard, easy)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: slerp(REFERENCE, -REFERENCE, 0.5), "opposite"),
        (lambda: slerp(REFERENCE, np.zeros(64), 0.5), "not all 0"),
        (lambda: slerp(REFERENCE, np.full(64, np.nan), 0.5), "finite"),
        (lambda: slerp(REFERENCE, WEIGHTS[:63], 0.5), "widths 64 and 63"),
        (lambda: slerp(REFERENCE, WEIGHTS, 1.5), "share is 1.5"),
        (lambda: decoded_vectors(REFERENCE, WEIGHTS, 0.4, 1.0), "alpha is 0.4"),
        (lambda: decoded_vectors(REFERENCE, WEIGHTS, 0.1, 0.0), "norm is 0"),
        (lambda: direction_in_raw_space(WEIGHTS, SPREAD[:3]), "spread"),
        (lambda: direction_in_raw_space(WEIGHTS, -SPREAD), "spread"),
    ],
)
def test_what_has_no_direction_is_refused(call, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        call()
