"""What a shift costs a detector: average precision and F1 of every group, drops with intervals, by size and category.

Images are resampled, base and shift together, with the same weights. Values are fractions, as in every document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterfoil.detection_stats import (
    MEASURES,
    Detections,
    DetectorScores,
    Drawn,
    Matches,
    best_f1_score,
    bootstrap_scores,
    combined,
    image_f1,
    match,
    ratio,
    simultaneous_intervals,
)
from counterfoil.evaluation.detection.detections import ModelDetections
from counterfoil.evaluation.detection.subject import DetectionSubject
from counterfoil.progress import report
from counterfoil.report.results import ClassFacts, MeasureFacts, ResultRow, row

REPLICATES = 1000
F1 = "F1"
NAMES = (*MEASURES, F1)
MPC, RPC, DROP, BY_CATEGORY = "mPC", "rPC", "drop", "category_AP"


@dataclass(frozen=True)
class MeasuredModel:
    """A model's numbers. answers, matches, scores: of each group; f1: (groups, images).

    score: from which detections count for F1, chosen on the base.
    """

    detections: ModelDetections
    answers: tuple[Detections, ...]
    matches: tuple[Matches, ...]
    score: float
    scores: tuple[DetectorScores, ...]
    f1: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.detections.name

    @property
    def near_chance(self) -> bool:
        """Whether it finds next to nothing on the base, so that it has nothing to lose."""
        return self.scores[0].near_chance

    def number(self, group: int, measure: str) -> Drawn:
        """Return a measure of one group."""
        return self.scores[group].measures[measure]

    def drop(self, group: int, measure: str) -> Drawn:
        """Return the drop of a measure under a shift: base less shift."""
        return combined([(1.0, self.number(0, measure)), (-1.0, self.number(group, measure))])

    def category_drop(self, group: int, category: int) -> Drawn:
        """Return the drop of a category's AP under a shift."""
        base, shift = (self.scores[side].categories[category] for side in (0, group))
        return combined([(1.0, base), (-1.0, shift)])


def measure_model(subject: DetectionSubject, detections: ModelDetections, seed: int) -> MeasuredModel:
    """Match a model's detections in every group, and resample the images, those of all groups together."""
    groups, categories = len(subject.dataset.groups), len(subject.categories)
    answers = tuple(detections.of_group(subject, index) for index in range(groups))
    matches = tuple(match(subject.truth, answer, subject.images, categories) for answer in answers)
    score = best_f1_score(matches[0])
    scores = []
    for group, group_matches in enumerate(matches):
        report(f"measuring {detections.name}", group, groups)
        scores.append(bootstrap_scores(group_matches, score, seed, REPLICATES))
    f1 = np.stack([image_f1(group_matches, score) for group_matches in matches])
    return MeasuredModel(detections, answers, matches, score, tuple(scores), f1)


def detector_rows(subject: DetectionSubject, models: Sequence[MeasuredModel]) -> Iterator[ResultRow]:
    """Yield every number of an evaluation of detectors; intervals of drops hold for all shifts at once."""
    groups = [group.name for group in subject.dataset.groups]
    for model in models:
        of_model = {"model": model.name, "n": subject.images}
        for name in NAMES:
            for index, group in enumerate(groups):
                number = model.number(index, name)
                if math.isfinite(number.value):
                    yield row(name, number.interval(), group=group, **of_model)
            shifts = [index for index in range(1, len(groups)) if math.isfinite(model.drop(index, name).value)]
            drops = [model.drop(shift, name) for shift in shifts]
            for index, estimate in zip(shifts, simultaneous_intervals(drops) if drops else (), strict=True):
                yield row(DROP, estimate, group=groups[index], at=name, **of_model)
        yield from mean_corruption_rows(subject, model)
        for category, name in enumerate(subject.categories):
            for index, group in enumerate(groups):
                number = model.scores[index].categories[category]
                if not math.isfinite(number.value):
                    continue
                key = {"model": model.name, "group": group, "class_id": name, "n": number.images}
                yield row(BY_CATEGORY, number.interval(), **key)
                if index:
                    yield row(DROP, model.category_drop(index, category).interval(), at=BY_CATEGORY, **key)


def mean_corruption_rows(subject: DetectionSubject, model: MeasuredModel) -> Iterator[ResultRow]:
    """Yield mPC, the mean over shifts (of their levels' mean), and rPC, its share of the base (Michaelis 2019)."""
    by_shift: dict[str, list[int]] = {}
    for index, group in enumerate(subject.dataset.groups[1:], start=1):
        by_shift.setdefault(group.of or group.name, []).append(index)
    weights = [(1 / len(by_shift) / len(places), index) for places in by_shift.values() for index in places]
    for name in ("AP", "AP50", "AP75") if weights else ():
        mean = combined([(weight, model.number(index, name)) for weight, index in weights])
        if not math.isfinite(mean.value):
            continue
        key = {"model": model.name, "at": name, "n": subject.images}
        yield row(MPC, mean.interval(), **key)
        share = ratio(mean, model.number(0, name))
        if math.isfinite(share.value):
            yield row(RPC, share.interval(), **key)


def category_facts(categories: Sequence[str]) -> tuple[ClassFacts, ...]:
    """Return categories as the classes of results; a category's name is its id."""
    return tuple(ClassFacts(name, name) for name in categories)


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts("AP", "AP", "percent", "mean over IoU thresholds from .50 to .95, and over categories, as COCO's"),
    MeasureFacts("AP50", "AP50", "percent", "average precision at IoU .50"),
    MeasureFacts("AP75", "AP75", "percent", "average precision at IoU .75"),
    MeasureFacts("AP_small", "AP, small", "percent", "objects of less than 32² pixels"),
    MeasureFacts("AP_medium", "AP, medium", "percent", "objects of 32² to 96² pixels"),
    MeasureFacts("AP_large", "AP, large", "percent", "objects of more than 96² pixels"),
    MeasureFacts("recall", "recall", "percent", "share of objects found by at most 100 detections an image, over IoU"),
    MeasureFacts(F1, "F1", "percent", "mean over images at IoU .50, at the score that is best on the base"),
    MeasureFacts(DROP, "drop", "points", "base less shift, of the measure that `at` names"),
    MeasureFacts(MPC, "mPC", "percent", "mean over shifts"),
    MeasureFacts(RPC, "rPC", "share", "mPC as a share of the base"),
    MeasureFacts(BY_CATEGORY, "AP by category", "percent", "AP of one category"),
)


@dataclass(frozen=True)
class DetectionAnswers:
    """What an evaluation of detectors knows: the dataset, and the numbers of every model."""

    subject: DetectionSubject
    models: tuple[MeasuredModel, ...]

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        return tuple(detector_rows(self.subject, self.models))
