"""Failure rates with intervals clustered by caption: images of one caption fail alike, so captions are resampled.

Pure functions on arrays of counts.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.statistics import REPLICATES, Estimate, percentile_interval, wilson

# Draws that are held at once: captions times replicates.
_MOST_AT_ONCE = 4_000_000


def clustered_rates(
    failed: NDArray[np.int64], images: NDArray[np.int64], *, seed: int, salt: str, replicates: int = REPLICATES
) -> list[Estimate]:
    """For each of m models the share of all images that fail, each image counting once.

    failed (c, m), images (c,): counts by caption, every caption with an image or more. A replicate draws as many
    captions as there are, with replacement; the draws depend on `seed`, `salt` and the number of captions, never on
    the models. Where nothing varies there is nothing to draw: of a single caption the interval is Wilson's over its
    images, and where all images of all captions agree it is Wilson's over captions. ValueError where there is no
    caption.
    """
    captions, models = failed.shape
    if captions == 0:
        raise ValueError("no caption to take a rate over")
    total = int(images.sum())
    if captions == 1:
        return [wilson(int(failed[0, place]), total) for place in range(models)]
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(f"{seed}\0{salt}".encode()).digest()[:16], "big"))
    drawn = np.empty((replicates, models))
    block = max(1, _MOST_AT_ONCE // captions)
    shares = np.full(captions, 1 / captions)
    for start in range(0, replicates, block):
        stop = min(start + block, replicates)
        times = rng.multinomial(captions, shares, size=stop - start)
        drawn[start:stop] = (times @ failed) / (times @ images)[:, None]
    return [_interval(int(failed[:, place].sum()), total, captions, drawn[:, place]) for place in range(models)]


def _interval(failed: int, total: int, captions: int, drawn: NDArray[np.float64]) -> Estimate:
    if failed in (0, total):
        return wilson(captions if failed else 0, captions)
    return percentile_interval(failed / total, drawn)


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
