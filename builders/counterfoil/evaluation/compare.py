"""Two models on the same images, the mended one against the original: where it is right more often, and where less.

Everything is paired by image. No file is read or written here. Intervals are percentile bootstraps over units: images
that share their noise (one class and candidate index under base and shifts), or a unit of the source, are drawn
together, anything else by itself. Tests are exact and two-sided (McNemar), with Holm's adjustment over all groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation import statistics
from counterfoil.evaluation.floor import BaseFloor
from counterfoil.evaluation.scores import ModelAnswers, class_units
from counterfoil.evaluation.subject import Subject
from counterfoil.report.comparison import (
    ACCURACY,
    DROP_GAIN,
    GAIN,
    MCNEMAR,
    ONLY_RIGHT,
    ComparedGroup,
    ModelComparison,
)
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import REPLICATES, Estimate, bootstrap_weights, holm, percentile_interval, seeded, sign_test


def compare_models(
    subject: Subject,
    answers: ModelAnswers,
    names: Sequence[str],
    pair: tuple[str, str],
    *,
    min_images: int,
    seed: int,
    floor: BaseFloor | None = None,
) -> tuple[ModelComparison, list[ResultRow]]:
    """The comparison of `pair` (mended, original), two of the models `names` whose answers these are, and its rows.

    Gains and tests are over every class with enough images, so that a class which one of the two alone knows counts.
    Accuracies and drops leave out what is near chance by the `floor`, as everywhere.
    """
    near = frozenset(floor.classes) if floor else frozenset()
    places = [names.index(name) for name in pair]
    own = ModelAnswers(
        answers.readable, answers.prediction[:, places], answers.correct[:, places], answers.correct_top_k[:, places]
    )
    measured = [_measured_rows(subject, own.readable, group, min_images) for group in range(len(subject.groups))]
    replicates = _replicates(subject, own.correct, measured, seed)
    comparison = ModelComparison(
        *pair,
        groups=tuple(
            ComparedGroup(
                one.name,
                one.kind,
                subject.base and place == 0,
                len(np.unique(subject.labels[measured[place]])),
            )
            for place, one in enumerate(subject.groups)
        ),
        near_chance=tuple(name for name, place in zip(pair, places, strict=True) if floor and floor.models[place]),
        classes_near_chance=tuple(one.name for one in subject.classes if one.id in near),
    )
    rows: list[ResultRow] = []
    for group in range(len(subject.groups)):
        rows += _compared(
            subject, own, group, measured[group], replicates[:, group], min_images, seed, near, comparison
        )
    rows = _adjusted(rows)
    values = [one.value for one in rows if one.measure == GAIN and one.value is not None]
    if values:
        average = percentile_interval(float(np.mean(values)), _mean(replicates))
        rows.append(row(GAIN, average, **comparison.key()))
    return comparison, rows


def _measured_rows(subject: Subject, readable: NDArray[np.bool_], group: int, min_images: int) -> NDArray[np.int64]:
    """The rows of a group's classes with enough readable images, ascending."""
    rows = np.flatnonzero((subject.shifts == group) & readable)
    counts = np.bincount(subject.labels[rows], minlength=1)
    return rows[counts[subject.labels[rows]] >= min_images]


def _compared(
    subject: Subject,
    answers: ModelAnswers,
    group: int,
    rows: NDArray[np.int64],
    replicates: NDArray[np.float64],
    min_images: int,
    seed: int,
    near: frozenset[str],
    comparison: ModelComparison,
) -> list[ResultRow]:
    """A group's rows; its gain is there, without a value, where no class has enough images."""
    described = subject.groups[group]
    sides = (answers.correct[rows, 0], answers.correct[rows, 1])  # mended, original
    classes = np.unique(subject.labels[rows])
    only = [int((sides[0] & ~sides[1]).sum()), int((sides[1] & ~sides[0]).sum())]
    by_class = np.array([[right[subject.labels[rows] == label].mean() for label in classes] for right in sides])
    known = np.array([subject.classes[label].id not in near for label in classes], dtype=bool)
    found = []
    for place, side in enumerate(by_class):
        key = comparison.key(described.name, of_original=bool(place))
        found.append(row(ACCURACY, float(side[known].mean()) if known.any() else None, n=len(rows), **key))
        found.append(row(ONLY_RIGHT, only[place] / len(rows) if len(rows) else None, n=len(rows), **key))
    value = float(by_class[0].mean() - by_class[1].mean()) if len(rows) else None
    gain = None if value is None else percentile_interval(value, replicates)
    p = sign_test(*only) if len(rows) else None
    key = comparison.key(described.name)
    found.append(row(GAIN, gain, n=len(rows), test=MCNEMAR, p=p, **key))
    if subject.base and group:
        smaller = _drop_gain(subject, answers, group, min_images, seed, near)
        if smaller is not None:
            found.append(row(DROP_GAIN, smaller, n=len(rows), **key))
    return found


def _drop_gain(
    subject: Subject, answers: ModelAnswers, group: int, min_images: int, seed: int, near: frozenset[str]
) -> Estimate | None:
    """The original's drop less the mended model's, in the same bootstrap draws; not over the classes `near` chance."""
    described = subject.groups[group]
    enough = statistics.surviving(class_units(subject, answers, group), min_images)
    kept = [one for one in enough if one.class_id not in near]
    if not kept:
        return None
    found = statistics.drops(kept, paired=described.paired, seed=seed, salt=described.name)
    return percentile_interval(float(found.drop[1] - found.drop[0]), found.replicates[:, 1] - found.replicates[:, 0])


def _adjusted(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The same with p-values adjusted for all groups that have one."""
    adjusted = iter(holm([one.p for one in rows if one.p is not None]))
    return [one if one.p is None else replace(one, q=next(adjusted)) for one in rows]


def _replicates(
    subject: Subject, correct: NDArray[np.bool_], measured: Sequence[NDArray[np.int64]], seed: int
) -> NDArray[np.float64]:
    """Every group's gain in every bootstrap replicate, (replicates, groups); NaN where a draw holds none of it.

    Units are drawn within a class: of all groups together where units reach over them, else of each by itself.
    """
    groups = len(subject.groups)
    total, counted = np.zeros((REPLICATES, groups)), np.zeros((REPLICATES, groups))
    rows = np.sort(np.concatenate(measured))
    gain = correct[:, 0].astype(np.float64) - correct[:, 1]
    strata, units = _strata(subject)
    for stratum in np.unique(strata[rows]).tolist():
        own = rows[strata[rows] == stratum]
        names, places = np.unique(units[own], return_inverse=True)
        label, first = divmod(stratum, groups)
        rng = seeded(seed, "compare", subject.groups[first].name, subject.classes[label].id)
        weights = bootstrap_weights(len(names), REPLICATES, rng)
        for group in np.unique(subject.shifts[own]).tolist():
            here = subject.shifts[own] == group
            sums = np.bincount(places[here], weights=gain[own[here]], minlength=len(names))
            images = np.bincount(places[here], minlength=len(names))
            drawn = weights @ images
            total[:, group] += np.divide(weights @ sums, drawn, out=np.zeros(REPLICATES), where=drawn > 0)
            counted[:, group] += drawn > 0
    return np.divide(total, counted, out=np.full_like(total, np.nan), where=counted > 0)


def _strata(subject: Subject) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row what is drawn together (class and first of the groups that units reach over), and its unit."""
    first, unit = subject.shifts.copy(), np.arange(len(subject.keys), dtype=np.int64)
    start = 0
    for part in subject.parts:
        rows = slice(start, start + len(part.images))
        start = rows.stop
        if part.images.units is not None:
            first[rows], unit[rows] = part.first, np.unique(part.images.units, return_inverse=True)[1]
        elif subject.groups[part.first].paired:
            first[rows], unit[rows] = part.first, subject.indices[rows]
    return subject.labels * len(subject.groups) + first, unit


def _mean(replicates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The average over groups of each replicate; of those that its draw holds."""
    held = np.isfinite(replicates)
    sums = np.where(held, replicates, 0.0).sum(axis=1)
    return np.divide(sums, held.sum(axis=1), out=np.full(len(replicates), np.nan), where=held.any(axis=1))
