"""The Fréchet distance (FID) of two sets of features, between the normal distributions of their means and covariances.

Pure functions on arrays. Heusel 2017, equation 6: ‖μ₁ − μ₂‖² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁Σ₂)^½. With few images the
estimate is too high, also between equal distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.report.distances import IMAGES_A_FEATURE

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class FeatureStatistics:
    """Of n features of a width d: mean (d,), the root of the covariance (d, d), and the covariance's trace."""

    n: int
    mean: NDArray[np.float64]
    root: NDArray[np.float64]
    trace: float


def feature_statistics(features: NDArray[np.floating]) -> FeatureStatistics:
    """Statistics of features [n, d], in double precision. ValueError for fewer than two, or what is not finite."""
    if features.ndim != 2 or len(features) < 2:
        raise ValueError(f"features of the shape {features.shape}, expected [2 or more, d]")
    mean = features.mean(axis=0, dtype=np.float64)
    if not np.isfinite(mean).all():
        raise ValueError("features are expected to be numbers")
    covariance = np.zeros((len(mean), len(mean)))
    for start in range(0, len(features), _ROWS_AT_ONCE):
        centred = features[start : start + _ROWS_AT_ONCE].astype(np.float64) - mean
        covariance += centred.T @ centred
    covariance /= len(features) - 1
    values, vectors = np.linalg.eigh(covariance)
    # Those of a covariance are never below nothing; rounding may take them there.
    root: Any = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    return FeatureStatistics(len(features), mean, root, float(np.trace(covariance)))


def frechet_distance(one: FeatureStatistics, other: FeatureStatistics) -> float:
    """FID. The trace of (Σ₁Σ₂)^½ is the sum of the singular values of Σ₁^½ Σ₂^½, which no singular Σ troubles."""
    between = one.mean - other.mean
    shared = np.linalg.svd(one.root @ other.root, compute_uv=False).sum()
    return max(0.0, float(between @ between + one.trace + other.trace - 2 * shared))


def is_biased(images: int, others: int, width: int) -> bool:
    """Whether a side has too few images for the covariance of so many features: FID is then clearly too high."""
    return min(images, others) < IMAGES_A_FEATURE * width
