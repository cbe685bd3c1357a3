"""Severity: accuracy against the level of a shift, the level that takes ten points, and where
trajectories fail.

A trajectory is a class and an index: its base image and its image at every level that the screen
accepted. Classes that are near chance, or that have too few base images, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from counterfoil import stats, trajectory_stats
from counterfoil.accuracy_stats import Drops, drawn_accuracies
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.figures import MOST_SHIFTS, lines_of_models, severity_figure, thumbnails
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, NestedMeasure
from counterfoil.report import severity as names
from counterfoil.report.results import ModelFacts, ResultRow, Results, estimate_row
from counterfoil.resampled_stats import (
    FEWEST_IMAGES,
    Units,
    UnitValues,
    interval_of_draws,
    share_estimate,
)

_TEN_POINTS = 0.1
_HALF = 0.5


def shifts_with_levels(subject: Subject) -> dict[str, list[int]]:
    """Return the groups of each shift with levels, mildest first."""
    groups_of: dict[str, list[int]] = {}
    for index, group in enumerate(subject.groups):
        if group.level is not None:
            groups_of.setdefault(group.of, []).append(index)
    for indices in groups_of.values():
        indices.sort(key=lambda index: subject.groups[index].level or 0.0)
    return groups_of


def severity_levels(
    subject: Subject, groups: Sequence[int], lost: Sequence[int]
) -> tuple[names.SeverityLevel, ...]:
    """Return the levels of a shift, by their groups. lost: how many base images have no image
    there."""
    levels = []
    for index, missing in zip(groups, lost, strict=True):
        group = subject.groups[index]
        accepted = int((subject.shifts == index).sum())
        levels.append(names.SeverityLevel(group.level or 0.0, group.name, accepted, missing))
    return tuple(levels)


@dataclass(frozen=True)
class Trajectories:
    """n trajectories of a shift with K levels, in the order of class and index. Each has K + 1
    places, the base first.

    labels: (n,). rows: (n, K + 1), the row of the image at each place, -1 if there is no image.
    right: (n, K + 1, models), false if there is no image. units: (n,) of the input dataset, if
    images share any.
    """

    levels: Floats
    labels: Ints
    rows: Ints
    right: Bools
    units: Ints | None

    @property
    def present(self) -> Bools:
        """Whether each place has an image, (n, K + 1)."""
        return self.rows >= 0

    @property
    def complete(self) -> Bools:
        """Whether a trajectory has an image at every place, (n,)."""
        return np.asarray(self.present.all(axis=1))

    @property
    def right_at_base(self) -> Bools:
        """Whether each model is right on the base image, (n, models)."""
        return self.right[:, 0]

    def only(self, which: Bools) -> Trajectories:
        units = None if self.units is None else self.units[which]
        return replace(
            self,
            labels=self.labels[which],
            rows=self.rows[which],
            right=self.right[which],
            units=units,
        )


def trajectories_of(answered: AllAnswers, places: Sequence[int]) -> Trajectories:
    """Return the trajectories of a shift's planned classes that have enough base images and are not
    near chance."""
    subject = answered.subject
    classes = len(subject.classes)
    base = np.bincount(subject.labels[answered.rows(0)], minlength=classes)
    planned = subject.groups[places[-1]].class_labels
    chosen = (base >= answered.min_images) & np.isin(np.arange(classes), planned)
    for label, cls in enumerate(subject.classes):
        if cls.id in answered.near_chance.classes:
            chosen[label] = False
    sides = len(places) + 1
    side_of = np.full(len(subject.groups), -1)
    side_of[[0, *places]] = np.arange(sides)
    rows = np.flatnonzero((side_of[subject.shifts] >= 0) & answered.answers.readable)
    rows = rows[chosen[subject.labels[rows]]]
    labels = subject.labels[rows]
    keys = np.stack([labels, subject.indices[rows]], axis=1)
    cells, scene = np.unique(keys, axis=0, return_inverse=True)
    rows_of_cells = np.full((len(cells), sides), -1, dtype=np.int64)
    rows_of_cells[scene.ravel(), side_of[subject.shifts[rows]]] = rows
    levels = [subject.groups[index].level for index in places]
    right = answered.answers.correct[rows_of_cells]
    right &= (rows_of_cells >= 0)[:, :, None]
    return Trajectories(
        levels=np.array(levels, dtype=np.float64),
        labels=cells[:, 0],
        rows=rows_of_cells,
        right=right,
        units=answered.shared_units(rows_of_cells.max(axis=1)),
    )


def measure_severity(answered: AllAnswers) -> tuple[tuple[names.Severity, ...], list[ResultRow]]:
    """Return a `Severity` for each shift with levels, in the dataset's order, and its rows."""
    subject = answered.subject
    severities: list[names.Severity] = []
    rows: list[ResultRow] = []
    if not subject.base:
        return (), rows
    for shift, places in shifts_with_levels(subject).items():
        scenes = trajectories_of(answered, places)
        drops = answered.drops(places[-1])
        curve = _Curve.of(answered, shift, scenes, drops)
        with_base = scenes.present[:, 0]
        lost = (~scenes.present[with_base, 1:]).sum(axis=0).tolist()
        left_out = np.setdiff1d(scenes.labels, curve.labels).tolist()
        severity = names.Severity(
            shift=shift,
            realised=subject.groups[places[0]].realised,
            levels=severity_levels(subject, places, lost),
            classes=len(curve.labels),
            left_out=tuple(subject.classes[label].name for label in left_out),
            trajectories=int(with_base.sum()),
            complete=int(scenes.complete.sum()),
        )
        severities.append(severity)
        of_shift = [*curve.rows()]
        complete = _Curve.of(answered, shift, scenes.only(scenes.complete))
        of_shift += complete.rows(names.COMPLETE)
        of_shift += _failures(answered, shift, scenes)
        of_shift += _compared(answered, shift, scenes, curve)
        able = np.array(answered.models)[answered.able(places[-1])]
        rows += [row for row in of_shift if row.model in able]
    return tuple(severities), rows


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def level_row(measure: str, level: trajectory_stats.Reached, **others: Any) -> ResultRow:
    """Return the row of a level. A note says if the level, or the upper end of its interval, is not
    reached."""
    value, low, high = map(_finite, (level.value, level.low, level.high))
    note = "" if high is not None else names.END_NOT_REACHED
    if value is None:
        note = names.NOT_REACHED
    return ResultRow(measure, value=value, low=low, high=high, note=note, **others)


@dataclass(frozen=True)
class _Curve:
    """Accuracy of m models at the base and at K levels, for k classes and averaged over them."""

    answered: AllAnswers
    """The answers that it is computed from."""
    shift: str
    """The name of the shift."""
    drops_of_top: Drops | None
    """The drops at the highest level, if they are over the same classes."""
    levels: Floats
    """(K,), mildest first."""
    labels: Ints
    """(k,), the classes."""
    by_class: Floats
    """(k, K + 1, m), accuracy of each class in `labels`."""
    counts: Ints
    """(k, K + 1), the number of images."""
    replicates: Floats
    """(R, K + 1, m), bootstrap draws of the average."""
    agreed: Floats
    """(2, K + 1, m), how far the intervals of accuracies are widened because all images of some
    classes agree."""
    agreed_drops: Floats
    """The same for the intervals of drops."""
    drops_of_class: Floats
    """(k, 2, K + 1, m), the ends of the intervals of drops."""
    units: int | None
    """How many units are drawn, if images share any: single classes then have no intervals."""

    @classmethod
    def of(
        cls,
        answered: AllAnswers,
        shift: str,
        scenes: Trajectories,
        drops: Drops | None = None,
    ) -> _Curve:
        """Average over the classes with enough images at the base and at every level.

        drops: the drops at the highest level that the drop measure computed. They are reused if
        they average over the same classes.
        """
        sides = len(scenes.levels) + 1
        models = len(answered.models)
        labels = []
        class_ids = set()
        by_class = []
        counts = []
        drop_ends = []
        shared = answered.subject.units
        right_of_units: list[list[UnitValues]] = [[] for _ in range(sides)]
        total = np.zeros((stats.REPLICATES, sides, models))
        counted = np.zeros((stats.REPLICATES, 1, 1))
        squares = np.zeros((2, sides, models))
        squares_of_drops = np.zeros_like(squares)
        for label in np.unique(scenes.labels).tolist():
            of_label = scenes.only(scenes.labels == label)
            images = of_label.present.sum(axis=0)
            if images.min() < answered.min_images:
                continue
            class_id = answered.subject.classes[label].id
            accuracy = of_label.right.sum(axis=0) / images[:, None]
            labels.append(label)
            class_ids.add(class_id)
            by_class.append(accuracy)
            counts.append(images)
            parts = []
            for side in range(sides):
                parts.append((of_label.present[:, side], of_label.right[:, side]))
            if of_label.units is not None:
                for of_side, (present, right) in zip(right_of_units, parts, strict=True):
                    of_side.append((of_label.units[present], right[present]))
                drop_ends.append(np.full_like(squares, np.nan))
                continue
            every = np.ones(len(of_label.labels), dtype=bool)
            rng = stats.seeded_generator(answered.seed, "severity", shift, class_id)
            drawn = np.stack(drawn_accuracies(parts, every, rng, stats.REPLICATES), axis=1)
            usable = ~np.isnan(drawn).any(axis=(1, 2), keepdims=True)
            total += np.where(usable, drawn, 0.0)
            counted += usable
            widened = np.zeros_like(squares)
            base = accuracy[0], int(images[0])
            for side, (present, right) in enumerate(parts):
                both = parts[0][0] & present
                pairs = int(both.sum())
                first = parts[0][1][both]
                last = right[both]
                level = accuracy[side], int(images[side])
                squares[:, side] += np.square(stats.distances_of_share(*level))
                reach = stats.distances_of_difference(base, level, first, last)
                squares_of_drops[:, side] += np.square(reach)
                widened[:, side] = reach
                if pairs:
                    # If images are missing at a level and all pairs agree, use at least the
                    # interval of the pairs.
                    base_of_pairs = first.sum(axis=0) / pairs, pairs
                    level_of_pairs = last.sum(axis=0) / pairs, pairs
                    reach = stats.distances_of_difference(
                        base_of_pairs, level_of_pairs, first, last
                    )
                    widened[:, side] = np.maximum(widened[:, side], reach)
            drop = accuracy[0] - accuracy
            drawn_drop = drawn[:, :1] - drawn
            drop_ends.append(stats.percentile_ends(drop, drawn_drop, widened))
        with np.errstate(invalid="ignore"):
            replicates = total / np.where(counted == 0, np.nan, counted)
        units = None
        if scenes.units is not None:
            averaged = np.isin(scenes.labels, labels)
            units = len(np.unique(scenes.units[averaged]))
        if shared is not None and labels:
            replicates = np.stack([shared.average(side) for side in right_of_units], axis=1)
        if drops is not None and set(drops.classes) != class_ids:
            drops = None
        classes = max(1, len(labels))
        return cls(
            answered=answered,
            shift=shift,
            drops_of_top=drops,
            levels=scenes.levels,
            labels=np.array(labels, dtype=np.int64),
            by_class=np.array(by_class).reshape(-1, sides, models),
            counts=np.array(counts, dtype=np.int64).reshape(-1, sides),
            replicates=replicates,
            agreed=np.sqrt(squares) / classes,
            agreed_drops=np.sqrt(squares_of_drops) / classes,
            drops_of_class=np.array(drop_ends).reshape(-1, 2, sides, models),
            units=units,
        )

    @property
    def accuracy(self) -> Floats:
        """Accuracy averaged over classes, (K + 1, m)."""
        return self.by_class.mean(axis=0)

    @property
    def images(self) -> Ints:
        """The number of images, (K + 1,)."""
        return self.counts.sum(axis=0)

    def drop(self, side: int, model: int) -> stats.Estimate:
        """Return the drop of a model at a place: base accuracy minus accuracy there."""
        if self.drops_of_top is not None and side == len(self.levels):
            return self.drops_of_top.interval(model)
        value = float(self.accuracy[0, model] - self.accuracy[side, model])
        below, above = self.agreed_drops[:, side, model].tolist()
        drawn = self.replicates[:, 0, model] - self.replicates[:, side, model]
        return interval_of_draws(value, drawn, (below, above), units=self.units)

    def rows(self, ending: str = "") -> Iterator[ResultRow]:
        """Yield rows of accuracies, of drops and of the level that takes ten points; with an
        ending, no accuracies."""
        if not len(self.labels):
            return
        ats = ["0", *map(names.at, self.levels.tolist())]
        images = self.images.tolist()
        for model, name in enumerate(self.answered.models):
            key = {"model": name, "group": self.shift}
            drops = [self.drop(side, model) for side in range(1, len(ats))]
            of_levels: list[dict[str, Any]] = []
            for level, n in zip(ats, images, strict=True):
                of_levels.append({**key, "at": level, "n": n, "units": self.units})
            for side, of_level in enumerate(of_levels if not ending else ()):
                value = float(self.accuracy[side, model])
                below, above = self.agreed[:, side, model].tolist()
                drawn = self.replicates[:, side, model]
                accuracy = interval_of_draws(value, drawn, (below, above), 0.0, self.units)
                yield estimate_row(names.ACCURACY, accuracy, **of_level)
            for of_level, drop in zip(of_levels[1:], drops, strict=True):
                yield estimate_row(names.DROP + ending, drop, **of_level)
            weights = self.images[1:].astype(np.float64)
            ten = trajectory_stats.rising_reaches(drops, self.levels, weights, _TEN_POINTS)
            yield level_row(names.TEN_POINTS + ending, ten, n=images[0], **key)
            for index, label in enumerate(self.labels.tolist() if not ending else ()):
                class_id = self.answered.subject.classes[label].id
                base = float(self.by_class[index, 0, model])
                for side, level in enumerate(ats):
                    n = int(self.counts[index, side])
                    of_class = {"class_id": class_id, "at": level, "n": n, **key}
                    value = float(self.by_class[index, side, model])
                    share: stats.Estimate | float = value
                    if self.units is None:
                        share = stats.wilson_estimate(round(value * n), n)
                    yield estimate_row(names.ACCURACY, share, **of_class)
                    if side:
                        ends = self.drops_of_class[index, :, side, model].tolist()
                        lost = stats.Estimate(base - value, *map(_finite, ends))
                        yield estimate_row(names.DROP, lost, **of_class)


def _failures(
    answered: AllAnswers,
    shift: str,
    scenes: Trajectories,
) -> Iterator[ResultRow]:
    """Yield failure points by every definition, for the trajectories that a model gets right at the
    base."""
    levels = scenes.levels
    ats = list(map(names.at, levels.tolist()))
    present = scenes.present[:, 1:]
    right = scenes.right[:, 1:]
    everywhere = np.ones_like(present)
    known = present[:, :, None]
    runs_of = trajectory_stats.failure_runs
    first_runs = runs_of(present, right)
    runs = {
        "": first_runs,
        names.LASTING: runs_of(present, right, lasting=True),
        names.IF_LOST_FAIL: runs_of(everywhere, right & known),
        names.IF_LOST_HOLD: runs_of(everywhere, right | ~known),
        names.COMPLETE: first_runs,
    }
    again = trajectory_stats.recovered(present, right)
    for model, name in enumerate(answered.models):
        key = {"model": name, "group": shift}
        for ending, (first, last) in runs.items():
            counting = scenes.right_at_base[:, model]
            if ending == names.COMPLETE:
                counting = counting & scenes.complete
            if not counting.any():
                continue
            rng = stats.seeded_generator(answered.seed, "failed", shift)
            n = int(counting.sum())
            failing = first[counting, model], last[counting, model]
            unit_of = None
            units = None
            if scenes.units is not None:
                unit_of = scenes.units[counting]
                units = Units.of(unit_of)
            curve = trajectory_stats.failed_curve(*failing, len(levels), rng, units)
            for level, share in zip(ats, curve, strict=True):
                yield estimate_row(names.FAILED + ending, share, at=level, n=n, **key)
            median = trajectory_stats.rising_reaches(curve, levels, np.ones(len(levels)), _HALF)
            yield level_row(names.MEDIAN + ending, median, n=n, **key)
            if not ending:
                recovered = share_estimate(again[counting, model], unit_of)
                yield estimate_row(names.RECOVERED, recovered, n=n, **key)


def _compared(
    answered: AllAnswers,
    shift: str,
    scenes: Trajectories,
    curve: _Curve,
) -> Iterator[ResultRow]:
    """Yield comparisons between pairs of models: those best on the base, without models near
    chance."""
    levels = [index for index, group in enumerate(answered.subject.groups) if group.of == shift]
    able = answered.averaged(levels[-1])
    sound = np.flatnonzero(able)
    few = curve.units is not None and curve.units < FEWEST_IMAGES
    if not len(curve.labels) or len(sound) < 2 or few:
        return
    order = np.argsort(-curve.accuracy[0, sound], kind="stable")
    models = sound[order[: names.MOST_COMPARED]]
    called = [answered.models[model] for model in models]
    ats = ["0", *map(names.at, curve.levels.tolist())]
    first, other = np.triu_indices(len(models), 1)
    keys = []
    for pair in zip(first, other, strict=True):
        model, against = (called[index] for index in pair)
        keys.append({"model": model, "against": against, "group": shift})
    accuracy = curve.accuracy[:, models]
    drawn = curve.replicates[:, :, models]
    values = accuracy[:, first] - accuracy[:, other]
    # If no image separates two models, assume half a pair on each side.
    independent = curve.images
    if curve.units is not None:
        independent = np.full_like(independent, curve.units)
    least = 1 / independent[:, None]
    differences = drawn[:, :, first] - drawn[:, :, other]
    reach = stats.simultaneous_reach(values, differences, least)
    if curve.units is not None:
        reach = stats.student_reach(reach, curve.units - 1)
    beside = reach * np.maximum(np.nanstd(differences, axis=0), least)
    low = values - beside
    high = values + beside
    ends = np.stack([values, low, high], axis=-1)
    for side, level in enumerate(ats):
        n = int(curve.images[side])
        for key, of_pair in zip(keys, ends[side].tolist(), strict=True):
            estimate = stats.Estimate(*of_pair)
            yield estimate_row(names.DIFFERENCE, estimate, at=level, n=n, **key)
        least_ahead, most_ahead = np.zeros((2, len(models), len(models)))
        least_ahead[first, other] = low[side]
        least_ahead[other, first] = -high[side]
        most_ahead[first, other] = high[side]
        most_ahead[other, first] = -low[side]
        ranks = trajectory_stats.model_ranks(least_ahead, most_ahead, accuracy[side]).tolist()
        for name, rank in zip(called, ranks, strict=True):
            of_model = {"model": name, "group": shift, "at": level, "n": len(models)}
            yield estimate_row(names.RANK, stats.Estimate(*rank), **of_model)
    at_levels = scenes.right[:, 1:, models]
    runs = trajectory_stats.failure_runs(scenes.present[:, 1:], at_levels)
    at_base = scenes.right_at_base[:, models]
    scores = trajectory_stats.failure_scores(*runs, at_base, scenes.levels)
    apart = scores[:, first] - scores[:, other]
    units = np.arange(len(apart))
    if scenes.units is not None:
        units = np.unique(scenes.units, return_inverse=True)[1]
    # the models are swapped in all trajectories of a unit
    swapped = np.zeros((units.max() + 1, apart.shape[1]))
    np.add.at(swapped, units, np.nan_to_num(apart))
    p = trajectory_stats.swap_test(swapped, stats.seeded_generator(answered.seed, "swaps", shift))
    adjusted = stats.holm_adjusted(p)
    for key, difference, p_of_pair, q in zip(keys, apart.T, p, adjusted, strict=True):
        known = np.isfinite(difference)
        n = int(known.sum())
        mean = None
        if n:
            rng = stats.seeded_generator(answered.seed, "failure difference", shift)
            mean = stats.mean_over_units(difference[known], units[known], rng)
        of_test = {"test": names.SWAPS, "p": p_of_pair, "q": q}
        yield estimate_row(names.FAILURE_DIFFERENCE, mean, n=n, **of_test, **key)


def _draw(results: Results) -> list[Any]:
    """Return the curves, and the models in them with the colour of each."""
    sound = results.best_sound
    return [severity_figure(results, sound), lines_of_models(sound)]


@dataclass(frozen=True)
class Frame:
    """An image of a film strip, at the base ("0") or at a level.

    It has the models that are first wrong here, and whether the model of the strip is.
    """

    at: str
    image: str
    failing: tuple[str, ...]
    marked: bool


# The film strips of a shift: the shift, the model of the strips, and for each scene its class and
# frames.
FilmStrips = tuple[names.Severity, ModelFacts, list[tuple[str, tuple[Frame, ...]]]]


def pick_strips(answered: AllAnswers, results: Results) -> list[FilmStrips]:
    """Return film strips: one scene at its base and every level of a shift, and where models first
    fail.

    The model of the strips is the one with the middle median failure point. Its scenes are complete
    trajectories that it gets right at the base. They lie at the quartiles of its failure points.
    """
    subject = answered.subject
    groups = shifts_with_levels(subject)
    chosen = []
    shown: list[str] = []
    for severity in results.severity[:MOST_SHIFTS]:
        model = names.middle_model(severity, results)
        if model is None:
            continue
        of_model = answered.models.index(model.name)
        scenes = trajectories_of(answered, groups[severity.shift])
        scenes = scenes.only(scenes.complete & scenes.right_at_base[:, of_model])
        _, cells = trajectory_stats.failure_runs(scenes.present[:, 1:], scenes.right[:, 1:])
        # The place in the strip where each model fails first; 0 is the base.
        fails = np.where(scenes.right_at_base, cells + 1, 0)
        order = np.argsort(fails[:, of_model], kind="stable")
        if not len(order):
            continue
        quartiles = {len(order) * quartile // 4 for quartile in (1, 2, 3)}
        for scene in order[sorted(quartiles)].tolist():
            name = subject.classes[int(scenes.labels[scene])].name
            keys = [subject.keys[row] for row in scenes.rows[scene].tolist()]
            shown += keys
            chosen.append((severity, model, name, keys, fails[scene].tolist()))
    pictures = thumbnails(subject, shown)
    strips: dict[str, FilmStrips] = {}
    for severity, model, name, keys, fails in chosen:
        frames = []
        for side, (at, key) in enumerate(zip(severity.ats, keys, strict=True)):
            failing = []
            for other, fail in zip(results.models, fails, strict=True):
                if fail == side:
                    failing.append(other.short_name)
            marked = model.short_name in failing
            frames.append(Frame(at, pictures[key], tuple(failing), marked))
        _, _, scenes_of_shift = strips.setdefault(severity.shift, (severity, model, []))
        scenes_of_shift.append((name, tuple(frames)))
    return list(strips.values())


MEASURE = NestedMeasure(measure_severity, _draw, pick_strips)
