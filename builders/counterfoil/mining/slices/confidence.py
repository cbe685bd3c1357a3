"""Rank rows by how unsure classifiers are of them: the plain baseline, and Learning from Failure's score.

Confidence after early stopping (Liu 2021) is the same ranking by a classifier that was stopped early.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# The least share whose logarithm is taken: of float32, in which classifiers answer.
_LEAST = float(np.finfo(np.float32).tiny)


def unsureness(true_confidence: NDArray[np.floating]) -> NDArray[np.float64]:
    """(n,) minus the logarithm of the share that a classifier gives the true class, (n,): its cross-entropy."""
    return -np.log(np.maximum(np.asarray(true_confidence, np.float64), _LEAST))


def relative_difficulty(
    biased_confidence: NDArray[np.floating], true_confidence: NDArray[np.floating]
) -> NDArray[np.float64]:
    """(n,) cross-entropy under a biased classifier over the sum of both classifiers' (Nam 2020, equation 3).

    Near one for rows that only the biased classifier finds hard; a half where both are sure.
    """
    biased, plain = unsureness(biased_confidence), unsureness(true_confidence)
    together = biased + plain
    return np.where(together > 0, biased / np.where(together > 0, together, 1.0), 0.5)
