"""Points of one class whose errors lie along a planted direction, and what plain scikit-learn makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Planted = tuple[NDArray[np.float64], NDArray[np.bool_]]


def planted(
    rows: int, *, seed: int, gap: float = 2.0, errors: float = 0.25, width: int = 32, decay: float = 0.3
) -> Planted:
    """Unit points (rows, width) and whether each is right; right and wrong ones lie 2 · gap apart along one axis.

    `decay`: how much narrower the further axes are, as those of embeddings.
    """
    rng = np.random.default_rng(seed)
    right = rng.permutation(rows) >= round(rows * errors)
    points = rng.normal(size=(rows, width)) * np.arange(1, width + 1) ** -decay
    points[:, 0] += np.where(right, gap, -gap)
    return points / np.linalg.norm(points, axis=1, keepdims=True), right


def plain(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    grid: Sequence[float],
    seed: int,
    units: NDArray[np.int64] | None = None,
) -> tuple[float, float, Any]:
    """C, cross-validated balanced accuracy and refitted model by scikit-learn alone, with nothing shared."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score
    from sklearn.svm import SVC

    kind = StratifiedKFold if units is None else StratifiedGroupKFold
    folds = kind(2, shuffle=True, random_state=seed)
    models = [SVC(kernel="linear", class_weight="balanced", C=C) for C in grid]
    scores = [
        cross_val_score(model, points, right, groups=units, cv=folds, scoring="balanced_accuracy").mean()
        for model in models
    ]
    best = int(np.argmax(np.round(scores, 9)))
    return grid[best], scores[best], models[best].fit(points, right)
