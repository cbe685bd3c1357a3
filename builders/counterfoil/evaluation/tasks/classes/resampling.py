"""Resample the images of classifiers: units are drawn within a class, once for every group that shares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.accuracy_stats import Side, draw_class_averages
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, AnsweredGroup, Resampled
from counterfoil.models.score_scale import UNKNOWN
from counterfoil.report.results import ResultRow, row
from counterfoil.resampled_stats import Drawn
from counterfoil.stats import REPLICATES, bootstrap_weights, seeded

_WEIGHTS_AT_ONCE = 1 << 22  # replicates times images


def drawn_averages(subject: Subject, sides: Sequence[Side], seed: int) -> NDArray[np.float64]:
    """Return the class average of each side in every replicate, (replicates, sides); NaN if a draw has no image.

    Units are drawn within a class. If groups share units, the units of these groups are drawn together. Otherwise the
    units of each group are drawn separately.
    """
    first_group, units = strata_and_units(subject)
    strata = subject.labels * len(subject.groups) + first_group
    return draw_class_averages(sides, strata, units, _generators(subject, seed))


def image_weights(subject: Subject, rows: NDArray[np.int64], seed: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield blocks of replicates, and how often each of the rows (k,) is drawn in them, (block, k).

    The draws are those of `drawn_averages` for all images, so that groups with common units share them.
    """
    first_group, units = strata_and_units(subject)
    strata = subject.labels * len(subject.groups) + first_group
    generator_of = _generators(subject, seed)
    drawn = []
    for stratum in np.unique(strata[rows]).tolist():
        own_units = np.unique(units[strata == stratum])
        places = np.flatnonzero(strata[rows] == stratum)
        drawn.append((places, np.searchsorted(own_units, units[rows[places]]), len(own_units), generator_of(stratum)))
    size = max(1, _WEIGHTS_AT_ONCE // max(1, len(rows)))
    for start in range(0, REPLICATES, size):
        block = slice(start, min(start + size, REPLICATES))
        weights = np.empty((block.stop - start, len(rows)))
        for places, at, count, generator in drawn:
            weights[:, places] = bootstrap_weights(count, block.stop - start, generator)[:, at]
        yield block, weights


def _generators(subject: Subject, seed: int) -> Callable[[int], np.random.Generator]:
    """Return the generator of each stratum: a class in the groups that share units."""

    def generator_of(stratum: int) -> np.random.Generator:
        label, first = divmod(stratum, len(subject.groups))
        return seeded(seed, "compare", subject.groups[first].name, subject.classes[label].id)

    return generator_of


def strata_and_units(subject: Subject) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's first group of those that share units, and its unit within the class in these groups."""
    first_group, units = subject.shifts.copy(), np.arange(len(subject.keys), dtype=np.int64)
    start = 0
    for part in subject.parts:
        part_rows = slice(start, start + len(part.images))
        start = part_rows.stop
        if part.images.units is not None:
            first_group[part_rows] = part.first
            units[part_rows] = np.unique(part.images.units, return_inverse=True)[1]
        elif subject.groups[part.first].paired:
            first_group[part_rows], units[part_rows] = part.first, subject.indices[part_rows]
    return first_group, units


def weighted_mean(values: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of values (n,) in each resample, (r,), from weights (r, n); NaN if no image is drawn."""
    with np.errstate(invalid="ignore"):
        return weights @ values / weights.sum(axis=1)


def resampled_number(
    answered: AllAnswers, value_of: Resampled, group: int, model: int, labels: Sequence[int] | None = None
) -> Drawn:
    """Return a measure of a model's answers in a group, to images of these labels or to all, with its resamples.

    The bias is that of the resamples: their mean less the value. Groups that share units share their draws.
    """
    rows = answered.rows(group)
    if labels is not None:
        rows = rows[np.isin(answered.subject.labels[rows], labels)]
    if not len(rows):
        return Drawn(math.nan, np.full(REPLICATES, np.nan), 0.0, (0.0, 0.0), 0)
    scored, answers = answered.scored[model], answered.answers
    confidence = answered.confidence[rows, model].astype(np.float64)
    if scored.classifier.score_scale == UNKNOWN:
        confidence = np.full(len(rows), np.nan)
    images = AnsweredGroup(
        answered.subject.labels[rows], answers.correct[rows, model], answers.correct_top_k[rows, model], confidence
    )
    value = float(value_of(images, np.ones((1, len(rows))))[0])
    drawn = np.empty(REPLICATES)
    for block, weights in image_weights(answered.subject, rows, answered.seed):
        drawn[block] = value_of(images, weights)
    first_group, units = strata_and_units(answered.subject)
    count = len(np.unique(np.stack([answered.subject.labels[rows], first_group[rows], units[rows]]), axis=1)[0])
    bias = float(np.nanmean(drawn)) - value if np.isfinite(drawn).any() else 0.0
    return Drawn(value, drawn, bias, (0.0, 0.0), count, by_units=count < len(rows))


def resampled_rows(answered: AllAnswers, name: str, value_of: Resampled) -> Iterator[ResultRow]:
    """Yield a measure of each model in each group, and in each class of it with enough images."""
    for index in answered.places:
        label_of = {cls.id: label for label, cls in enumerate(answered.subject.classes)}
        classes = {cls.class_id: [label_of[cls.class_id]] for cls in answered.enough(index)}
        for model, model_name in enumerate(answered.models):
            for class_id, labels in {"": None, **classes}.items():
                number = resampled_number(answered, value_of, index, model, labels)
                if math.isfinite(number.value):
                    key = {"model": model_name, "group": answered.group(index).name, "class_id": class_id}
                    yield row(name, number.interval(), n=number.images, **key)
