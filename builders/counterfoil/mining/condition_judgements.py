"""A classifier's answers to conditions: each is judged by itself, by a threshold that the discover half chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mining.binary import binary_problems
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import best_thresholds, binary_answers, condition_scores
from counterfoil.prediction.predictions import Predictions
from counterfoil.recipe import RecipeClass
from counterfoil.sources import LabelledImages
from counterfoil.user_cache import user_cache

_BATCH = 64


@dataclass(frozen=True, slots=True)
class ScoredConditions:
    """What a classifier scores n images for K conditions: values (n, K), NaN where an image has no answer."""

    classifier: Classifier
    class_map: ClassMap
    values: NDArray[np.float64]

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(n,) which images have an answer."""
        return np.asarray(~np.isnan(self.values).any(axis=1))


@dataclass(frozen=True, slots=True)
class JudgedCondition:
    """One condition of all n images.

    classes: its labels, to have it and not to have it. labels, failed: (n,), False where an image has no answer.
    predictions: answers are labels too, the one given first.
    """

    classes: tuple[int, int]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    predictions: Predictions


def refuse_ranking_rule(rule: str) -> None:
    """UserError for a failure rule that conditions have no answers for."""
    if rule != "top1":
        raise UserError(
            f"mine.failure: the rule '{rule}' is of classes, and a condition is answered yes or no",
            "Set mine.failure=top1.",
        )


def conditions_scored(
    parts: Sequence[LabelledImages], name: str, class_map: ClassMap, classes: Sequence[RecipeClass], device: str
) -> ScoredConditions:
    """A classifier's scores of all images, part after part; `class_map` as of `map_conditions`. Raises as
    `condition_scores`."""
    values: list[NDArray[np.float64]] = []
    classifier: Classifier | None = None
    for part in parts:
        scored = condition_scores(
            part,
            name,
            class_map,
            user_cache() / "predictions",
            device,
            _BATCH,
            lambda one: load_classifier(one, classes=classes),
        )
        classifier = scored.classifier
        values.append(scored.values)
    assert classifier is not None  # there is a part
    return ScoredConditions(classifier, class_map, np.concatenate(values))


def chosen_thresholds(
    scored: ScoredConditions, present: NDArray[np.bool_], rows: NDArray[np.int64], names: Sequence[str]
) -> dict[str, float]:
    """Condition → threshold of the best F1 on these rows: the discover half's, so that the other half chose none.

    present: (n, K). UserError for a condition that all of the rows have, or none.
    """
    found = best_thresholds(scored.values[rows], present[rows], names)
    return dict(zip(names, found.tolist(), strict=True))


def judged_conditions(
    scored: ScoredConditions, present: NDArray[np.bool_], thresholds: Mapping[str, float]
) -> tuple[JudgedCondition, ...]:
    """Each condition in order; a wrong yes and a wrong no are both failures. present: (n, K)."""
    readable = scored.readable
    failed = np.zeros(present.shape, dtype=bool)
    limits = np.asarray(list(thresholds.values()))
    failed[readable] = binary_answers(scored.values[readable], present[readable], limits)
    nothing = np.zeros((len(present), 0), dtype=np.float32)  # answers need no features
    form = replace(Predictions.empty(len(present), 2), readable=readable)
    return tuple(
        JudgedCondition(
            one.classes,
            one.labels,
            one.failed,
            replace(form, answers=one.answers, correct=readable & ~one.failed, correct_top_k=readable),
        )
        for one in binary_problems(nothing, present, failed, np.arange(len(present)))
    )


def has_conditions(scored: ScoredConditions, thresholds: Mapping[str, float]) -> NDArray[np.bool_]:
    """(n, K) which conditions are answered yes; False where an image has no answer."""
    return scored.values >= np.asarray(list(thresholds.values()))  # NaN is at least nothing
