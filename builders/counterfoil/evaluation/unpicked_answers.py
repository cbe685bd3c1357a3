"""What the models answer to candidates that passed the screen and that a classifier's rule did not pick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.models.classifiers import Classifier
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.passes import Scored, Spread, score_models
from counterfoil.sources import LabelledImages


@dataclass(frozen=True)
class UnpickedAnswers:
    """For m images, keys in their order: readable (m,), correct (m, models), and answered (models,): who was asked."""

    keys: tuple[str, ...]
    readable: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    answered: NDArray[np.bool_]


def answers_to_unpicked(
    images: LabelledImages | None,
    scored: Sequence[Scored],
    maps: Mapping[str, ClassMap],
    folder: Path,
    device: str,
    batch_size: int,
    load: Callable[[str], Classifier],
    spread: Spread | None = None,
) -> UnpickedAnswers:
    """The answers of the models that can look at images; where there are no images, nobody is asked.

    A file of predictions is not: it answers the images of `data`, and where it numbers them, others would be taken for
    these. Raises as `score_models`.
    """
    names = [one.classifier.name for one in scored]
    asked = [] if images is None else [one.classifier.name for one in scored if one.classifier.recorded(()) is None]
    if images is None or not asked:
        nothing = np.zeros((0, len(names)), dtype=bool)
        return UnpickedAnswers((), np.zeros(0, dtype=bool), nothing, np.zeros(len(names), dtype=bool))
    found = score_models(images, asked, maps, folder, device, batch_size, load, spread=spread)
    silent = np.zeros(len(images), dtype=bool)
    return UnpickedAnswers(
        keys=images.keys,
        readable=np.asarray(np.stack([one.predictions.readable for one in found.values()]).all(axis=0)),
        correct=np.stack([found[name].predictions.correct if name in found else silent for name in names], axis=1),
        answered=np.array([name in found for name in names]),
    )
