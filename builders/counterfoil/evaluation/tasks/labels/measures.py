"""What a shift costs a multi-label classifier: mean average precision, accuracy and their drops,
also by label.

Intervals come from resamples of the images. In each resample, an image has the same weight under
the base and every shift. A label is measured on the images for which it is known to be present or
absent. Means are over all measured labels. Drops and `drop_base` are over the labels that the model
does not rank near chance. Values are fractions, as in every document.
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
    LabelThresholds,
    choose_thresholds,
    score_labels,
)
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import ConditionScores
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    DROP_BASE,
    ClassFacts,
    MeasureFacts,
    ModelFacts,
    ResultRow,
    Results,
    estimate_row,
)
from counterfoil.report.words import over_classes
from counterfoil.resampled_stats import (
    CategoryScores,
    Drawn,
    share_estimate,
    simultaneous_intervals,
)
from counterfoil.stats import Estimate, chance_line

# Means over labels, as rows name them, and the measures that they average.
MEAN_PRECISION = "mAP"
MEANS = {MEAN_PRECISION: PRECISION, AUROC: AUROC, ACCURACY: ACCURACY}
MISSED = "missed"
WRONGLY_GIVEN = "wrongly_given"
THRESHOLD = "threshold"


@dataclass(frozen=True)
class MeasuredClassifier(ResampledModel):
    """The numbers of a classifier. Arguments `label` of `share`, `drop` and `drop_problem` are the
    numbers of conditions."""

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
    scores: tuple[CategoryScores, ...]
    """The measures in each group."""
    allowed: tuple[int, ...] | None = None
    """The labels that drops may be averaged over; None for all labels."""

    @cached_property
    def above_chance(self) -> tuple[int, ...]:
        """Return the labels for which the whole interval of average precision on the base is above
        chance.

        A preview has few images and long intervals. Its labels are chosen by their values, so that
        its drops are over the same labels as those of the whole dataset.
        """
        above_chance = []
        truth = self.subject.truth
        shares = truth.having.sum(axis=0) / truth.known.sum(axis=0)
        for label, share in enumerate(shares.tolist()):
            if self.allowed is not None and label not in self.allowed:
                continue
            number = self.scores[0].mean(PRECISION, [label])
            if self.subject.dataset.preview is not None:
                lowest = number.value - number.bias  # intervals subtract the bias too
            else:
                estimate = number.interval()
                lowest = estimate.value if estimate.low is None else estimate.low
            if lowest >= chance_line(share):
                above_chance.append(label)
        return tuple(above_chance)

    def drop_note(self, group: int, measure: str) -> str:
        return over_classes(len(self.above_chance), len(self.subject.labels), "labels")

    def compared_with(self, other: Self) -> Self:
        return replace(self, allowed=other.above_chance)

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        """Return a mean of `MEANS` over all labels, or over the labels above chance for a drop.

        label: a condition to measure alone.
        """
        chosen: Sequence[int] = range(len(self.subject.labels))
        if label is not None:
            chosen = [index for index, cls in enumerate(self.subject.labels) if cls.label == label]
        elif of_drop:
            chosen = self.above_chance
        return self.scores[group].mean(MEANS[measure], chosen)

    def drop_problem(self, label: int | None) -> str:
        """Return why drops mean nothing, for all labels or for one condition; empty if they mean
        something."""
        if label is None:
            return "" if self.above_chance else "is near chance on the base for every label"
        conditions = [cls.label for cls in self.subject.labels]
        if label not in conditions:
            return "is not measured for this label: too few images have or lack it"
        if conditions.index(label) in self.above_chance:
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
        given = self.answers[group, images, label]
        wrong = ~given if having else given
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
    conditions = [cls.label for cls in subject.labels]
    of_labels = answered.values[:, conditions]
    values = of_labels[subject.rows]  # (groups, n, k)
    thresholds = choose_thresholds(values[0], subject.truth, seed)
    scores = score_labels(
        list(values),
        subject.truth,
        thresholds,
        seed,
        units=subject.units,
        stage=f"measuring {name}",
    )
    answers = np.stack([thresholds.answers(group) for group in values])
    return MeasuredClassifier(name, subject, answered, class_map, thresholds, answers, scores)


def multilabel_rows(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier]
) -> Iterator[ResultRow]:
    """Yield every number. Intervals of mean drops hold for all shifts at once. Intervals of labels'
    drops hold for all shifts and labels at once."""
    groups = subject.dataset.groups
    having = subject.truth.having.sum(axis=0).tolist()
    lacking = subject.truth.lacking.sum(axis=0).tolist()
    known = subject.truth.known.sum(axis=0).tolist()
    for model in models:
        keys = {}
        for group, facts in enumerate(groups):
            for label, cls in enumerate(subject.labels):
                key = {"model": model.name, "group": facts.name, "class_id": cls.id}
                keys[group, label] = key
        # A shift costs only labels that the model does not rank near chance.
        lost = [cell for cell in keys if cell[0] and cell[1] in model.above_chance]
        for measure, of_label in MEANS.items():
            yield from model.rows(measure, groups, subject.images, subject.units)
            for (group, label), key in keys.items():
                number = model.share(group, measure, subject.labels[label].label)
                yield estimate_row(of_label, number.interval(), n=known[label], **key)
            drops = [
                model.drop(group, measure, subject.labels[label].label) for group, label in lost
            ]
            for cell, drop in zip(lost, simultaneous_intervals(drops), strict=True):
                yield estimate_row(DROP, drop, at=of_label, n=known[cell[1]], **keys[cell])
        for (group, label), key in keys.items():
            for name, images in ((MISSED, having), (WRONGLY_GIVEN, lacking)):
                share = model.wrong_share(group, label, images is having)
                yield estimate_row(name, share, n=images[label], **key)
        for label, cls in enumerate(subject.labels):
            key = {"model": model.name, "group": groups[0].name, "class_id": cls.id}
            # One half's threshold is chosen on the other half.
            for half, threshold in enumerate(model.thresholds.values[:, label].tolist(), 1):
                yield estimate_row(THRESHOLD, threshold, at=f"half {half}", **key)
    yield from difference_rows(models, groups, MEAN_PRECISION)


def drop_labels(results: Results, model: ModelFacts) -> tuple[ClassFacts, ...]:
    """Return the labels that a model's mean drops are over."""
    of_drops = {drop.class_id for drop in results.rows.where(DROP, model=model.name, at=PRECISION)}
    return tuple(label for label in results.classes if label.id in of_drops)


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts(
        MEAN_PRECISION, MEAN_PRECISION, "percent", "mean of the labels' average precision"
    ),
    MeasureFacts(
        AUROC,
        AUROC,
        "percent",
        "area under the ROC curve: how often an image with the label scores higher than one without"
        " it, over all such pairs; rows without a label are means over labels",
    ),
    MeasureFacts(
        ACCURACY,
        "accuracy",
        "percent",
        "balanced accuracy, averaged over labels: a label's balanced accuracy is the mean of two"
        " shares of right answers, of images with it and of images without it",
    ),
    MeasureFacts(
        DROP,
        "drop",
        "points",
        "base less shift; mean drops are over the labels that are not near chance on the base",
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
