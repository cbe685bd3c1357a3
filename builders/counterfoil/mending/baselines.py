"""Choose images of a pool by what a method calls hard: Failure Directions and its baselines (Jain
2023, B.1.5).

direction    a support vector machine on CLIP's features (`mining.methods.svm`) says that it fails
confidence   the model gives the true class the smallest share
early        so does a network that stopped after a third of its epochs (Just Train Twice, Liu 2021)
lff          it is harder for a biased network than for the model (Learning from Failure, Nam 2020)
domino       it lies in the slice of its class that is most wrong (Domino, Eyuboglu 2022)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.mending.domino import AS_JAIN_SET, fit_domino
from counterfoil.mining.methods.svm import Direction, fit_direction

DIRECTION = "direction"
CONFIDENCE = "confidence"
EARLY = "early"
LFF = "lff"
DOMINO = "domino"
BASELINES = (DIRECTION, CONFIDENCE, EARLY, LFF, DOMINO)
# They look at CLIP's features.
USE_CLIP = (DIRECTION, DOMINO)
# They train a network of their own.
TRAINED = (EARLY, LFF)
# The least share whose logarithm is taken: of float32, in which classifiers answer.
_LEAST = float(np.finfo(np.float32).tiny)


def unsureness(true_confidence: AnyFloats) -> Floats:
    """Return (n,) minus the log of the share that a classifier gives the true class, (n,): its
    cross-entropy."""
    return -np.log(np.maximum(np.asarray(true_confidence, np.float64), _LEAST))


def relative_difficulty(biased_confidence: AnyFloats, true_confidence: AnyFloats) -> Floats:
    """Return (n,) cross-entropy under a biased classifier over the sum of both classifiers' (Nam
    2020, equation 3).

    Near one for rows that only the biased classifier finds hard; a half where both are sure.
    """
    biased = unsureness(biased_confidence)
    together = biased + unsureness(true_confidence)
    return np.where(together > 0, biased / np.where(together > 0, together, 1.0), 0.5)


def by_direction(
    points: Floats,
    labels: Ints,
    right: Bools,
    units: Ints,
    scored: Floats,
    scored_labels: Ints,
) -> Floats:
    """Return minus the decision value (m,) of each scored row's class; 0 for a class with too few
    failures.

    points (n, d), scored (m, d): whitened. right, units: (n,).
    """
    hardness = np.zeros(len(scored))
    for label in np.unique(scored_labels):
        rows = labels == label
        others = scored_labels == label
        fitted = fit_direction(points[rows], right[rows], units[rows], seed=0, permutations=0)
        if isinstance(fitted, Direction):
            hardness[others] = -fitted.decision(scored[others])
    return hardness


def most_wrong_slice(
    features: AnyFloats,
    labels: Ints,
    shares: AnyFloats,
    scored: AnyFloats,
    scored_labels: Ints,
    scored_shares: AnyFloats,
) -> Floats:
    """Return the log-odds (m,) that each scored row is in the slice of its class where the model is
    most wrong.

    A slicer is fitted to the rows (n, d) of each class alone, for its task "this class or another",
    as Jain set it. shares: of the true class. A class with fewer than two rows has 0.
    """
    odds = np.zeros(len(scored))
    for label in np.unique(scored_labels):
        rows = labels == label
        others = scored_labels == label
        if rows.sum() > 1:
            fitted_to = _this_or_another(features[rows], shares[rows])
            slices = fit_domino(*fitted_to, AS_JAIN_SET, seed=0)
            of_class = _this_or_another(scored[others], scored_shares[others])
            odds[others] = slices.scores(*of_class)[:, 0]
    return odds


def _this_or_another(features: NDArray, shares: NDArray) -> tuple[NDArray, Ints, NDArray]:
    labels = np.ones(len(features), np.int64)
    return features, labels, np.stack([1 - shares, shares], axis=1)
