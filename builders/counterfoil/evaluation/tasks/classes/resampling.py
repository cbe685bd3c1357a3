"""Resample the images of classifiers: units are drawn once for every group that shares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.accuracy_stats import Side, draw_class_averages
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    AnsweredGroup,
    ByChance,
    Resampled,
)
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.resampled_stats import Drawn
from counterfoil.stats import CONFIDENCE, REPLICATES, bootstrap_weights, seeded_generator

_WEIGHTS_AT_ONCE = 1 << 22  # replicates times images
# Where the truth of a mean distance is 0, its resamples show √2 - 1 of its bias. So the whole bias is
# at most larger by this many times what they show.
_UNSHOWN_BIAS = math.sqrt(2)


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
        generator_of = _generators(subject, answered.seed)
        return draw_class_averages(sides, strata, units, generator_of)
    shape = REPLICATES, len(sides)
    averages = np.full(shape, np.nan)
    for side, (rows, values) in enumerate(sides):
        labels = subject.labels[rows]
        of_units = []
        for label in np.unique(labels):
            of_class = rows[labels == label]
            of_label = units[of_class], values[of_class, None]
            of_units.append(of_label)
        if of_units:
            averages[:, [side]] = subject.units.average(of_units)
    return averages


def _generators(
    subject: Subject,
    seed: int,
) -> Callable[[int], np.random.Generator]:
    """Return the generator of each stratum: a class in the groups that share units."""

    def generator_of(stratum: int) -> np.random.Generator:
        label, first = divmod(stratum, len(subject.groups))
        group = subject.groups[first]
        cls = subject.classes[label]
        return seeded_generator(seed, "compare", group.name, cls.id)

    return generator_of


def strata_and_units(subject: Subject) -> tuple[Ints, Ints]:
    """Return each row's stratum, a class in the groups that share units, and its unit within the
    stratum.

    Units of the input dataset are in one stratum: a video may have images of several classes.
    """
    if subject.units is not None:
        return np.zeros_like(subject.labels), subject.units.of_image
    of_groups = np.array([group.paired for group in subject.groups])
    paired = of_groups[subject.shifts]
    first_group = np.where(paired, 0, subject.shifts)
    rows = np.arange(len(paired))
    units = np.where(paired, subject.indices, rows)
    return subject.labels * len(subject.groups) + first_group, units


def weighted_mean(values: Bools, weights: Floats) -> Floats:
    """Return the mean of values (n,) in each resample, (r,), from weights (r, n); NaN if no image
    is drawn."""
    drawn = weights.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return weights @ values / drawn


@dataclass(frozen=True)
class Resample:
    """What is resampled: a measure of a model's answers in a group, to images of these labels or to
    all."""

    value_of: Resampled
    group: int
    model: int
    labels: tuple[int, ...] | None = None
    computed: int = 0
    """Of the base, the computed shift whose images alone are resampled; else 0."""
    by_chance: ByChance | None = None
    """See `Measure`."""


def _answered_group(answered: AllAnswers, rows: Ints, model: int) -> AnsweredGroup:
    answers = answered.answers
    return AnsweredGroup(
        labels=answered.subject.labels[rows],
        correct=answers.correct[rows, model],
        correct_top_k=answers.correct_top_k[rows, model],
        confidence=answered.confidence[rows, model].astype(np.float64),
    )


def _blocks_of_weights(
    strata: Ints,
    units: Ints,
    generator_of: Callable[[int], np.random.Generator],
) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of resamples, and how often each of them draws each image, (block, n)."""
    of_strata = []
    for stratum in np.unique(strata).tolist():
        rows = np.flatnonzero(strata == stratum)
        different, unit_of_row = np.unique(units[rows], return_inverse=True)
        generator = generator_of(stratum)
        of_strata.append((rows, unit_of_row, len(different), generator))
    most = max(1, _WEIGHTS_AT_ONCE // max(1, len(strata)))
    for start in range(0, REPLICATES, most):
        size = min(most, REPLICATES - start)
        weights = np.empty((size, len(strata)))
        for rows, unit_of_row, count, generator in of_strata:
            drawn_units = bootstrap_weights(count, size, generator)
            weights[:, rows] = drawn_units[:, unit_of_row]
        yield slice(start, start + size), weights


def resampled_numbers(
    answered: AllAnswers,
    samples: Sequence[Resample],
) -> list[Drawn]:
    """Return each measure with its resamples. Images are drawn for all of them together.

    The bias is that of the resamples: their mean less the value. A mean distance may have more of
    it, and may be 0 if chance alone often gives as much.
    """
    subject = answered.subject
    if not samples:
        return []
    strata, units = strata_and_units(subject)
    rows_of = {}
    for sample in samples:
        of_models = (sample.group, sample.labels, sample.computed)
        if of_models not in rows_of:
            rows_of[of_models] = answered.rows_of_labels(*of_models)
    every = list(rows_of.values())
    wanted = np.unique(np.concatenate(every))
    strata = strata[wanted]
    units = units[wanted]
    groups = []
    for sample in samples:
        of_models = (sample.group, sample.labels, sample.computed)
        group = _answered_group(answered, rows_of[of_models], sample.model)
        groups.append((sample, of_models, group))
    places_of = {key: np.searchsorted(wanted, rows) for key, rows in rows_of.items()}
    shape = len(samples), REPLICATES
    drawn = np.full(shape, np.nan)
    generator_of = _generators(subject, answered.seed)
    for block, weights in _blocks_of_weights(strata, units, generator_of):
        weights_of = {key: weights[:, places] for key, places in places_of.items()}
        for number, (sample, of_models, group) in enumerate(groups):
            if len(group.labels):
                values = sample.value_of(group, weights_of[of_models])
                drawn[number, block] = values
    numbers = []
    for (sample, of_models, group), draws in zip(groups, drawn, strict=True):
        places = places_of[of_models]
        value = math.nan
        images = len(places)
        if images:
            each_once = np.ones((1, images))
            value = sample.value_of(group, each_once).item()
        units_drawn = np.stack([strata[places], units[places]])
        different = np.unique(units_drawn, axis=1)
        _, count = different.shape
        if subject.units is not None:  # as in `Units.mean`
            longer = math.sqrt(count / max(count - 1, 1))
            draws = value + (draws - value) * longer
        bias = 0.0
        if np.isfinite(draws).any():
            mean = float(np.nanmean(draws))
            bias = mean - value
        doubt = None
        if sample.by_chance is not None and math.isfinite(value):
            rng = seeded_generator(answered.seed, "by chance")
            images_a_unit = images / count
            by_chance = sample.by_chance(group, images_a_unit, rng)
            most_by_chance = np.quantile(by_chance, (1 + CONFIDENCE) / 2)
            below = _UNSHOWN_BIAS * max(0.0, bias)
            if value <= most_by_chance:
                below = value
            doubt = below, 0.0
        number = Drawn(
            value,
            draws,
            bias,
            (0.0, 0.0),
            count,
            doubt=doubt,
            by_units=count < images,
        )
        numbers.append(number)
    return numbers


def resampled_rows(
    answered: AllAnswers,
    name: str,
    value_of: Resampled,
    by_chance: ByChance | None,
) -> Iterator[ResultRow]:
    """Yield a measure of each model in each group, and in each class of it with enough images."""
    keys = []
    samples = []
    for index in answered.places:
        enough = answered.enough(index)
        for model in range(len(answered.models)):
            key = answered.key(model, index)
            keys.append(key)
            samples.append(Resample(value_of, index, model, by_chance=by_chance))
            for cls in enough:
                keys.append({**key, "class_id": cls.class_id})
                label = answered.label_of[cls.class_id]
                samples.append(Resample(value_of, index, model, (label,), by_chance=by_chance))
    numbers = resampled_numbers(answered, samples)
    for key, number in zip(keys, numbers, strict=True):
        if math.isfinite(number.value):
            interval = number.interval()
            yield estimate_row(name, interval, n=number.images, **key)
