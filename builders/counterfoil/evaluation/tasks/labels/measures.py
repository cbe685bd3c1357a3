"""What a shift costs a multi-label classifier: mean average precision, accuracy and their drops,
also by label.

Intervals come from resamples of the images. In each resample, an image has the same weight under
the base and every shift. A label's numbers are over the images that know it. Means are over all
measured labels; drops, and the base that they start from, over those that the model does not rank
near chance. Values are fractions, as in every document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.evaluation.task import ResampledModel, difference_rows
from counterfoil.evaluation.tasks.labels.subject import MultilabelSubject
from counterfoil.multilabel_stats import (
    ACCURACY,
    AUROC,
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
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    DROP_BASE,
    ClassFacts,
    MeasureFacts,
    ModelFacts,
    ResultRow,
    Results,
    row,
)
from counterfoil.report.words import over_classes
from counterfoil.resampled_stats import Drawn, share_estimate, simultaneous_intervals
from counterfoil.stats import Estimate, chance_line

# The names in rows of each measure's mean over labels.
MEAN_PRECISION = "mAP"
MEANS = {MEAN_PRECISION: PRECISION, AUROC: AUROC, ACCURACY: ACCURACY}
MISSED = "missed"
WRONGLY_GIVEN = "wrongly_given"
THRESHOLD = "threshold"


@dataclass(frozen=True)
class MeasuredClassifier(ResampledModel):
    """The numbers of a classifier. A label's number is that of its condition."""

    subject: MultilabelSubject
    """The images that all classifiers answer."""
    answered: ConditionScores
    """The model's scores on all images."""
    class_map: ClassMap
    """How its outputs match the conditions."""
    thresholds: LabelThresholds
    """The least scores that give labels."""
    answers: Bools
    """(groups, n, k), which labels the model gives each image."""
    scores: tuple[LabelScores, ...]
    """The measures in each group."""
    known: tuple[int, ...] | None = None
    """The only labels that drops may be over; None for all."""

    @cached_property
    def sound(self) -> tuple[int, ...]:
        """Return the labels for which the whole interval of average precision on the base is above
        chance.

        The intervals of a preview are longer than those of the whole dataset. Its labels are judged
        by their values, so that drops are over the same labels.
        """
        sound = []
        truth = self.subject.truth
        shares = truth.having.sum(axis=0) / truth.known.sum(axis=0)
        for label, share in enumerate(shares.tolist()):
            if self.known is not None and label not in self.known:
                continue
            number = self.scores[0].mean(PRECISION, [label])
            if self.subject.dataset.preview is not None:
                least = number.value - number.bias
            else:
                estimate = number.interval()
                least = estimate.value if estimate.low is None else estimate.low
            if least >= chance_line(share):
                sound.append(label)
        return tuple(sound)

    def drop_note(self, group: int, measure: str) -> str:
        return over_classes(len(self.sound), len(self.subject.labels), "labels")

    def beside(self, other: Self) -> Self:
        return replace(self, known=other.sound)

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        """Return a mean of `MEANS` over labels, for drops over sound labels, or the measure of one
        label."""
        conditions = [cls.label for cls in self.subject.labels]
        chosen = self.sound if of_drop else range(len(conditions))
        if label is not None:
            chosen = [conditions.index(label)] if label in conditions else []
        return self.scores[group].mean(MEANS[measure], chosen)

    def guesses(self, label: int | None) -> str:
        """Return why drops mean nothing, for all labels or for one condition; empty if they mean
        something."""
        if label is None:
            return "" if self.sound else "is near chance on the base for every label"
        conditions = [cls.label for cls in self.subject.labels]
        if label not in conditions:
            return "is not measured for this label: too few images have or lack it"
        if conditions.index(label) in self.sound:
            return ""
        return "is near chance on the base for this label"

    def wrong_share(
        self,
        group: int,
        label: int,
        having: bool,
    ) -> Estimate:
        """Return the share of wrong answers: missed if the images have the label, wrongly given if
        they lack it."""
        truth = self.subject.truth
        images = truth.having[:, label] if having else truth.lacking[:, label]
        wrong = self.answers[group, images, label] != having
        units = None
        if self.subject.units is not None:
            units = self.subject.units.of_image[images]
        return share_estimate(wrong, units)


def measure_classifier(
    subject: MultilabelSubject,
    name: str,
    answered: ConditionScores,
    class_map: ClassMap,
    seed: int,
) -> MeasuredClassifier:
    """Choose thresholds on the base, and resample the images of all groups together."""
    labels = [label.label for label in subject.labels]
    values = answered.values[:, labels][subject.rows]
    thresholds = choose_thresholds(values[0], subject.truth, seed)
    scores = score_labels(
        list(values),
        subject.truth,
        thresholds,
        seed,
        units=subject.units,
        done=lambda replicates: report(f"measuring {name}", replicates, REPLICATES),
    )
    answers = np.stack([thresholds.answers(group) for group in values])
    return MeasuredClassifier(name, subject, answered, class_map, thresholds, answers, scores)


def multilabel_rows(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier]
) -> Iterator[ResultRow]:
    """Yield every number. Intervals of mean drops hold for all shifts at once; those of labels also
    for all labels."""
    groups = subject.dataset.groups
    having = subject.truth.having.sum(axis=0).tolist()
    lacking = subject.truth.lacking.sum(axis=0).tolist()
    for model in models:
        for measure in MEANS:
            yield from model.rows(measure, groups, subject.images, subject.units)
            yield from _label_rows(subject, model, measure)
        for group, facts in enumerate(groups):
            for label, cls in enumerate(subject.labels):
                key = {
                    "model": model.name,
                    "group": facts.name,
                    "class_id": cls.id,
                }
                missed = model.wrong_share(group, label, True)
                yield row(MISSED, missed, n=having[label], **key)
                wrongly_given = model.wrong_share(group, label, False)
                yield row(WRONGLY_GIVEN, wrongly_given, n=lacking[label], **key)
        for label, cls in enumerate(subject.labels):
            key = {
                "model": model.name,
                "group": groups[0].name,
                "class_id": cls.id,
            }
            for half, value in enumerate(model.thresholds.values[:, label].tolist(), start=1):
                yield row(THRESHOLD, value, at=f"half {half}", **key)
    yield from difference_rows(models, groups, MEAN_PRECISION)


def _label_rows(
    subject: MultilabelSubject,
    model: MeasuredClassifier,
    measure: str,
) -> Iterator[ResultRow]:
    known = subject.truth.known.sum(axis=0).tolist()
    of_label = MEANS[measure]
    drops = []
    keys = []
    for group, facts in enumerate(subject.dataset.groups):
        for label, cls in enumerate(subject.labels):
            key = {
                "model": model.name,
                "group": facts.name,
                "class_id": cls.id,
                "n": known[label],
            }
            yield row(of_label, model.share(group, measure, cls.label).interval(), **key)
            if group and label in model.sound:
                drops.append(model.drop(group, measure, cls.label))
                keys.append(key)
    for key, estimate in zip(keys, simultaneous_intervals(drops), strict=True):
        yield row(DROP, estimate, at=of_label, **key)


def drop_labels(results: Results, model: ModelFacts) -> tuple[ClassFacts, ...]:
    """Return the labels that a model's mean drops are over."""
    sound = {drop.class_id for drop in results.rows.where(DROP, model=model.name, at=PRECISION)}
    return tuple(label for label in results.classes if label.id in sound)


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts(
        MEAN_PRECISION, MEAN_PRECISION, "percent", "mean of the labels' average precision"
    ),
    MeasureFacts(
        AUROC,
        AUROC,
        "percent",
        "area under the ROC curve: the share of pairs, an image with the label and one without it,"
        " in which the first has the higher score; without a label, the mean over labels",
    ),
    MeasureFacts(
        ACCURACY,
        "accuracy",
        "percent",
        "mean over labels of the balanced accuracy: the mean of the shares of right answers among"
        " images with the label and among those without it",
    ),
    MeasureFacts(
        DROP,
        "drop",
        "points",
        "base less shift; of means, over the labels that are not near chance on the base",
    ),
    MeasureFacts(
        DROP_BASE,
        "base of the drop",
        "percent",
        "the measure on the base, over the labels of the drop",
    ),
    MeasureFacts(
        DIFFERENCE, "drop less another classifier's", "points", "drop of mAP less that of `against`"
    ),
    MeasureFacts(
        PRECISION, "AP of a label", "percent", "average precision, as scikit-learn has it"
    ),
    MeasureFacts(
        MISSED, "missed", "percent", "share of the images with the label that are not given it"
    ),
    MeasureFacts(
        WRONGLY_GIVEN,
        "wrongly given",
        "percent",
        "share of the images without the label that are given it",
    ),
    MeasureFacts(
        THRESHOLD,
        "threshold",
        "plain",
        "the least score that gives the label, on either half of the images",
    ),
)
