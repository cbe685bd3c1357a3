"""How a caption stands to a class's direction: pure functions on arrays. Low is hard, high is easy.

A direction separates images that the target gets right (above 0) from those that it gets wrong, in a space where
embeddings are whitened and normalised. What a caption c says more than the reference r is c - r, and there are two ways
to ask the direction about it. They correlate by about 0.8 only, so a finding records which was used:

* `difference`, the paper's (Jain 2023, 2.2): (c - r) / |c - r| along the direction. The paper writes the direction in
  the embeddings' own space; one that was found among whitened points maps back as weights / spread, here scaled to the
  length that the weights have, since whitened points, too, meet them as unit vectors.
* `shifted`, the public implementation's: (c - r) is whitened and normalised as if it were an image, and gets its
  decision value. There c and r are the encoder's raw output; here they are unit vectors, as the images are.

The hard caption is the one with the lowest score. (The paper's appendix A prints argmax; its text and its code do not.)
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

CaptionScore = Literal["difference", "shifted"]

# Against the largest deviation: a dimension that is constant but for rounding tells nothing, and divides by nothing.
_LEAST_SPREAD = 1e-9


class Hyperplane(Protocol):
    """What of a direction is asked here: weights (width,) and intercept, for whitened and normalised points."""

    @property
    def weights(self) -> NDArray[np.float64]: ...

    @property
    def intercept(self) -> float: ...


def caption_scores(
    direction: Hyperplane,
    reference: NDArray[np.floating],
    candidates: NDArray[np.floating],
    centre: NDArray[np.floating],
    spread: NDArray[np.floating],
    how: CaptionScore = "difference",
) -> NDArray[np.float64]:
    """(m,) score of each candidate caption.

    reference: (width,) and candidates: (m, width), unit vectors of CLIP's text encoder. centre, spread: (width,), by
    which images are whitened. By `difference` a candidate equal to the reference scores the intercept. ValueError for
    other shapes, for numbers that are not finite and for another `how`.
    """
    weights, r, c, mu, spread = (
        np.asarray(array, dtype=np.float64) for array in (direction.weights, reference, candidates, centre, spread)
    )
    if c.ndim != 2 or not (weights.shape == r.shape == mu.shape == spread.shape == c.shape[1:]):
        shapes = ", ".join(str(array.shape) for array in (weights, r, c, mu, spread))
        raise ValueError(f"shapes of weights, reference, candidates, centre and spread do not fit: {shapes}")
    if not all(np.isfinite(array).all() for array in (weights, r, c, mu, spread)):
        raise ValueError("found numbers that are not finite among weights, captions, centre and spread")
    differences = c - r
    tells = spread > _LEAST_SPREAD * spread.max(initial=0.0)
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=tells)
    match how:
        case "difference":
            mapped = weights * inverse
            mapped *= np.linalg.norm(weights) / (np.linalg.norm(mapped) or 1.0)
            return _units(differences) @ mapped + direction.intercept
        case "shifted":
            whitened = (differences - mu) * inverse
            return _units(whitened) @ weights + direction.intercept
    raise ValueError(f"found how={how!r}, expected 'difference' or 'shifted'")


def extreme_captions(scores: NDArray[np.floating], number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the `number` hardest captions, hardest first, and of the easiest, easiest first.

    There are fewer where there are fewer captions. Of equal scores the earlier row comes first: equal inputs name
    equal captions.
    """
    scores = np.asarray(scores, dtype=np.float64)
    hard, easy = np.argsort(scores, kind="stable"), np.argsort(-scores, kind="stable")
    return hard[:number].astype(np.int64), easy[:number].astype(np.int64)


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
