"""Severity: accuracy against the level of a shift, the level that takes ten points, and where
trajectories fail.

A trajectory is a class and an index: its base image and its image at every level that the screen
accepted. Classes that are near chance, or that have too few base images, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    places, the base first."""

    answered: AllAnswers
    """The answers that they are of."""
    groups: Sequence[int]
    """The group of each level, mildest first."""
    labels: Ints
    """(n,), their classes."""
    rows: Ints
    """(n, K + 1), the row of the image at each place, -1 if there is no image."""
    right: Bools
    """(n, K + 1, models), false if there is no image."""
    units: Ints | None
    """(n,) of the input dataset, if images share any."""

    @property
    def shift(self) -> str:
        return self.answered.group(self.groups[0]).of

    @property
    def levels(self) -> Floats:
        """(K,), mildest first."""
        levels = [self.answered.group(group).level for group in self.groups]
        return np.array(levels, dtype=np.float64)

    @property
    def ats(self) -> list[str]:
        """The base and the levels as rows have them."""
        return ["0", *map(names.at, self.levels.tolist())]

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

    @property
    def runs(self) -> tuple[Ints, Ints]:
        """The first and the last level of the run in which each model fails, (n, models) each."""
        return trajectory_stats.failure_runs(self.present[:, 1:], self.right[:, 1:])

    def only(self, which: Bools) -> Trajectories:
        units = None
        if self.units is not None:
            units = self.units[which]
        return replace(
            self,
            labels=self.labels[which],
            rows=self.rows[which],
            right=self.right[which],
            units=units,
        )


def trajectories_of(answered: AllAnswers, groups: Sequence[int]) -> Trajectories:
    """Return the trajectories of a shift's planned classes that have enough base images and are not
    near chance."""
    subject = answered.subject
    base = np.bincount(subject.labels[answered.rows(0)], minlength=len(subject.classes))
    chosen = np.zeros(len(subject.classes), dtype=bool)
    for label in answered.group(groups[-1]).class_labels:
        guessed = subject.classes[label].id in answered.near_chance.classes
        chosen[label] = base[label] >= answered.min_images and not guessed
    places = len(groups) + 1
    place_of = np.full(len(subject.groups), -1)
    place_of[[0, *groups]] = np.arange(places)
    usable = answered.answers.readable & chosen[subject.labels]
    rows = np.flatnonzero(usable & (place_of[subject.shifts] >= 0))
    keys = np.stack([subject.labels[rows], subject.indices[rows]], axis=1)
    cells, scene = np.unique(keys, axis=0, return_inverse=True)
    rows_of_cells = np.full((len(cells), places), -1, dtype=np.int64)
    rows_of_cells[scene.ravel(), place_of[subject.shifts[rows]]] = rows
    right = answered.answers.correct[rows_of_cells]
    right[rows_of_cells < 0] = False
    units = answered.shared_units(rows_of_cells.max(axis=1))
    return Trajectories(answered, groups, cells[:, 0], rows_of_cells, right, units)


def measure_severity(answered: AllAnswers) -> tuple[tuple[names.Severity, ...], list[ResultRow]]:
    """Return a `Severity` for each shift with levels, in the dataset's order, and its rows."""
    subject = answered.subject
    severities: list[names.Severity] = []
    rows: list[ResultRow] = []
    if not subject.base:
        return (), rows
    for shift, groups in shifts_with_levels(subject).items():
        scenes = trajectories_of(answered, groups)
        curve = _Curve.of(scenes)
        complete = _Curve.of(scenes.only(scenes.complete))
        with_base = scenes.present[scenes.present[:, 0]]
        lost = len(with_base) - with_base[:, 1:].sum(axis=0)
        left_out = np.setdiff1d(scenes.labels, curve.labels).tolist()
        severity = names.Severity(
            shift=shift,
            realised=answered.group(groups[0]).realised,
            levels=severity_levels(subject, groups, lost.tolist()),
            classes=len(curve.labels),
            left_out=tuple(subject.classes[label].name for label in left_out),
            trajectories=len(with_base),
            complete=int(scenes.complete.sum()),
        )
        severities.append(severity)
        of_shift = [
            *curve.rows(drops=answered.drops(groups[-1])),
            *complete.rows(names.COMPLETE),
            *_failures(scenes),
            *_compared(scenes, curve),
        ]
        unable = answered.unable(groups[-1])
        rows += [row for row in of_shift if row.model not in unable]
    return tuple(severities), rows


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def level_row(measure: str, level: trajectory_stats.Reached, **others: Any) -> ResultRow:
    """Return the row of a level. A note says if the level, or the upper end of its interval, is not
    reached."""
    value = _finite(level.value)
    high = _finite(level.high)
    note = ""
    if high is None:
        note = names.END_NOT_REACHED
    if value is None:
        note = names.NOT_REACHED
    low = _finite(level.low)
    return ResultRow(measure, value=value, low=low, high=high, note=note, **others)


@dataclass(frozen=True)
class _Curve:
    """Accuracy of m models at the base and at K levels, for k classes and averaged over them."""

    scenes: Trajectories
    """The trajectories that it is computed from."""
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
    def of(cls, scenes: Trajectories) -> _Curve:
        """Average over the classes with enough images at the base and at every level."""
        answered = scenes.answered
        shape = len(scenes.groups) + 1, len(answered.models)
        shared = answered.subject.units
        labels = []
        by_class = []
        counts = []
        drop_ends = []
        right_of_units: list[list[UnitValues]] = [[] for _ in range(shape[0])]
        total = np.zeros((stats.REPLICATES, *shape))
        counted = np.zeros((stats.REPLICATES, 1, 1))
        squares = np.zeros((2, *shape))
        squares_of_drops = np.zeros((2, *shape))
        for label in np.unique(scenes.labels).tolist():
            of_label = scenes.only(scenes.labels == label)
            images = of_label.present.sum(axis=0)
            if images.min() < answered.min_images:
                continue
            accuracy = of_label.right.sum(axis=0) / images[:, None]
            labels.append(label)
            by_class.append(accuracy)
            counts.append(images)
            right_at = of_label.right.swapaxes(0, 1)
            places = list(zip(of_label.present.T, right_at, strict=True))
            if of_label.units is not None:
                for of_place, (present, right) in zip(right_of_units, places, strict=True):
                    of_place.append((of_label.units[present], right[present]))
                drop_ends.append(np.full((2, *shape), np.nan))
                continue
            every = np.ones(len(of_label.labels), dtype=bool)
            class_id = answered.subject.classes[label].id
            rng = stats.seeded_generator(answered.seed, "severity", scenes.shift, class_id)
            drawn = np.stack(drawn_accuracies(places, every, rng, stats.REPLICATES), axis=1)
            usable = ~np.isnan(drawn).any(axis=(1, 2), keepdims=True)
            total += np.where(usable, drawn, 0.0)
            counted += usable
            beside = np.zeros((2, *shape))
            base = accuracy[0], int(images[0])
            base_present, base_right = places[0]
            for place, (present, right) in enumerate(places):
                both = base_present & present
                first = base_right[both]
                last = right[both]
                level = accuracy[place], int(images[place])
                squares[:, place] += np.square(stats.distances_of_share(*level))
                reach = stats.distances_of_difference(base, level, first, last)
                squares_of_drops[:, place] += np.square(reach)
                beside[:, place] = reach
                pairs = len(first)
                if pairs:
                    # If images are missing at a level and all pairs agree, use at least the
                    # interval of the pairs.
                    base_of_pairs = first.mean(axis=0), pairs
                    level_of_pairs = last.mean(axis=0), pairs
                    reach = stats.distances_of_difference(
                        base_of_pairs, level_of_pairs, first, last
                    )
                    beside[:, place] = np.maximum(beside[:, place], reach)
            drawn_drop = drawn[:, :1] - drawn
            drop_ends.append(stats.percentile_ends(accuracy[0] - accuracy, drawn_drop, beside))
        counted[counted == 0] = np.nan
        replicates = total / counted
        units = None
        if scenes.units is not None:
            averaged = np.isin(scenes.labels, labels)
            units = len(np.unique(scenes.units[averaged]))
        if shared is not None and labels:
            replicates = np.stack([shared.average(place) for place in right_of_units], axis=1)
        classes = max(1, len(labels))
        return cls(
            scenes=scenes,
            labels=np.array(labels, dtype=np.int64),
            by_class=np.array(by_class).reshape(-1, *shape),
            counts=np.array(counts, dtype=np.int64).reshape(-1, shape[0]),
            replicates=replicates,
            agreed=np.sqrt(squares) / classes,
            agreed_drops=np.sqrt(squares_of_drops) / classes,
            drops_of_class=np.array(drop_ends).reshape(-1, 2, *shape),
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

    def rows(self, ending: str = "", drops: Drops | None = None) -> Iterator[ResultRow]:
        """Yield rows of accuracies, of drops and of the level that takes ten points; with an
        ending, no accuracies.

        drops: the drops at the highest level that the drop measure computed. They are reused if
        they average over the same classes.
        """
        if not len(self.labels):
            return
        scenes = self.scenes
        classes = [scenes.answered.subject.classes[label].id for label in self.labels]
        if drops is not None and set(drops.classes) != set(classes):
            drops = None
        accuracy = self.accuracy
        lost = accuracy[0] - accuracy
        drawn_drops = self.replicates[:, :1] - self.replicates
        images = self.images.tolist()
        top = len(scenes.levels)
        for model, name in enumerate(scenes.answered.models):
            key = {"model": name, "group": scenes.shift}
            drop_rows = []
            curve = []
            for place, at in enumerate(scenes.ats):
                index = (..., place, model)
                of_level = {**key, "at": at, "n": images[place], "units": self.units}
                if not ending:
                    value = float(accuracy[place, model])
                    below, above = self.agreed[index].tolist()
                    drawn = self.replicates[index]
                    share = interval_of_draws(value, drawn, (below, above), 0.0, self.units)
                    yield estimate_row(names.ACCURACY, share, **of_level)
                if not place:
                    continue
                value = float(lost[place, model])
                below, above = self.agreed_drops[index].tolist()
                drop = interval_of_draws(
                    value, drawn_drops[index], (below, above), units=self.units
                )
                if drops is not None and place == top:
                    drop = drops.interval(model)
                curve.append(drop)
                drop_rows.append(estimate_row(names.DROP + ending, drop, **of_level))
            yield from drop_rows
            weights = self.images[1:].astype(np.float64)
            ten = trajectory_stats.rising_reaches(curve, scenes.levels, weights, _TEN_POINTS)
            yield level_row(names.TEN_POINTS + ending, ten, n=images[0], **key)
            if not ending:
                yield from self._class_rows(model, key)

    def _class_rows(self, model: int, key: Mapping[str, str]) -> Iterator[ResultRow]:
        """Yield a model's accuracies and drops in each class."""
        classes = self.scenes.answered.subject.classes
        for index, label in enumerate(self.labels.tolist()):
            values = self.by_class[index, :, model].tolist()
            counts = self.counts[index].tolist()
            drop_ends = self.drops_of_class[index, :, :, model].T.tolist()
            for place, (at, value, n) in enumerate(
                zip(self.scenes.ats, values, counts, strict=True)
            ):
                of_class = {"class_id": classes[label].id, "at": at, "n": n, **key}
                share: stats.Estimate | float = value
                if self.units is None:
                    share = stats.wilson_estimate(round(value * n), n)
                yield estimate_row(names.ACCURACY, share, **of_class)
                if place:
                    ends = map(_finite, drop_ends[place])
                    drop = stats.Estimate(values[0] - value, *ends)
                    yield estimate_row(names.DROP, drop, **of_class)


def _failures(scenes: Trajectories) -> Iterator[ResultRow]:
    """Yield failure points by every definition, for the trajectories that a model gets right at the
    base."""
    answered = scenes.answered
    levels = scenes.levels
    present = scenes.present[:, 1:]
    right = scenes.right[:, 1:]
    everywhere = np.ones_like(present)
    # Images that are missing count as wrong, or as right.
    if_held = right | ~present[:, :, None]
    runs_of = trajectory_stats.failure_runs
    runs = {
        "": scenes.runs,
        names.LASTING: runs_of(present, right, lasting=True),
        names.IF_LOST_FAIL: runs_of(everywhere, right),
        names.IF_LOST_HOLD: runs_of(everywhere, if_held),
        names.COMPLETE: scenes.runs,
    }
    again = trajectory_stats.recovered(present, right)
    for model, name in enumerate(answered.models):
        key = {"model": name, "group": scenes.shift}
        for ending, (first, last) in runs.items():
            counting = scenes.right_at_base[:, model]
            if ending == names.COMPLETE:
                counting = counting & scenes.complete
            n = int(counting.sum())
            if not n:
                continue
            unit_of = None
            units = None
            if scenes.units is not None:
                unit_of = scenes.units[counting]
                units = Units.of(unit_of)
            rng = stats.seeded_generator(answered.seed, "failed", scenes.shift)
            failing = first[counting, model], last[counting, model]
            curve = trajectory_stats.failed_curve(*failing, len(levels), rng, units)
            for at, share in zip(scenes.ats[1:], curve, strict=True):
                yield estimate_row(names.FAILED + ending, share, at=at, n=n, **key)
            median = trajectory_stats.rising_reaches(curve, levels, np.ones(len(levels)), _HALF)
            yield level_row(names.MEDIAN + ending, median, n=n, **key)
            if not ending:
                recovered = share_estimate(again[counting, model], unit_of)
                yield estimate_row(names.RECOVERED, recovered, n=n, **key)


def _compared(scenes: Trajectories, curve: _Curve) -> Iterator[ResultRow]:
    """Yield comparisons between pairs of models: those best on the base, without models near
    chance."""
    answered = scenes.answered
    shift = scenes.shift
    sound = np.flatnonzero(answered.averaged(scenes.groups[-1]))
    few = curve.units is not None and curve.units < FEWEST_IMAGES
    if not len(curve.labels) or len(sound) < 2 or few:
        return
    order = np.argsort(-curve.accuracy[0, sound], kind="stable")
    models = sound[order[: names.MOST_COMPARED]]
    called = [answered.models[model] for model in models]
    first, other = np.triu_indices(len(models), 1)
    keys = []
    for model, against in zip(first, other, strict=True):
        keys.append({"model": called[model], "against": called[against], "group": shift})
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
    for place, at in enumerate(scenes.ats):
        n = int(curve.images[place])
        for key, of_pair in zip(keys, ends[place].tolist(), strict=True):
            estimate = stats.Estimate(*of_pair)
            yield estimate_row(names.DIFFERENCE, estimate, at=at, n=n, **key)
        least_ahead, most_ahead = np.zeros((2, len(models), len(models)))
        least_ahead[first, other] = low[place]
        least_ahead[other, first] = -high[place]
        most_ahead[first, other] = high[place]
        most_ahead[other, first] = -low[place]
        ranks = trajectory_stats.model_ranks(least_ahead, most_ahead, accuracy[place]).tolist()
        for name, rank in zip(called, ranks, strict=True):
            of_model = {"model": name, "group": shift, "at": at, "n": len(models)}
            yield estimate_row(names.RANK, stats.Estimate(*rank), **of_model)
    runs = [ends_of_runs[:, models] for ends_of_runs in scenes.runs]
    at_base = scenes.right_at_base[:, models]
    scores = trajectory_stats.failure_scores(*runs, at_base, scenes.levels)
    apart = scores[:, first] - scores[:, other]
    units = np.arange(len(apart))
    if scenes.units is not None:
        units = Units.of(scenes.units).of_image
    # the models are swapped in all trajectories of a unit
    swapped = np.zeros((units.max() + 1, len(keys)))
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
        _, cells = scenes.runs
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
