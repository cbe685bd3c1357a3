"""Failure rates with intervals clustered by caption: images of one caption fail alike.

Pure functions on arrays of counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.statistics import Estimate, wilson
from counterfoil.stats import clustered_interval


def clustered_rates(failed: NDArray[np.int64], images: NDArray[np.int64]) -> list[Estimate]:
    """For each of m models the share of all images that fail, each image counting once.

    failed (c, m), images (c,): counts by caption, every caption with an image or more. The interval is that of rows
    which share units (`stats.py`); of a single caption, which tells nothing of others, Wilson's over its images.
    ValueError where there is no caption.
    """
    captions, models = failed.shape
    if captions == 0:
        raise ValueError("no caption to take a rate over")
    total = int(images.sum())
    if captions == 1:
        return [wilson(int(failed[0, place]), total) for place in range(models)]
    return [
        Estimate(int(own.sum()) / total, *clustered_interval(own, images))
        for own in (failed[:, place] for place in range(models))
    ]


def matched_rates(
    failed: NDArray[np.int64], images: NDArray[np.int64], weights: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """(m,) the rates by class, averaged as `weights` has the classes: what the same mixture of classes fails at.

    failed (k, m), images (k,), weights (k,): by class. Classes without an image sit out; None where none has one.
    """
    there = (images > 0) & (weights > 0)
    if not there.any():
        return None
    shares = failed[there] / images[there, None]
    return (weights[there] @ shares) / weights[there].sum()
