"""KID and FID as pure functions: against loops, formulas and torch-fidelity, and what their
intervals promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_fidelity.metric_fid import (
    KEY_METRIC_FID,
    fid_features_to_statistics,
    fid_statistics_to_metric,
)
from torch_fidelity.metric_kid import (
    KEY_METRIC_KID_MEAN,
    KEY_METRIC_KID_STD,
    kid_features_to_metric,
)

from counterfoil import feature_stats
from counterfoil.feature_stats import (
    feature_statistics,
    frechet_distance,
    is_biased,
    kernel_distance,
    subset_estimate,
)

WIDTH = 6


def features(seed: int, images: int, shift: float = 0.0, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, 1.0, (images, width))


def mmd2(left: np.ndarray, right: np.ndarray) -> float:
    return subset_estimate(left, right, np.arange(len(left)), np.arange(len(right))).value


def reference(
    left: np.ndarray, right: np.ndarray, subsets: int, size: int, seed: int = 7
) -> tuple[float, float]:
    settings = {"kid_subsets": subsets, "kid_subset_size": size, "rng_seed": seed, "verbose": False}
    metric = kid_features_to_metric(torch.from_numpy(left), torch.from_numpy(right), **settings)
    return metric[KEY_METRIC_KID_MEAN], metric[KEY_METRIC_KID_STD]


@pytest.mark.parametrize("width", [1, 6, 300])
def test_one_estimate_is_torch_fidelitys(width: int) -> None:
    left = features(0, 80, width=width)
    right = features(1, 80, 0.3, width)
    mean, _ = reference(left, right, 1, 80)
    assert mmd2(left, right) == pytest.approx(mean, rel=1e-9, abs=1e-12)


def test_the_mean_over_our_own_subsets_is_the_estimate_over_all_images_within_its_spread() -> None:
    left = features(0, 200)
    right = features(1, 200, 0.3)
    distance = kernel_distance(left, right)
    whole, _ = reference(left, right, 1, 200)
    # Halves spread √3 times as far as the estimate at most.
    spread = 3**0.5 * (distance.high - distance.low) / (2 * 1.96)
    assert distance.value == pytest.approx(whole, abs=4 * spread / np.sqrt(feature_stats.SUBSETS))
    assert distance.low < distance.value < distance.high
    assert (distance.subset, distance.other_subset) == (100, 100)


def test_the_interval_covers_the_truth_and_is_as_wide_as_the_distance_varies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Intervals cover near zero too, where halves spread 1.6 to 1.8 times too far
    (`scripts/prove_intervals.py`)."""
    monkeypatch.setattr(feature_stats, "SUBSETS", 50)
    truth = mmd2(features(1000, 2000), features(1001, 2000, 0.5))
    far = [kernel_distance(features(seed, 60), features(seed + 500, 90, 0.5)) for seed in range(30)]
    same = [kernel_distance(features(seed, 40), features(seed + 500, 90)) for seed in range(30)]
    # Of 30 intervals of 95 %, fewer than 25 hold the truth once in 300 times.
    assert sum(estimate.low <= truth <= estimate.high for estimate in far) >= 25
    assert sum(estimate.low <= 0 <= estimate.high for estimate in same) >= 25
    for estimates in (far, same):
        implied = np.mean([estimate.high - estimate.low for estimate in estimates]) / (2 * 1.96)
        # Thirty values give a standard deviation to an eighth.
        assert 0.7 < implied / np.std([estimate.value for estimate in estimates]) < 1.45
    values = np.array([estimate.value for estimate in same])
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(len(values))


def test_parts_of_the_variance_are_those_of_units() -> None:
    """Doubled images are one unit: everything but the number of rows stays as it was."""
    left = features(0, 12)
    right = features(1, 15, 0.4)
    alone = subset_estimate(left, right, np.arange(12), np.arange(15))
    twice = subset_estimate(
        np.repeat(left, 2, axis=0), right, np.repeat(np.arange(12), 2), np.arange(15)
    )
    for name in ("value", "linear", "other_linear", "within", "other_within", "between"):
        assert getattr(twice, name) == pytest.approx(getattr(alone, name), rel=1e-9), name


def test_more_images_give_a_narrower_interval_and_a_larger_shift_a_larger_distance() -> None:
    few, many = (kernel_distance(features(0, n), features(1, n, 0.5)) for n in (60, 900))
    assert many.high - many.low < (few.high - few.low) / 2
    distances = [
        kernel_distance(features(0, 300), features(1, 300, shift)).value
        for shift in (0.0, 0.3, 0.6)
    ]
    assert distances == sorted(distances)


def test_images_of_one_unit_bring_no_nearness_and_no_certainty() -> None:
    left = features(0, 60)
    right = features(1, 300)
    alone = kernel_distance(left, right)
    copies = kernel_distance(np.repeat(left, 5, axis=0), right, units=np.repeat(np.arange(60), 5))
    believed = kernel_distance(np.repeat(left, 5, axis=0), right)
    assert copies.value == pytest.approx(alone.value, abs=(alone.high - alone.low) / 8)
    assert copies.high - copies.low > 0.7 * (alone.high - alone.low)
    # copies taken for separate images give a distance that does not exist
    assert believed.low > 0 > copies.low


def test_no_kernel_is_larger_than_a_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    inner = feature_stats._kernel
    monkeypatch.setattr(
        feature_stats, "_kernel", lambda x, y: sizes.append(max(len(x), len(y))) or inner(x, y)
    )
    monkeypatch.setattr(feature_stats, "SUBSETS", 2)
    distance = kernel_distance(features(0, 5000), features(1, 2600))
    assert max(sizes) == distance.subset == distance.other_subset == feature_stats.LARGEST_SUBSET
    assert distance.low <= distance.value <= distance.high


def test_a_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    left = features(0, 60)
    right = features(1, 60)
    assert kernel_distance(left, right, seed=3) == kernel_distance(left, right, seed=3)
    assert kernel_distance(left, right, seed=3) != kernel_distance(left, right, seed=4)


def features_of_frechet(seed: int, images: int, width: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1.0, (images, width)) @ rng.normal(0, 1, (width, width))


def reference_of_frechet(left: np.ndarray, right: np.ndarray) -> float:
    statistics = [fid_features_to_statistics(torch.from_numpy(rows)) for rows in (left, right)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]


def distance(left: np.ndarray, right: np.ndarray) -> float:
    return frechet_distance(feature_statistics(left), feature_statistics(right))


@pytest.mark.parametrize(
    ("images", "others", "width"), [(200, 300, 10), (40, 700, 60), (30, 25, 50)]
)
def test_it_is_torch_fidelitys_also_with_fewer_images_than_features(
    images: int, others: int, width: int
) -> None:
    left = features_of_frechet(0, images, width)
    right = features_of_frechet(1, others, width, 0.2)
    # The other takes roots of eigenvalues that rounding leaves below nothing where covariances are
    # singular.
    assert distance(left, right) == pytest.approx(reference_of_frechet(left, right), rel=1e-5)


def test_a_shift_of_one_set_is_its_squared_length_and_a_set_is_nothing_from_itself() -> None:
    left = features_of_frechet(0, 50, 8)
    step = np.arange(8.0)
    assert distance(left, left + step) == pytest.approx(step @ step, rel=1e-6)
    assert distance(left, left) == pytest.approx(0, abs=1e-6)


def test_statistics_are_those_of_numpy_however_many_rows_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (
        features_of_frechet(0, 101, 5).astype(np.float32) + 1000
    )  # a large mean would swallow the spread in single precision
    monkeypatch.setattr(feature_stats, "_ROWS_AT_ONCE", 7)
    statistics = feature_statistics(rows)
    covariance = np.cov(rows.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(statistics.root @ statistics.root, covariance, rtol=1e-6, atol=1e-8)
    assert statistics.trace == pytest.approx(np.trace(covariance))


def test_with_few_images_equal_distributions_are_far_and_that_is_reported() -> None:
    rng = np.random.default_rng(0)
    few, many = ([rng.normal(size=(n, 30)) for _ in range(2)] for n in (40, 4000))
    assert distance(*few) > 10 * distance(*many)
    assert is_biased(40, 4000, 30) and is_biased(4000, 40, 30) and is_biased(149, 150, 30)
    assert not is_biased(150, 4000, 30)
