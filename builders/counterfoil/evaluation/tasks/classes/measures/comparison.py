"""Compare a mended model with its original, image by image.

Intervals are bootstraps over units: all images of a unit are drawn together. A unit is given by the
source (`Drawn` then has the interval), or it is all images that share their noise, which have the
same class and candidate index under the base and the shifts.
The draws of a class do not vary if the gain is the same on all of its images;
`_reaches_of_equal_gains` then widens the interval. Tests are McNemar's exact two-sided tests, with
Holm's adjustment over all groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.tasks.classes.agreement import (
    differing_answers,
    differing_share,
    largest_difference,
)
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    NestedMeasure,
    Request,
)
from counterfoil.evaluation.tasks.classes.resampling import (
    drawn_averages,
    strata_and_units,
)
from counterfoil.report.comparison import (
    ACCURACY,
    DIFFERENT_ANSWERS,
    DROP_GAIN,
    GAIN,
    LARGEST_DIFFERENCE,
    MCNEMAR,
    ONLY_RIGHT,
    ComparedGroup,
    ModelComparison,
)
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.resampled_stats import interval_of_draws, mean_of_finite
from counterfoil.stats import (
    NORMAL,
    Bounds,
    Estimate,
    holm_adjusted,
    sign_test,
    wilson_interval,
)


@dataclass(frozen=True)
class ComparedModels(Request):
    """The names of the two scored models to compare."""

    mended: str
    original: str


def compare_models(
    answered: AllAnswers,
) -> tuple[ModelComparison | None, list[ResultRow]]:
    """Return the comparison of the two requested models and its rows. Without a request, the
    comparison is None. Groups that either model cannot take are left out.

    Accuracies, gains and tests use every class, so that a class that only one model knows counts. A
    group in which no class has enough images is not measured. Drops leave out classes with few
    images and classes near chance.
    """
    compared = answered.request(ComparedModels)
    if compared is None:
        return None, []
    subject = answered.subject
    names = (compared.mended, compared.original)
    places = [answered.models.index(name) for name in names]
    correct = answered.answers.correct[:, places]
    measured = _measured_rows(answered, places)
    mended, original = correct.T.astype(np.float64)
    gain = mended - original
    # `replicates` has one column for each group, in the order of `measured`.
    sides = [(rows_of_group, gain) for rows_of_group in measured.values()]
    replicates = drawn_averages(answered, sides)
    _, units = strata_and_units(subject)
    comparison = _comparison(answered, compared, places)
    differs = differing_answers(answered, *places)
    rows: list[ResultRow] = []
    groups = []
    reaches = []
    unit_counts = []
    for column, (group, rows_of_group) in enumerate(measured.items()):
        labels = subject.labels[rows_of_group]
        samples = []
        for label in np.unique(labels):
            rows_of_class = rows_of_group[labels == label]
            samples.append((gain[rows_of_class], len(np.unique(units[rows_of_class]))))
        # How much wider the interval of the gain is because gains of a class are equal.
        reach = (0.0, 0.0)
        if samples:
            of_classes = _reaches_of_equal_gains(samples)
            lengths = np.linalg.norm(of_classes, axis=0)
            reach = tuple(lengths / len(samples))
            reaches.append(reach)
            unit_counts.append(answered.unit_count(rows_of_group))
        described = subject.groups[group]
        facts = ComparedGroup(
            described.name,
            described.kind,
            subject.base and group == 0,
            len(samples),
        )
        groups.append(facts)
        rows += _compared(
            answered,
            correct,
            group,
            rows_of_group,
            replicates[:, column],
            reach,
            comparison,
        )
        key = comparison.key(described.name)
        rows += _agreement(answered, places, group, differs, key)
        if subject.base and group:
            smaller = _drop_gain(answered, places, group)
            if smaller is not None:
                n = len(rows_of_group)
                rows.append(estimate_row(DROP_GAIN, smaller, n=n, **key))
    tested = [result.p for result in rows if result.p is not None]
    adjusted = iter(holm_adjusted(tested))
    gains = []
    for index, result in enumerate(rows):
        if result.p is not None:
            rows[index] = replace(result, q=next(adjusted))
        if result.measure == GAIN and result.value is not None:
            gains.append(result.value)
    if gains:
        average = _average_gain(gains, reaches, replicates, unit_counts)
        rows.append(estimate_row(GAIN, average, **comparison.key()))
    return replace(comparison, groups=tuple(groups)), rows


def _average_gain(
    gains: Sequence[float],
    reaches: Sequence[Bounds],
    replicates: Floats,
    unit_counts: Sequence[int | None],
) -> Estimate:
    """Return the mean of the groups' gains."""
    # Groups may share their images, so their errors may be fully correlated: average reaches, not
    # their squares.
    below, above = np.mean(reaches, axis=0)
    least_units = min(filter(None, unit_counts), default=None)
    drawn = mean_of_finite(replicates.T)
    return interval_of_draws(float(np.mean(gains)), drawn, (below, above), units=least_units)


def _measured_rows(answered: AllAnswers, places: Sequence[int]) -> dict[int, Ints]:
    """Return the rows of each group that both models can take; none if no class has enough."""
    measured: dict[int, Ints] = {}
    for group in answered.places:
        if not answered.able(group)[places].all():
            continue
        rows_of_group = answered.rows(group)
        counts = np.bincount(answered.subject.labels[rows_of_group])
        if counts.max(initial=0) < answered.min_images:
            rows_of_group = np.empty(0, np.int64)
        measured[group] = rows_of_group
    return measured


def _comparison(
    answered: AllAnswers,
    compared: ComparedModels,
    places: Sequence[int],
) -> ModelComparison:
    """Return the facts of a comparison, as yet without groups."""
    _, original = places
    note = None
    origin = answered.asking.models.mended.get(compared.mended)
    if origin is not None:
        sha256 = origin.model.sha256
        scored_sha256 = answered.scored[original].classifier.sha256
        known = sha256 is not None and scored_sha256 is not None
        if known and sha256 != scored_sha256:
            note = (
                f"{compared.mended} was mended from {origin.model.name}, whose weights differ from"
                f" those of {compared.original}."
            )
    near = answered.near_chance
    guessing = [answered.models[index] for index in places if near.models[index]]
    classes = answered.subject.classes
    classes_near_chance = [cls.name for cls in classes if cls.id in near.classes]
    return ModelComparison(
        compared.mended,
        compared.original,
        groups=(),
        note=note,
        near_chance=tuple(guessing),
        classes_near_chance=tuple(classes_near_chance),
    )


def _compared(
    answered: AllAnswers,
    correct: Bools,
    group: int,
    rows: Ints,
    replicates: Floats,
    reach: Bounds,
    comparison: ModelComparison,
) -> list[ResultRow]:
    """Return the rows of one group. The gain has no value if no class has enough images."""
    subject = answered.subject
    labels = subject.labels[rows]
    classes = np.unique(labels)
    n = len(rows)
    mended, original = correct[rows].T
    name = subject.groups[group].name
    only = []
    accuracies = []
    result_rows = []
    for of_original, right, other in ((False, mended, original), (True, original, mended)):
        alone = int((right & ~other).sum())
        only.append(alone)
        key = comparison.key(name, of_original=of_original)
        accuracy = None
        share = None
        if n:
            by_class = [right[labels == label].mean() for label in classes]
            accuracy = float(np.mean(by_class))
            accuracies.append(accuracy)
            share = alone / n
        of_accuracy = estimate_row(ACCURACY, accuracy, n=n, **key)
        of_share = estimate_row(ONLY_RIGHT, share, n=n, **key)
        result_rows += [of_accuracy, of_share]
    gain = None
    p = None
    if n:
        accuracy_of_mended, accuracy_of_original = accuracies
        units = answered.unit_count(rows)
        difference = accuracy_of_mended - accuracy_of_original
        gain = interval_of_draws(difference, replicates, reach, units=units)
        p = sign_test(*only)
    key = comparison.key(name)
    gained = estimate_row(GAIN, gain, n=n, test=MCNEMAR, p=p, **key)
    return [*result_rows, gained]


def _agreement(
    answered: AllAnswers,
    places: Sequence[int],
    group: int,
    differs: Bools,
    key: Mapping[str, str],
) -> Iterator[ResultRow]:
    """Yield on which share of a group's images answers differ, and how far confidences are
    apart."""
    rows = answered.rows(group)
    n = len(rows)
    if not n:
        return
    share = differing_share(answered, rows, differs).interval(NORMAL)
    yield estimate_row(DIFFERENT_ANSWERS, share, n=n, **key)
    largest = largest_difference(answered, *places, rows=rows)
    if largest is not None:
        yield estimate_row(LARGEST_DIFFERENCE, largest, n=n, **key)


def _drop_gain(
    answered: AllAnswers,
    places: list[int],
    group: int,
) -> Estimate | None:
    """Return the drop of the original minus the drop of the mended model, both from the same
    bootstrap draws.

    Classes near chance are left out.
    """
    drops = answered.drops(group)
    if drops is None:
        return None
    mended, original = places
    samples = []
    for cls in answered.kept(group):
        base = cls.base_correct[cls.base_present]
        shifted = cls.shift_correct[cls.shift_present]
        for right in (base.astype(np.float64), shifted.astype(np.float64)):
            gains = right[:, mended] - right[:, original]
            samples.append((gains, len(right)))
    reaches = _reaches_of_equal_gains(samples)
    # The gain on the base is subtracted, so its two ends change places.
    reaches[::2] = reaches[::2, ::-1]
    lengths = np.linalg.norm(reaches, axis=0)
    below, above = (lengths / len(drops.classes)).tolist()
    value = float(drops.drop[original] - drops.drop[mended])
    replicates = drops.replicates[:, original] - drops.replicates[:, mended]
    return interval_of_draws(value, replicates, (below, above), -2.0, drops.units)


def _reaches_of_equal_gains(samples: Sequence[tuple[Floats, int]]) -> Floats:
    """Return how far the interval of each sample's mean gain reaches below and above, (samples, 2).

    samples: the gains of some images, -1, 0 or 1, and the number of their units. Gains that differ
    reach 0, because their draws vary. Gains of 0 reach 1.96 standard errors of a gain that is not 0
    as often as in all samples together, with one such image and one other added. (Wilson's interval
    of each sample alone made intervals up to 2.5 times as wide, which held in 100 % of
    simulations.) Gains of 1 or of -1 have Wilson's interval.
    """
    images = 0
    gained = 0
    for gains, _ in samples:
        images += len(gains)
        gained += np.count_nonzero(gains)
    share = (gained + 1) / (images + 2)
    reaches = np.zeros((len(samples), 2))
    for reach, (gains, units) in zip(reaches, samples, strict=True):
        if (gains != gains[0]).any():
            continue
        if gains[0] == 0:
            reach[:] = NORMAL * math.sqrt(share / units)
        else:
            # The mean gain can only be nearer to 0.
            low, _ = wilson_interval(units, units)
            end = 0 if gains[0] > 0 else 1
            reach[end] = 1 - low
    return reaches


MEASURE = NestedMeasure(compare_models)
