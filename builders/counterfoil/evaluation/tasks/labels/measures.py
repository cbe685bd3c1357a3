"""What a shift costs a multi-label classifier: mean average precision, accuracy and their drops,
also by label.

Intervals come from resamples of the images. In each resample, an image has the same weight under
the base and every shift. A label is measured on the images for which it is known to be present or
absent. Means are over all measured labels. Drops and `drop_base` are over the labels that the model
does not rank near chance. Values are fractions, as in every document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.evaluation.classed_model import ClassedModel
from counterfoil.evaluation.task import difference_rows
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
from counterfoil.resampled_stats import share_estimate
from counterfoil.stats import Estimate

# Means over labels, as rows name them, and the measures that they average.
MEAN_PRECISION = "mAP"
MEANS = {MEAN_PRECISION: PRECISION, AUROC: AUROC, ACCURACY: ACCURACY}
MISSED = "missed"
WRONGLY_GIVEN = "wrongly_given"
THRESHOLD = "threshold"


@dataclass(frozen=True)
class MeasuredClassifier(ClassedModel):
    """The numbers of a classifier."""

    means = MEANS
    lead = PRECISION
    word = "label", "labels"
    unmeasured = "too few images have or lack it"
    corrects_few = False
    subject: MultilabelSubject
    answered: ConditionScores
    class_map: ClassMap
    """How its outputs match the conditions."""
    thresholds: LabelThresholds
    """The least scores that give labels."""
    answers: Bools
    """(groups, n, k), which labels the model gives each image."""

    @cached_property
    def columns(self) -> dict[int, int]:
        return {cls.label: column for column, cls in enumerate(self.subject.labels)}

    def wrong_share(
        self,
        group: int,
        column: int,
        having: bool,
    ) -> Estimate:
        """Return the share of wrong answers: missed if the images have the label, wrongly given if
        they lack it."""
        truth = self.subject.truth
        labels = truth.having if having else truth.lacking
        images = labels[:, column]
        given = self.answers[group, images, column]
        wrong = ~given if having else given
        units = self.subject.units
        of_images = None if units is None else units.of_image[images]
        return share_estimate(wrong, of_images)


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
    return MeasuredClassifier(
        name,
        subject,
        answered,
        scores,
        class_map,
        thresholds,
        answers,
    )


def multilabel_rows(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier]
) -> Iterator[ResultRow]:
    """Yield every number. Intervals of mean drops hold for all shifts at once. Intervals of labels'
    drops hold for all shifts and labels at once."""
    groups = subject.dataset.groups
    truth = subject.truth
    having = truth.having.sum(axis=0).tolist()
    lacking = truth.lacking.sum(axis=0).tolist()
    known = truth.known.sum(axis=0).tolist()
    names = [cls.id for cls in subject.dataset.classes]
    for model in models:
        keys = model.class_keys(groups, names, known)
        for measure, of_label in MEANS.items():
            yield from model.rows(measure, groups, subject.images, subject.units)
            for (group, label), key in keys.items():
                number = model.share(group, measure, label)
                yield estimate_row(of_label, number.interval(), **key)
            # A shift costs only labels that the model does not rank near chance.
            yield from model.class_drops(measure, keys)
        for (group, label), key in keys.items():
            column = model.columns[label]
            key["n"] = having[column]
            missed = model.wrong_share(group, column, True)
            yield estimate_row(MISSED, missed, **key)
            key["n"] = lacking[column]
            wrongly_given = model.wrong_share(group, column, False)
            yield estimate_row(WRONGLY_GIVEN, wrongly_given, **key)
        for column, cls in enumerate(subject.labels):
            # One half's threshold is chosen on the other half.
            thresholds = model.thresholds.values[:, column]
            for half, threshold in enumerate(thresholds.tolist(), start=1):
                yield estimate_row(
                    THRESHOLD,
                    threshold,
                    model=model.name,
                    group=groups[0].name,
                    class_id=cls.id,
                    at=f"half {half}",
                )
    yield from difference_rows(models, groups, MEAN_PRECISION)


def drop_labels(results: Results, model: ModelFacts) -> tuple[ClassFacts, ...]:
    """Return the labels that a model's mean drops are over."""
    drops = results.rows.where(DROP, model=model.name, at=PRECISION)
    of_drops = {drop.class_id for drop in drops}
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
