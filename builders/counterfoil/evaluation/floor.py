"""Near chance: which models and classes do so badly on the base that no drop of theirs says anything.

Who is right by chance can lose nothing: such a model looks robust, such a class looks safe, and both pull every average
towards 0. All functions are on arrays; accuracies are fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from counterfoil.stats import chance_line, wilson_intervals


@dataclass(frozen=True)
class Floor:
    """models: (m,) and classes: (k,) bool, which are near chance on the base. cells: (k, m), by a class and model's own
    interval. averaged: (k,) base accuracy of each class over the models that tell of it. chances: (k,) the highest of
    theirs."""

    models: NDArray[np.bool_]
    classes: NDArray[np.bool_]
    cells: NDArray[np.bool_]
    averaged: NDArray[np.float64]
    chances: NDArray[np.float64]


@dataclass(frozen=True)
class BaseFloor:
    """The floor of a dataset, by class id. models: (m,) bool. classes: those near chance, with their averaged base
    accuracy. cells: (m,) bool for every class with enough images. chances: how often a guess is right about each class
    near chance."""

    models: NDArray[np.bool_]
    classes: Mapping[str, float] = field(default_factory=dict)
    cells: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    chances: Mapping[str, float] = field(default_factory=dict)


def near_chance(
    accuracy: NDArray[np.float64], images: NDArray[np.int64] | int, chance: NDArray[np.float64] | float
) -> NDArray[np.bool_]:
    """Where the Wilson interval of an accuracy on so many images begins under `MARGIN` of the way up from chance."""
    low, _ = wilson_intervals(accuracy, images)
    return np.asarray(low < chance_line(np.asarray(chance, np.float64)))


def find_floor(accuracy: NDArray[np.float64], images: NDArray[np.int64], chances: NDArray[np.float64]) -> Floor:
    """The floor of m models on k >= 1 classes: base accuracy (k, m) on `images` (k,), all above 0, and chances (k, m).

    A model is judged by its accuracy and chance averaged over classes, and all images. A class is judged by its
    accuracy averaged over the models that are not near chance (over all where all are), its own images, and the highest
    of their chances.
    """
    models = near_chance(accuracy.mean(axis=0), int(images.sum()), chances.mean(axis=0))
    telling = ~models if not models.all() else np.ones_like(models)
    averaged = accuracy[:, telling].mean(axis=1)
    highest = chances[:, telling].max(axis=1)
    classes = near_chance(averaged, images, highest)
    cells = near_chance(accuracy, images[:, None], chances)
    return Floor(models, classes, cells, averaged, highest)
