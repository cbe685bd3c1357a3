"""What a shift costs a multi-label classifier: mean average precision, accuracy and their drops, also by label.

Intervals come from resamples of the images. In each resample, an image has the same weight under the base and every
shift. Values are fractions, as in every document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from counterfoil.detection_stats import Drawn, simultaneous_intervals
from counterfoil.evaluation.multilabel.subject import MultilabelSubject
from counterfoil.evaluation.resampled_task import ResampledModel, difference_rows
from counterfoil.evaluation.shift_report import DIFFERENCE, DROP
from counterfoil.multilabel_stats import (
    ACCURACY,
    PRECISION,
    REPLICATES,
    LabelScores,
    LabelThresholds,
    choose_thresholds,
    score_labels,
)
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import ConditionScores
from counterfoil.progress import report
from counterfoil.report.results import DROP_BASE, MeasureFacts, ResultRow, row
from counterfoil.report.words import over_classes
from counterfoil.stats import Estimate, chance_line, wilson_estimate

# The names in rows of each measure's mean over labels.
MEAN_PRECISION = "mAP"
MEANS = {MEAN_PRECISION: PRECISION, ACCURACY: ACCURACY}
MISSED, WRONGLY_GIVEN, THRESHOLD = "missed", "wrongly_given", "threshold"


@dataclass(frozen=True)
class MeasuredClassifier(ResampledModel):
    """The numbers of a classifier. A label's number is that of its condition.

    scores: one item for each group. answers: (groups, n, k), which labels the model gives each image. answered: the
    model's scores on all images. known: the only labels that drops may be over; None for all.
    """

    subject: MultilabelSubject
    answered: ConditionScores
    class_map: ClassMap
    thresholds: LabelThresholds
    answers: NDArray[np.bool_]
    scores: tuple[LabelScores, ...]
    known: tuple[int, ...] | None = None

    @cached_property
    def sound(self) -> tuple[int, ...]:
        """Return the labels for which the whole interval of average precision on the base is above chance."""
        sound = []
        for label, share in enumerate(self.subject.present.mean(axis=0).tolist()):
            estimate = self.scores[0].mean(PRECISION, [label]).interval()
            above = (estimate.value if estimate.low is None else estimate.low) >= chance_line(share)
            if above and (self.known is None or label in self.known):
                sound.append(label)
        return tuple(sound)

    def beside(self, other: Self) -> Self:
        return replace(self, known=other.sound)

    def share(self, group: int, measure: str, label: int | None = None, of_drop: bool = False) -> Drawn:
        """Return a mean of `MEANS` over labels, for drops over sound labels, or the measure of one label."""
        chosen = self.sound if of_drop else range(len(self.subject.labels))
        if label is not None:
            chosen = [number for number, cls in enumerate(self.subject.labels) if cls.label == label]
        return self.scores[group].mean(MEANS[measure], chosen)

    def drop_note(self, group: int, measure: str) -> str:
        return over_classes(len(self.sound), len(self.subject.labels), "labels")

    def guesses(self, label: int | None) -> str:
        """Return why drops mean nothing, for all labels or for one condition; empty if they mean something."""
        if label is None:
            return "" if self.sound else "is near chance on the base for every label"
        if label not in [cls.label for cls in self.subject.labels]:
            return "is not measured for this label: too few images have or lack it"
        sound = [self.subject.labels[number].label for number in self.sound]
        return "" if label in sound else "is near chance on the base for this label"

    def wrong_share(self, group: int, label: int, having: bool) -> Estimate:
        """Return the share of wrong answers: missed if the images have the label, wrongly given if they lack it."""
        images = self.subject.present[:, label] == having
        return wilson_estimate(int((self.answers[group, images, label] != having).sum()), int(images.sum()))


def measure_classifier(
    subject: MultilabelSubject, name: str, answered: ConditionScores, class_map: ClassMap, seed: int
) -> MeasuredClassifier:
    """Choose thresholds on the base, and resample the images of all groups together."""
    labels = [label.label for label in subject.labels]
    values = answered.values[:, labels][subject.rows]
    thresholds = choose_thresholds(values[0], subject.present, seed)
    scores = score_labels(
        list(values),
        subject.present,
        thresholds,
        seed,
        done=lambda replicates: report(f"measuring {name}", replicates, REPLICATES),
    )
    answers = np.stack([thresholds.answers(group) for group in values])
    return MeasuredClassifier(name, subject, answered, class_map, thresholds, answers, scores)


def multilabel_rows(subject: MultilabelSubject, models: Sequence[MeasuredClassifier]) -> Iterator[ResultRow]:
    """Yield every number. Intervals of mean drops hold for all shifts at once; those of labels also for all labels."""
    for model in models:
        for measure in MEANS:
            yield from model.rows(measure, subject.dataset.groups, subject.images)
            yield from _label_rows(subject, model, measure)
        for group, facts in enumerate(subject.dataset.groups):
            for label, cls in enumerate(subject.labels):
                key = {"model": model.name, "group": facts.name, "class_id": cls.id}
                having = int(subject.present[:, label].sum())
                yield row(MISSED, model.wrong_share(group, label, True), n=having, **key)
                yield row(WRONGLY_GIVEN, model.wrong_share(group, label, False), n=subject.images - having, **key)
        for label, cls in enumerate(subject.labels):
            for half, value in enumerate(model.thresholds.values[:, label].tolist(), start=1):
                key = {"model": model.name, "group": subject.dataset.groups[0].name, "class_id": cls.id}
                yield row(THRESHOLD, value, at=f"half {half}", **key)
    yield from difference_rows(models, subject.dataset.groups, MEAN_PRECISION)


def _label_rows(subject: MultilabelSubject, model: MeasuredClassifier, measure: str) -> Iterator[ResultRow]:
    groups, images = subject.dataset.groups, subject.images
    for group, facts in enumerate(groups):
        for cls in subject.labels:
            estimate = model.share(group, measure, cls.label).interval()
            yield row(MEANS[measure], estimate, model=model.name, group=facts.name, class_id=cls.id, n=images)
    sound = [subject.labels[label] for label in model.sound]
    cells = [(group, cls) for group in range(1, len(groups)) for cls in sound]
    drops = [model.drop(group, measure, cls.label) for group, cls in cells]
    for (group, cls), estimate in zip(cells, simultaneous_intervals(drops), strict=True):
        key = {"model": model.name, "group": groups[group].name, "class_id": cls.id}
        yield row(DROP, estimate, at=MEANS[measure], n=images, **key)


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts(MEAN_PRECISION, MEAN_PRECISION, "percent", "mean of the labels' average precision"),
    MeasureFacts(
        ACCURACY,
        "accuracy",
        "percent",
        "mean over labels of the balanced accuracy: the mean of the shares of right answers among images with the label"
        " and among those without it",
    ),
    MeasureFacts(
        DROP, "drop", "points", "base less shift; of means, over the labels that are not near chance on the base"
    ),
    MeasureFacts(DROP_BASE, "base of the drop", "percent", "the measure on the base, over the labels of the drop"),
    MeasureFacts(DIFFERENCE, "drop less another classifier's", "points", "drop of mAP less that of `against`"),
    MeasureFacts(PRECISION, "AP of a label", "percent", "average precision, as scikit-learn has it"),
    MeasureFacts(MISSED, "missed", "percent", "share of the images with the label that are not given it"),
    MeasureFacts(WRONGLY_GIVEN, "wrongly given", "percent", "share of the images without the label that are given it"),
    MeasureFacts(THRESHOLD, "threshold", "plain", "the least score that gives the label, on either half of the images"),
)
