"""Resample the images of classifiers: units are drawn once for every group that shares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.accuracy_stats import Side, draw_class_averages
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, AnsweredGroup, Resampled
from counterfoil.models.score_scale import UNKNOWN
from counterfoil.report.results import ResultRow, row
from counterfoil.resampled_stats import Drawn
from counterfoil.stats import REPLICATES, bootstrap_weights, seeded

_WEIGHTS_AT_ONCE = 1 << 22  # replicates times images


def drawn_averages(answered: AllAnswers, sides: Sequence[Side]) -> Floats:
    """Return the class average of each side in every replicate, (replicates, sides); NaN if a draw
    has no image.

    Units are drawn within a class. If groups share units, the units of these groups are drawn
    together. Otherwise the units of each group are drawn separately. Units that the input dataset
    names are drawn over all classes.
    """
    subject = answered.subject
    strata, units = strata_and_units(subject)
    if subject.units is None:
        return draw_class_averages(sides, strata, units, _generators(subject, answered.seed))
    averages = np.full((REPLICATES, len(sides)), np.nan)
    for side, (rows, values) in enumerate(sides):
        of_classes = [
            rows[subject.labels[rows] == label] for label in np.unique(subject.labels[rows])
        ]
        if of_classes:
            of_units = [(units[rows], values[rows][:, None]) for rows in of_classes]
            averages[:, side] = subject.units.average(of_units)[:, 0]
    return averages


def image_weights(subject: Subject, seed: int) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of replicates, and how often each of the n images is drawn in them, (block,
    n)."""
    strata, units = strata_and_units(subject)
    generator_of = _generators(subject, seed)
    drawn = []
    for stratum in np.unique(strata).tolist():
        rows = np.flatnonzero(strata == stratum)
        own_units, at = np.unique(units[rows], return_inverse=True)
        drawn.append((rows, at, len(own_units), generator_of(stratum)))
    size = max(1, _WEIGHTS_AT_ONCE // len(strata))
    for start in range(0, REPLICATES, size):
        block = slice(start, min(start + size, REPLICATES))
        weights = np.empty((block.stop - start, len(strata)))
        for rows, at, count, generator in drawn:
            weights[:, rows] = bootstrap_weights(count, block.stop - start, generator)[:, at]
        yield block, weights


def _generators(subject: Subject, seed: int) -> Callable[[int], np.random.Generator]:
    """Return the generator of each stratum: a class in the groups that share units."""

    def generator_of(stratum: int) -> np.random.Generator:
        label, first = divmod(stratum, len(subject.groups))
        return seeded(seed, "compare", subject.groups[first].name, subject.classes[label].id)

    return generator_of


def strata_and_units(subject: Subject) -> tuple[Ints, Ints]:
    """Return each row's stratum, a class in the groups that share units, and its unit within the
    stratum.

    Units of the input dataset are in one stratum: a video may have images of several classes.
    """
    if subject.units is not None:
        return np.zeros(len(subject.keys), dtype=np.int64), subject.units.of_image
    first_group = subject.shifts.copy()
    units = np.arange(len(subject.keys), dtype=np.int64)
    start = 0
    for part in subject.parts:
        part_rows = slice(start, start + len(part.images))
        start = part_rows.stop
        if subject.groups[part.first].paired:
            first_group[part_rows], units[part_rows] = part.first, subject.indices[part_rows]
    return subject.labels * len(subject.groups) + first_group, units


def weighted_mean(values: Bools, weights: Floats) -> Floats:
    """Return the mean of values (n,) in each resample, (r,), from weights (r, n); NaN if no image
    is drawn."""
    with np.errstate(invalid="ignore"):
        return weights @ values / weights.sum(axis=1)


@dataclass(frozen=True)
class Resample:
    """What is resampled: a measure of a model's answers in a group, to images of these labels or to
    all."""

    value_of: Resampled
    group: int
    model: int
    labels: tuple[int, ...] | None = None

    def rows(self, answered: AllAnswers) -> Ints:
        rows = answered.rows(self.group)
        return (
            rows
            if self.labels is None
            else rows[np.isin(answered.subject.labels[rows], self.labels)]
        )


def resampled_numbers(answered: AllAnswers, samples: Sequence[Resample]) -> list[Drawn]:
    """Return each measure with its resamples. Images are drawn for all of them together.

    The bias is that of the resamples: their mean less the value.
    """
    subject = answered.subject
    answers = answered.answers
    strata, units = strata_and_units(subject)
    rows_of = [sample.rows(answered) for sample in samples]
    groups = []
    for sample, rows in zip(samples, rows_of, strict=True):
        confidence = answered.confidence[rows, sample.model].astype(np.float64)
        if answered.scored[sample.model].classifier.score_scale == UNKNOWN:
            confidence = np.full(len(rows), np.nan)
        correct, top_k = (
            each[rows, sample.model] for each in (answers.correct, answers.correct_top_k)
        )
        groups.append(AnsweredGroup(subject.labels[rows], correct, top_k, confidence))
    drawn = np.full((len(samples), REPLICATES), np.nan)
    for block, weights in image_weights(subject, answered.seed) if samples else ():
        for number, (sample, rows, group) in enumerate(zip(samples, rows_of, groups, strict=True)):
            if len(rows):
                drawn[number, block] = sample.value_of(group, weights[:, rows])
    numbers = []
    for sample, rows, group, draws in zip(samples, rows_of, groups, drawn, strict=True):
        value = float(sample.value_of(group, np.ones((1, len(rows))))[0]) if len(rows) else math.nan
        count = np.unique(np.stack([strata[rows], units[rows]]), axis=1).shape[1]
        if subject.units is not None:  # as in `UnitDraws.mean`
            draws = value + (draws - value) * math.sqrt(count / max(count - 1, 1))
        bias = float(np.nanmean(draws)) - value if np.isfinite(draws).any() else 0.0
        numbers.append(Drawn(value, draws, bias, (0.0, 0.0), count, by_units=count < len(rows)))
    return numbers


def resampled_rows(answered: AllAnswers, name: str, value_of: Resampled) -> Iterator[ResultRow]:
    """Yield a measure of each model in each group, and in each class of it with enough images."""
    label_of = {cls.id: label for label, cls in enumerate(answered.subject.classes)}
    samples: dict[tuple[str, str, str], Resample] = {}
    for index in answered.places:
        labels_of = {
            "": None,
            **{cls.class_id: (label_of[cls.class_id],) for cls in answered.enough(index)},
        }
        for model, model_name in enumerate(answered.models):
            for class_id, labels in labels_of.items():
                key = model_name, answered.group(index).name, class_id
                samples[key] = Resample(value_of, index, model, labels)
    numbers = resampled_numbers(answered, list(samples.values()))
    for (model_name, group, class_id), number in zip(samples, numbers, strict=True):
        if math.isfinite(number.value):
            yield row(
                name,
                number.interval(),
                model=model_name,
                group=group,
                class_id=class_id,
                n=number.images,
            )
