"""One model's answers to every image of a dataset, as columns that a cache keeps (`answer_cache.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.prediction.answer_cache import Columns

if TYPE_CHECKING:
    from counterfoil.prediction.class_map import ClassMap

# The number of answers that are kept for each image, best first. A model with fewer outputs has fewer answers.
RANKED = 10


@dataclass(frozen=True)
class Predictions:
    """A model's answers to n images, in the order of the images.

    readable: (n,) bool; if False, the other columns of the row mean nothing. answers: (n, k) int32, the k best outputs,
    best first. shares: (n, k) float32, the confidence in these outputs, over the outputs that an answer is chosen from
    (`ClassMap.answering`); NaN if the scale of the scores is unknown. correct, correct_top_k: (n,) bool, by the class
    map. true_confidence: (n,) confidence, summed over the right outputs. correct_otherwise: (n,) bool, whether the
    answer is correct if it is chosen from the other set of outputs (`ClassMap.leads`), if there are two sets. logits:
    (n, outputs) float64, if requested; -inf at outputs that are never an answer. tied: (n,) bool, whether the two best
    scores are equal, if it is known.
    """

    readable: Bools
    answers: NDArray[np.int32]
    shares: Floats32
    correct: Bools
    correct_top_k: Bools
    true_confidence: Floats32
    logits: Floats | None = None
    correct_otherwise: Bools | None = None
    tied: Bools | None = None

    @classmethod
    def empty(cls, n: int, ranked: int = 1, outputs: int | None = None, both_ways: bool = False) -> Predictions:
        """Return empty answers to n images. If `outputs` is given, they include logits."""
        return cls(
            readable=np.zeros(n, dtype=bool),
            answers=np.full((n, ranked), -1, dtype=np.int32),
            shares=np.zeros((n, ranked), dtype=np.float32),
            correct=np.zeros(n, dtype=bool),
            correct_top_k=np.zeros(n, dtype=bool),
            true_confidence=np.zeros(n, dtype=np.float32),
            logits=None if outputs is None else np.zeros((n, outputs)),
            correct_otherwise=np.zeros(n, dtype=bool) if both_ways else None,
        )

    @property
    def prediction(self) -> NDArray[np.int32]:
        return self.answers[:, 0]

    @property
    def confidence(self) -> Floats32:
        return self.shares[:, 0]

    def columns(self) -> Columns:
        return {field.name: values for field in fields(self) if (values := getattr(self, field.name)) is not None}

    def fill(self, rows: Ints | Bools, columns: Mapping[str, NDArray]) -> None:
        """Set these rows of the columns. Columns that these answers do not have are ignored."""
        for name, values in self.columns().items():
            if name in columns:
                values[rows] = columns[name]


def no_answers(n: int, class_map: ClassMap, logits: bool = False) -> Predictions:
    # At most as many answers are kept as the model ranks.
    ranked = max(class_map.top_k, min(RANKED, class_map.most_ranked or class_map.answering))
    return Predictions.empty(n, ranked, class_map.num_classes if logits else None, class_map.class_outputs is not None)
