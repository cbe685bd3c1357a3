"""Choose images of a pool by what others would call hard: the baselines of Failure Directions (Jain 2023, B.1.5).

confidence   the model gives the true class the smallest share
early        so does a network that stopped after a third of its epochs (Just Train Twice, Liu 2021)
lff          a biased network finds the image harder than the model does (Learning from Failure, Nam 2020)
domino       the image lies in the slice of its class in which the model is most wrong (Domino, Eyuboglu 2022)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.domino import AS_JAIN_SET, fit_domino

CONFIDENCE, EARLY, LFF, DOMINO = "confidence", "early", "lff", "domino"
BASELINES = (CONFIDENCE, EARLY, LFF, DOMINO)
# They train a network of their own.
TRAINED = (EARLY, LFF)
# The least share whose logarithm is taken: of float32, in which classifiers answer.
_LEAST = float(np.finfo(np.float32).tiny)


def true_shares(logits: NDArray[np.floating], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the share of the softmax that the outputs `right` get, (n,). Both arguments: (n, outputs)."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    return (odds * right).sum(axis=1) / odds.sum(axis=1)


def unsureness(true_confidence: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (n,) minus the log of the share that a classifier gives the true class, (n,): its cross-entropy."""
    return -np.log(np.maximum(np.asarray(true_confidence, np.float64), _LEAST))


def relative_difficulty(
    biased_confidence: NDArray[np.floating], true_confidence: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Return (n,) cross-entropy under a biased classifier over the sum of both classifiers' (Nam 2020, equation 3).

    Near one for rows that only the biased classifier finds hard; a half where both are sure.
    """
    biased, plain = unsureness(biased_confidence), unsureness(true_confidence)
    together = biased + plain
    return np.where(together > 0, biased / np.where(together > 0, together, 1.0), 0.5)


def most_wrong_slice(
    fitted: tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.float64]],
    scored: tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Return the log-odds (m,) that each scored row is in the slice of its class where the model is most wrong.

    Both arguments: features, labels, and shares of the true class. A slicer is fitted to each class alone, for its task
    "this class or another", as Jain set it. A class without a fitted row has 0.
    """
    odds = np.zeros(len(scored[1]))
    for label in np.unique(scored[1]):
        rows, others = ((labels == label).nonzero()[0] for labels in (fitted[1], scored[1]))
        if len(rows) > 1:
            of_class = [
                (features[some], np.ones(len(some), np.int64), np.stack([1 - shares[some], shares[some]], axis=1))
                for (features, _, shares), some in ((fitted, rows), (scored, others))
            ]
            odds[others] = fit_domino(*of_class[0], AS_JAIN_SET, seed=0).scores(*of_class[1])[:, 0]
    return odds
