"""From a direction to a vector that a generator can draw: between a caption's embedding and ±w (Jain 2023, A.7).

Pure functions on arrays. Encoders' vectors are compared by their angles and no pipeline normalises what it is given, so
the way runs along the unit sphere and its end is scaled to the length that the encoder's vectors usually have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.recipe.schema_mine import MOST_ALPHA

_LEAST_SINE = 1e-6


def slerp(start: ArrayLike, end: ArrayLike, share: float) -> NDArray[np.float64]:
    """The unit vector (width,) that lies `share` of the angle from `start` to `end`, whatever their lengths.

    ValueError for a share outside 0 to 1, other widths, vectors without a direction, and opposite ones, between which
    no way is the shortest.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected 0 to 1")
    first, last = _unit(start), _unit(end)
    if first.shape != last.shape:
        raise ValueError(f"widths {len(first)} and {len(last)}, expected equal ones")
    # By the distances, not by arccos: that loses half of its digits where the two are near.
    angle = 2 * np.arctan2(np.linalg.norm(first - last), np.linalg.norm(first + last))
    sine = np.sin(angle)
    if sine > _LEAST_SINE:
        return _unit((np.sin((1 - share) * angle) * first + np.sin(share * angle) * last) / sine)
    if first @ last < 0:
        raise ValueError("the vectors are opposite, so no way between them is the shortest")
    return _unit((1 - share) * first + share * last)


def direction_in_raw_space(weights: ArrayLike, spread: ArrayLike | None = None) -> NDArray[np.float64]:
    """A hyperplane's unit normal (width,) in the encoder's own space.

    weights: (width,), found there, or in the space whitened by `spread` (width,), which maps back as w/σ: the decision
    w·(x − μ)/σ is (w/σ)·x but for a constant. A dimension of no spread tells nothing and gets 0. ValueError as `slerp`.
    """
    normal = np.asarray(weights, np.float64)
    if spread is not None:
        own = np.asarray(spread, np.float64)
        if own.shape != normal.shape or not (own >= 0).all():
            raise ValueError(f"spread {own.shape}, expected {normal.shape} finite numbers of at least 0")
        normal = np.divide(normal, own, out=np.zeros_like(normal), where=own > 0)
    return _unit(normal)


def decoded_vectors(
    reference: ArrayLike, weights: ArrayLike, alpha: float, norm: float, spread: ArrayLike | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What to draw for the hard and for the easy side of a direction: two vectors (width,) of length `norm`.

    reference: (width,), the reference caption's embedding. weights and spread as `direction_in_raw_space` takes them;
    positive decisions are easy, so the hard one lies towards −w. alpha: how far, 0 to 0.3 of the angle. norm: the usual
    length of the encoder's vectors. ValueError for another alpha or norm, and as `slerp`.
    """
    if not 0 <= alpha <= MOST_ALPHA:
        raise ValueError(f"alpha is {alpha}, expected 0 to {MOST_ALPHA}")
    if not (np.isfinite(norm) and norm > 0):
        raise ValueError(f"norm is {norm}, expected a length above 0")
    easy = direction_in_raw_space(weights, spread)
    hard_vector, easy_vector = (norm * slerp(reference, side, alpha) for side in (-easy, easy))
    return hard_vector.astype(np.float32), easy_vector.astype(np.float32)


def _unit(vector: ArrayLike) -> NDArray[np.float64]:
    own = np.asarray(vector, np.float64)
    length = np.linalg.norm(own)
    if own.ndim != 1 or not np.isfinite(length) or length == 0:
        raise ValueError(f"a vector {own.shape} of length {length}, expected one row of finite numbers, not all 0")
    return own / length
