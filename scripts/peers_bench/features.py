"""FID and KID of features that are given: beside torch-fidelity's functions. No network runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterfoil.feature_stats import (
    FeatureStatistics,
    KernelDistance,
    feature_statistics,
    frechet_distance,
    kernel_distance,
)
from peers_bench.pair import Agreement, Pair

NEEDS = ("torch-fidelity",)
ROWS = 2000
KID_ROWS = 1000
WIDTH = 512
SUBSETS = 100
SUBSET = KID_ROWS // 2


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield FID and KID of two sets of features."""
    import torch
    from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
    from torch_fidelity.metric_kid import kid_features_to_metric

    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5
    first = rng.normal(size=(ROWS, WIDTH)) @ mixed
    second = rng.normal(0.1, 1.0, size=(ROWS, WIDTH)) @ mixed
    tensors = (torch.from_numpy(first), torch.from_numpy(second))

    def our_fid() -> float:
        sides: list[FeatureStatistics] = [feature_statistics(rows) for rows in (first, second)]
        return frechet_distance(*sides)

    def their_fid() -> float:
        left, right = (fid_features_to_statistics(rows) for rows in tensors)
        (value,) = fid_statistics_to_metric(left, right, False).values()
        return float(value)

    def same_fid(ours: float, peers: float) -> Agreement:
        difference = abs(ours / peers - 1)
        return Agreement(difference <= 1e-6, f"FID {ours:.4f}, differs by {difference:.0e} of it")

    size = f"two sets of {ROWS:,} features of width {WIDTH}"
    yield Pair(f"FID of {size}", "torch-fidelity", "`metric_fid`", our_fid, their_fid, same_fid)

    def our_kid() -> KernelDistance:
        return kernel_distance(first[:KID_ROWS], second[:KID_ROWS])

    def their_kid() -> float:
        settings = {"kid_subsets": SUBSETS, "kid_subset_size": SUBSET, "rng_seed": 0}
        metric = kid_features_to_metric(
            *(rows[:KID_ROWS] for rows in tensors), **settings, verbose=False
        )
        return metric["kernel_inception_distance_mean"]

    def same_kid(ours: KernelDistance, peers: float) -> Agreement:
        """Each side draws its subsets, so the mean over them differs."""
        difference = abs(ours.value - peers) / (ours.high - ours.low)
        words = f"own subsets; KID {ours.value:.5f} and {peers:.5f}; ours with its interval too"
        return Agreement(difference <= 0.1, words)

    yield Pair(
        f"KID of {KID_ROWS:,} features of each, {SUBSETS} subsets of {SUBSET:,}",
        "torch-fidelity",
        "`metric_kid`",
        our_kid,
        their_kid,
        same_kid,
        most_rounds=3,
    )
