"""FID agrees with torch-fidelity's, is exact where that has a closed form, and tells where it is biased."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

from counterfoil.evaluation import feature_distances as frechet
from counterfoil.evaluation.feature_distances import feature_statistics, frechet_distance, is_biased


def features(seed: int, images: int, width: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1.0, (images, width)) @ rng.normal(0, 1, (width, width))


def reference(one: np.ndarray, other: np.ndarray) -> float:
    statistics = [fid_features_to_statistics(torch.from_numpy(rows)) for rows in (one, other)]
    return fid_statistics_to_metric(*statistics, verbose=False)[KEY_METRIC_FID]


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return frechet_distance(feature_statistics(one), feature_statistics(other))


@pytest.mark.parametrize(("images", "others", "width"), [(200, 300, 10), (40, 700, 60), (30, 25, 50)])
def test_it_is_torch_fidelitys_also_with_fewer_images_than_features(images: int, others: int, width: int) -> None:
    one, other = features(0, images, width), features(1, others, width, 0.2)
    # The other takes roots of eigenvalues that rounding leaves below nothing where covariances are singular.
    assert distance(one, other) == pytest.approx(reference(one, other), rel=1e-5)


def test_a_shift_of_one_set_is_its_squared_length_and_a_set_is_nothing_from_itself() -> None:
    one = features(0, 50, 8)
    step = np.arange(8.0)
    assert distance(one, one + step) == pytest.approx(step @ step, rel=1e-6)
    assert distance(one, one) == pytest.approx(0, abs=1e-6)


def test_statistics_are_those_of_numpy_however_many_rows_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = features(0, 101, 5).astype(np.float32) + 1000  # a large mean would swallow the spread in single precision
    monkeypatch.setattr(frechet, "_ROWS_AT_ONCE", 7)
    found = feature_statistics(rows)
    covariance = np.cov(rows.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(found.root @ found.root, covariance, rtol=1e-6, atol=1e-8)
    assert found.trace == pytest.approx(np.trace(covariance))


def test_with_few_images_equal_distributions_are_far_and_that_is_told() -> None:
    rng = np.random.default_rng(0)
    few, many = ([rng.normal(size=(n, 30)) for _ in range(2)] for n in (40, 4000))
    assert distance(*few) > 10 * distance(*many)
    assert is_biased(40, 4000, 30) and is_biased(4000, 40, 30) and is_biased(149, 150, 30)
    assert not is_biased(150, 4000, 30)


def test_what_has_no_covariance_is_refused() -> None:
    with pytest.raises(ValueError, match="2 or more"):
        feature_statistics(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="numbers"):
        feature_statistics(np.array([[0.0, np.nan], [1.0, 2.0]]))
