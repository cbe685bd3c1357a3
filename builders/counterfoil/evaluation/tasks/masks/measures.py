"""What a shift costs a segmenter: IoU, accuracy of pixels, boundary F1 and their drops, also by
class.

Intervals come from resamples of the images. In each resample, an image has the same weight under
the base and every shift. Means are over the classes that some pixel has; drops, and the base that
they start from, over those that the model does not answer near chance. Values are fractions, as in
every document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.evaluation.classed_model import ClassedModel
from counterfoil.evaluation.task import difference_rows
from counterfoil.evaluation.tasks.masks.answers import ModelMasks
from counterfoil.evaluation.tasks.masks.subject import MaskSubject
from counterfoil.evaluation.tasks.objects.measures import level_facts
from counterfoil.mask_stats import (
    BOUNDARY,
    IOU,
    PIXELS,
    RECALL,
    REPLICATES,
    PixelCounts,
    score_masks,
)
from counterfoil.progress import report_progress
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    DROP_BASE,
    MeasureFacts,
    ResultRow,
    estimate_row,
)

# The names in rows of each measure's mean over classes.
MEAN_IOU = "mIoU"
MEAN_RECALL = "mean_accuracy"
MEANS = {MEAN_IOU: IOU, PIXELS: PIXELS, MEAN_RECALL: RECALL, BOUNDARY: BOUNDARY}
# The measures of a class.
OF_CLASS = (IOU, RECALL, BOUNDARY)
CURVE = "severity_mIoU"
# The share of the pixels that a class has.
SHARE = "share_of_pixels"


@dataclass(frozen=True)
class MeasuredSegmenter(ClassedModel):
    """The numbers of a segmenter."""

    means = MEANS
    lead = IOU
    word = "class", "classes"
    unmeasured = "no pixel has it"
    subject: MaskSubject
    answered: ModelMasks
    counts: tuple[PixelCounts, ...]
    """The pixels of each group."""

    @cached_property
    def columns(self) -> dict[int, int]:
        return {label: label for label in self.subject.measured}

    def drop_note(self, group: int, measure: str) -> str:
        return "" if measure == PIXELS else super().drop_note(group, measure)

    @cached_property
    def image_iou(self) -> Floats:
        """The IoU of each image, the mean over the classes that it has, (groups, n)."""
        return np.stack([counts.image_iou() for counts in self.counts])


def measure_segmenter(subject: MaskSubject, answered: ModelMasks, seed: int) -> MeasuredSegmenter:
    """Count a model's answers by image, and resample the images of all groups together."""
    counts = []
    for group in range(len(subject.rows)):
        of_group = answered.of_group(subject, group)
        counts.append(of_group)

    def done(replicates: int) -> None:
        report_progress(f"measuring {answered.name}", replicates, REPLICATES)

    scores = score_masks(counts, seed, units=subject.units, done=done)
    return MeasuredSegmenter(answered.name, subject, answered, scores, tuple(counts))


def segmenter_rows(
    subject: MaskSubject, models: Sequence[MeasuredSegmenter]
) -> Iterator[ResultRow]:
    """Yield every number. Intervals of mean drops hold for all shifts at once; those of classes
    also for all classes."""
    having = subject.pixels > 0
    images = having.sum(axis=0).tolist()
    for label in subject.measured:
        name = subject.classes[label]
        share = float(subject.shares[label])
        yield estimate_row(SHARE, share, class_id=name, n=images[label])
    groups = subject.dataset.groups
    for model in models:
        for measure in MEANS:
            yield from model.rows(measure, groups, subject.images, subject.units)
        keys = model.class_keys(groups, subject.classes, images)
        for (group, label), key in keys.items():
            for measure in OF_CLASS:
                number = model.share(group, measure, label)
                if math.isfinite(number.value):  # a class that fills its images has no boundary
                    yield estimate_row(measure, number.interval(), **key)
        yield from model.class_drops(IOU, keys)
    yield from difference_rows(models, groups, MEAN_IOU)


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts(
        MEAN_IOU,
        MEAN_IOU,
        "percent",
        "mean of the classes’ IoU, over the pixels of all images together",
    ),
    MeasureFacts(
        IOU,
        IOU,
        "percent",
        "pixels that have a class and are given it, as a share of those that have it or are given"
        " it",
    ),
    MeasureFacts(
        PIXELS, "pixel accuracy", "percent", "share of the pixels with a class that are given it"
    ),
    MeasureFacts(MEAN_RECALL, "mean accuracy", "percent", "mean of the classes’ recall"),
    MeasureFacts(RECALL, "recall", "percent", "share of the pixels of a class that are given it"),
    MeasureFacts(
        BOUNDARY,
        "boundary F1",
        "percent",
        "F1 of the pixels on a class’s boundary, within 0.75 % of the diagonal, as a mean over the"
        " images that have one; rows without a class are means over classes",
    ),
    MeasureFacts(
        DROP,
        "drop",
        "points",
        "base less shift; of means, over the classes that are not near chance on the base",
    ),
    MeasureFacts(
        DROP_BASE,
        "base of the drop",
        "percent",
        "the measure on the base, over the classes of the drop",
    ),
    MeasureFacts(
        DIFFERENCE, "drop less another segmenter's", "points", "drop of mIoU less that of `against`"
    ),
    *level_facts(MEAN_IOU, CURVE),
    MeasureFacts(SHARE, "share of pixels", "percent", "share of the pixels with a class"),
)
