"""Severity: accuracy against the level of a shift, the level that takes ten points, and where trajectories fail.

A trajectory is what shares a class and an index: its base image and its image at every level that the screen accepted.
Classes that are near chance, or that have too few base images, are in nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.statistics import drawn_accuracies
from counterfoil.report.results import ResultRow, row
from counterfoil.report.severity import (
    ACCURACY,
    COMPLETE,
    DIFFERENCE,
    DROP,
    END_NOT_REACHED,
    FAILED,
    FAILURE_DIFFERENCE,
    IF_LOST_FAIL,
    IF_LOST_HOLD,
    LASTING,
    MEDIAN,
    NOT_REACHED,
    RANK,
    RECOVERED,
    SWAPS,
    TEN_POINTS,
    Severity,
    SeverityLevel,
    at,
)
from counterfoil.stats import (
    REPLICATES,
    Estimate,
    distances_of_difference,
    distances_of_share,
    holm,
    mean_over_units,
    percentile_interval,
    seeded,
    wilson_estimate,
)
from counterfoil.trajectory_stats import (
    Reached,
    failed_curve,
    failure_runs,
    failure_scores,
    finite,
    ranks,
    recovered,
    rising_reaches,
    simultaneous,
    swap_test,
)

# Models that are compared pair by pair, the best on the base; others have their curves.
MOST_COMPARED = 12
_TEN_POINTS, _HALF = 0.1, 0.5


def shifts_with_levels(subject: Subject) -> dict[str, list[int]]:
    """The groups of each shift with levels, mildest first."""
    found: dict[str, list[int]] = {}
    for place, group in enumerate(subject.groups):
        if group.level is not None:
            found.setdefault(group.of, []).append(place)
    return {of: sorted(places, key=lambda place: subject.groups[place].level or 0.0) for of, places in found.items()}


@dataclass(frozen=True)
class Trajectories:
    """n trajectories of a shift with K levels, by class and index. The base is the first of K + 1 places.

    labels (n,); rows (n, K + 1), the image there, -1 for none; right (n, K + 1, models), false where there is none.
    """

    levels: NDArray[np.float64]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64]
    right: NDArray[np.bool_]

    @property
    def present(self) -> NDArray[np.bool_]:
        """(n, K + 1) where there is an image."""
        return self.rows >= 0

    @property
    def complete(self) -> NDArray[np.bool_]:
        """(n,) which have an image everywhere."""
        return np.asarray(self.present.all(axis=1))

    @property
    def right_at_base(self) -> NDArray[np.bool_]:
        """(n, models)."""
        return self.right[:, 0]

    def only(self, which: NDArray[np.bool_]) -> Trajectories:
        """Some of them, (n,)."""
        return replace(self, labels=self.labels[which], rows=self.rows[which], right=self.right[which])


def trajectories_of(answered: AllAnswers, places: Sequence[int]) -> Trajectories:
    """Those of the groups of a shift: of its planned classes that are not near chance and have enough base images."""
    subject = answered.subject
    base = np.bincount(subject.labels[answered.rows(0)], minlength=len(subject.classes))
    known = np.array([one.id not in answered.near_chance.classes for one in subject.classes]) & (
        base >= answered.min_images
    )
    planned = np.isin(np.arange(len(subject.classes)), subject.groups[places[-1]].class_labels)
    column = np.full(len(subject.groups), -1)
    column[[0, *places]] = np.arange(len(places) + 1)
    rows = np.flatnonzero((column[subject.shifts] >= 0) & answered.answers.readable)
    rows = rows[(known & planned)[subject.labels[rows]]]
    cells, scene = np.unique(
        np.stack([subject.labels[rows], subject.indices[rows]], axis=1), axis=0, return_inverse=True
    )
    found = np.full((len(cells), len(places) + 1), -1, dtype=np.int64)
    found[scene.ravel(), column[subject.shifts[rows]]] = rows
    levels = np.array([subject.groups[place].level for place in places], dtype=np.float64)
    right = answered.answers.correct[found] & (found >= 0)[:, :, None]
    return Trajectories(levels, cells[:, 0], found, right)


def measure_severity(answered: AllAnswers) -> tuple[tuple[Severity, ...], list[ResultRow]]:
    """A `Severity` for each shift with levels, in the dataset's order, and its rows."""
    found, rows = [], []
    for shift, places in shifts_with_levels(answered.subject).items() if answered.subject.base else ():
        scenes = trajectories_of(answered, places)
        curve = _Curve.of(answered, shift, scenes)
        with_base = scenes.present[:, 0]
        groups = [answered.group(place) for place in places]
        lost = (~scenes.present[with_base]).sum(axis=0)[1:].tolist()
        accepted = [int((answered.subject.shifts == place).sum()) for place in places]
        found.append(
            Severity(
                shift=shift,
                realised=groups[0].realised,
                levels=tuple(
                    SeverityLevel(one.level or 0.0, one.name, *counts)
                    for one, *counts in zip(groups, accepted, lost, strict=True)
                ),
                classes=len(curve.labels),
                left_out=tuple(
                    answered.subject.classes[label].name for label in np.setdiff1d(scenes.labels, curve.labels).tolist()
                ),
                trajectories=int(with_base.sum()),
                complete=int(scenes.complete.sum()),
            )
        )
        rows += curve.rows()
        rows += _Curve.of(answered, shift, scenes.only(scenes.complete)).rows(COMPLETE)
        rows += _failures(answered, shift, scenes)
        rows += _compared(answered, shift, scenes, curve)
    return tuple(found), rows


def _level_row(measure: str, level: Reached, **others: object) -> ResultRow:
    value, low, high = map(finite, (level.value, level.low, level.high))
    note = NOT_REACHED if value is None else END_NOT_REACHED if high is None else ""
    return ResultRow(measure, value=value, low=low, high=high, note=note, **others)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Curve:
    """Accuracy at the base and at K levels, averaged over classes: values (K + 1, m), replicates (R, K + 1, m).

    by_class (k, K + 1, m) of the classes `labels`; images (K + 1,). agreed: what classes whose images all agree add to
    the ends of accuracies, and of drops, (2, K + 1, m) each.
    """

    answered: AllAnswers
    shift: str
    levels: NDArray[np.float64]
    labels: NDArray[np.int64]
    by_class: NDArray[np.float64]
    counts: NDArray[np.int64]
    replicates: NDArray[np.float64]
    agreed: NDArray[np.float64]
    agreed_drops: NDArray[np.float64]

    @classmethod
    def of(cls, answered: AllAnswers, shift: str, scenes: Trajectories) -> _Curve:
        """Over the classes with enough images at the base and at every level."""
        sides, models = len(scenes.levels) + 1, len(answered.models)
        labels, by_class, counts = [], [], []
        total, counted = np.zeros((REPLICATES, sides, models)), np.zeros((REPLICATES, 1, 1))
        squares, squares_of_drops = np.zeros((2, sides, models)), np.zeros((2, sides, models))
        for label in np.unique(scenes.labels).tolist():
            own = scenes.only(scenes.labels == label)
            images = own.present.sum(axis=0)
            if images.min() < answered.min_images:
                continue
            units = np.ones(len(own.labels), dtype=bool)
            rng = seeded(answered.seed, "severity", shift, answered.subject.classes[label].id)
            parts = [(own.present[:, side], own.right[:, side], units) for side in range(sides)]
            drawn = np.stack(drawn_accuracies(parts, rng, REPLICATES), axis=1)
            usable = ~np.isnan(drawn).any(axis=(1, 2), keepdims=True)
            total += np.where(usable, drawn, 0.0)
            counted += usable
            accuracy = own.right.sum(axis=0) / images[:, None]
            for side in range(sides):
                both = own.present[:, 0] & own.present[:, side]
                base, here = ((accuracy[one], int(images[one])) for one in (0, side))
                squares[:, side] += np.square(distances_of_share(*here))
                squares_of_drops[:, side] += np.square(
                    distances_of_difference(base, here, own.right[both, 0], own.right[both, side])
                )
            labels.append(label)
            by_class.append(accuracy)
            counts.append(images)
        with np.errstate(invalid="ignore"):
            replicates = total / np.where(counted == 0, np.nan, counted)
        classes = max(1, len(labels))
        return cls(
            answered,
            shift,
            scenes.levels,
            np.array(labels, dtype=np.int64),
            np.array(by_class).reshape(-1, sides, models),
            np.array(counts, dtype=np.int64).reshape(-1, sides),
            replicates,
            np.sqrt(squares) / classes,
            np.sqrt(squares_of_drops) / classes,
        )

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """(K + 1, m)."""
        return self.by_class.mean(axis=0)

    @property
    def images(self) -> NDArray[np.int64]:
        """(K + 1,)."""
        return self.counts.sum(axis=0)

    def drop(self, side: int, model: int) -> Estimate:
        """Base accuracy less accuracy."""
        value = float(self.accuracy[0, model] - self.accuracy[side, model])
        below, above = self.agreed_drops[:, side, model].tolist()
        drawn = self.replicates[:, 0, model] - self.replicates[:, side, model]
        return percentile_interval(value, drawn, (below, above))

    def rows(self, ending: str = "") -> Iterator[ResultRow]:
        """Accuracies, drops and the level of ten points; with an ending, drops and that level alone."""
        if not len(self.labels):
            return
        ats, images = ["0", *map(at, self.levels.tolist())], self.images.tolist()
        for model, name in enumerate(self.answered.models):
            key = {"model": name, "group": self.shift}
            drops = [self.drop(side, model) for side in range(1, len(ats))]
            if not ending:
                for side, level in enumerate(ats):
                    value, agreed = float(self.accuracy[side, model]), self.agreed[:, side, model].tolist()
                    own = percentile_interval(value, self.replicates[:, side, model], (agreed[0], agreed[1]), least=0.0)
                    yield row(ACCURACY, own, at=level, n=images[side], **key)
            for level, n, drop in zip(ats[1:], images[1:], drops, strict=True):
                yield row(DROP + ending, drop, at=level, n=n, **key)
            weights = self.images[1:].astype(np.float64)
            ten = rising_reaches(drops, self.levels, weights, _TEN_POINTS)
            yield _level_row(TEN_POINTS + ending, ten, n=images[0], **key)
            if not ending:
                yield from self._of_classes(model, ats, key)

    def _of_classes(self, model: int, ats: Sequence[str], key: dict[str, str]) -> Iterator[ResultRow]:
        for place, label in enumerate(self.labels.tolist()):
            class_id, base = self.answered.subject.classes[label].id, float(self.by_class[place, 0, model])
            for side, level in enumerate(ats):
                n, value = int(self.counts[place, side]), float(self.by_class[place, side, model])
                yield row(ACCURACY, wilson_estimate(round(value * n), n), class_id=class_id, at=level, n=n, **key)
                if side:
                    yield row(DROP, base - value, class_id=class_id, at=level, n=n, **key)


def _failures(answered: AllAnswers, shift: str, scenes: Trajectories) -> Iterator[ResultRow]:
    """Failure points of the trajectories that a model gets right at the base, by every definition."""
    levels, ats = scenes.levels, list(map(at, scenes.levels.tolist()))
    present, right = scenes.present[:, 1:], scenes.right[:, 1:]
    everywhere, there = np.ones_like(present), present[:, :, None]
    runs = {
        "": failure_runs(present, right),
        LASTING: failure_runs(present, right, lasting=True),
        IF_LOST_FAIL: failure_runs(everywhere, right & there),
        IF_LOST_HOLD: failure_runs(everywhere, right | ~there),
        COMPLETE: failure_runs(present, right),
    }
    again = recovered(present, right)
    for model, name in enumerate(answered.models):
        key = {"model": name, "group": shift}
        for ending, (first, last) in runs.items():
            own = scenes.right_at_base[:, model] & (scenes.complete | (ending != COMPLETE))
            if not own.any():
                continue
            rng = seeded(answered.seed, "failed", shift)
            curve, n = failed_curve(first[own, model], last[own, model], len(levels), rng), int(own.sum())
            for level, share in zip(ats, curve, strict=True):
                yield row(FAILED + ending, share, at=level, n=n, **key)
            median = rising_reaches(curve, levels, np.ones(len(levels)), _HALF)
            yield _level_row(MEDIAN + ending, median, n=n, **key)
            if not ending:
                yield row(RECOVERED, wilson_estimate(int(again[own, model].sum()), n), n=n, **key)


def _compared(answered: AllAnswers, shift: str, scenes: Trajectories, curve: _Curve) -> Iterator[ResultRow]:
    """The best models on the base that are not near chance, pair by pair."""
    sound = np.flatnonzero(answered.sound)
    if not len(curve.labels) or len(sound) < 2:
        return
    models = sound[np.argsort(-curve.accuracy[0, sound], kind="stable")][:MOST_COMPARED].tolist()
    names = [answered.models[model] for model in models]
    ats = ["0", *map(at, curve.levels.tolist())]
    pairs = list(combinations(range(len(models)), 2))
    one, other = (np.array([models[pair[side]] for pair in pairs]) for side in (0, 1))
    values = (curve.accuracy[:, one] - curve.accuracy[:, other]).T
    replicates = np.moveaxis(curve.replicates[:, :, one] - curve.replicates[:, :, other], 1, 2)
    # Half a pair that only one, and half a pair that only the other is right about, where none is.
    low, high = simultaneous(values, replicates, 1 / curve.images)
    for place, (first, second) in enumerate(pairs):
        key = {"model": names[first], "against": names[second], "group": shift}
        for side, level in enumerate(ats):
            found = Estimate(*(float(each[place, side]) for each in (values, low, high)))
            yield row(DIFFERENCE, found, at=level, n=int(curve.images[side]), **key)
    for side, level in enumerate(ats):
        ends = np.zeros((2, len(models), len(models)))
        for place, (first, second) in enumerate(pairs):
            ends[:, first, second] = low[place, side], high[place, side]
            ends[:, second, first] = -high[place, side], -low[place, side]
        for name, rank in zip(names, ranks(ends[0], ends[1], curve.accuracy[side, models]), strict=True):
            yield row(RANK, Estimate(rank.value, rank.low, rank.high), model=name, group=shift, at=level, n=len(models))
    first_cell, last_cell = failure_runs(scenes.present[:, 1:], scenes.right[:, 1:, models])
    scores = failure_scores(first_cell, last_cell, scenes.right_at_base[:, models], scenes.levels)
    apart = np.stack([scores[:, first] - scores[:, second] for first, second in pairs], axis=1)
    p = swap_test(np.nan_to_num(apart), seeded(answered.seed, "swaps", shift))
    for place, ((first, second), p_one, q) in enumerate(zip(pairs, p, holm(p), strict=True)):
        both = apart[np.isfinite(apart[:, place]), place]
        key = {"model": names[first], "against": names[second], "group": shift}
        rng = seeded(answered.seed, "failure difference", shift)
        mean = mean_over_units(both, np.arange(len(both)), rng) if len(both) else None
        yield row(FAILURE_DIFFERENCE, mean, n=len(both), test=SWAPS, p=p_one, q=q, **key)
