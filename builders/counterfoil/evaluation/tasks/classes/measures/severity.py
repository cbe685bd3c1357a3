"""Severity: accuracy against the level of a shift, the level that takes ten points, and where
trajectories fail.

A trajectory is a class and an index: its base image and its image at every level that the screen
accepted. Classes that are near chance, or that have too few base images, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from counterfoil import stats, trajectory_stats
from counterfoil.accuracy_stats import Drops, drawn_accuracies
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.figures import (
    MOST_SHIFTS,
    lines_of_models,
    severity_figure,
    thumbnails,
)
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
    graded: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for index, group in enumerate(subject.groups):
        if group.level is not None:
            graded[group.of].append((group.level, index))
    groups_of = {}
    for shift, levels in graded.items():
        groups_of[shift] = [index for _, index in sorted(levels)]
    return groups_of


def severity_levels(
    subject: Subject,
    groups: Sequence[int],
    lost: Sequence[int],
) -> tuple[names.SeverityLevel, ...]:
    """Return the levels of a shift, by their groups. lost: how many base images have no image
    there."""
    levels = []
    for index, missing in zip(groups, lost, strict=True):
        group = subject.groups[index]
        accepted = subject.shifts == index
        level = names.SeverityLevel(
            level=group.level or 0.0,
            group=group.name,
            accepted=int(accepted.sum()),
            lost=missing,
        )
        levels.append(level)
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
        groups = map(self.answered.group, self.groups)
        return np.array([group.level for group in groups], np.float64)

    @property
    def ats(self) -> list[str]:
        """The base and the levels as rows have them."""
        levels = self.levels.tolist()
        return ["0", *map(names.at, levels)]

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
        present = self.present[:, 1:]
        right = self.right[:, 1:]
        return trajectory_stats.failure_runs(present, right)

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
    base_labels = subject.labels[answered.rows(0)]
    near_chance = answered.near_chance.classes
    chosen = []
    for label in answered.group(groups[-1]).class_labels:
        base_images = np.count_nonzero(base_labels == label)
        class_id = subject.classes[label].id
        if base_images >= answered.min_images and class_id not in near_chance:
            chosen.append(label)
    places = []
    rows_of_places = []
    for column, group in enumerate((0, *groups)):
        of_group = answered.rows_of_labels(group, chosen)
        rows_of_places.append(of_group)
        places.append(np.full_like(of_group, column))
    rows = np.concatenate(rows_of_places)
    keys = np.stack([subject.labels, subject.indices])[:, rows]
    cells, scene = np.unique(keys, axis=1, return_inverse=True)
    labels, _ = cells
    rows_of_cells = np.full((len(labels), len(places)), -1)
    rows_of_cells[scene.ravel(), np.concatenate(places)] = rows
    right = answered.answers.correct[rows_of_cells]
    right[rows_of_cells < 0] = False
    units = answered.shared_units(rows_of_cells.max(axis=1))
    return Trajectories(
        answered,
        groups,
        labels,
        rows_of_cells,
        right,
        units,
    )


def measure_severity(
    answered: AllAnswers,
) -> tuple[tuple[names.Severity, ...], list[ResultRow]]:
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
        trajectories, *images = with_base.sum(axis=0).tolist()
        lost = [trajectories - count for count in images]
        left_out = np.setdiff1d(scenes.labels, curve.labels)
        names_left_out = [subject.classes[label].name for label in left_out]
        severity = names.Severity(
            shift=shift,
            realised=answered.group(groups[0]).realised,
            levels=severity_levels(subject, groups, lost),
            classes=len(curve.labels),
            left_out=tuple(names_left_out),
            trajectories=trajectories,
            complete=int(scenes.complete.sum()),
        )
        severities.append(severity)
        top = groups[-1]
        of_shift = [
            *curve.rows(drops=answered.drops(top)),
            *complete.rows(names.COMPLETE),
            *_failures(scenes),
            *_compared(curve),
        ]
        unable = answered.unable(top)
        rows += [row for row in of_shift if row.model not in unable]
    return tuple(severities), rows


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def level_row(measure: str, level: trajectory_stats.Reached, **others: Any) -> ResultRow:
    """Return the row of a level. A note says if the level, or the upper end of its interval, is not
    reached."""
    value = _finite(level.value)
    low = _finite(level.low)
    high = _finite(level.high)
    note = ""
    if high is None:
        note = names.END_NOT_REACHED
    if value is None:
        note = names.NOT_REACHED
    return ResultRow(
        measure,
        value=value,
        low=low,
        high=high,
        note=note,
        **others,
    )


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
        _, *shape = scenes.right.shape
        shared = answered.subject.units
        labels = []
        by_class = []
        counts = []
        drop_ends = []
        of_units: list[list[UnitValues]] = []
        # Over classes: the sum of draws, how many classes each draw has, and the sums of squares
        # of reaches.
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
            units = of_label.units
            if units is not None:
                of_units.append([(units[present], right[present]) for present, right in places])
                drop_ends.append(np.full((2, *shape), np.nan))
                continue
            every = np.ones(len(of_label.labels), bool)
            class_id = answered.subject.classes[label].id
            rng = stats.seeded_generator(answered.seed, "severity", scenes.shift, class_id)
            drawn = np.stack(drawn_accuracies(places, every, rng, stats.REPLICATES), axis=1)
            usable = np.isfinite(drawn).all(axis=(1, 2), keepdims=True)
            total += np.where(usable, drawn, 0.0)
            counted += usable
            of_accuracies, of_drops, of_class = _reaches(places, accuracy, images)
            squares += np.square(of_accuracies)
            squares_of_drops += np.square(of_drops)
            drop = accuracy[0] - accuracy
            drawn_drop = drawn[:, :1] - drawn
            drop_ends.append(stats.percentile_ends(drop, drawn_drop, of_class))
        counted[counted == 0] = np.nan
        replicates = total / counted
        count = None
        if scenes.units is not None:
            count = len(np.unique(scenes.units[np.isin(scenes.labels, labels)]))
        if shared is not None and of_units:
            drawn_places = [shared.average(of_place) for of_place in zip(*of_units, strict=True)]
            replicates = np.stack(drawn_places, axis=1)
        classes = max(1, len(labels))
        return cls(
            scenes=scenes,
            labels=np.array(labels, np.int64),
            by_class=np.array(by_class).reshape(-1, *shape),
            counts=np.array(counts, np.int64).reshape(-1, shape[0]),
            replicates=replicates,
            agreed=np.sqrt(squares) / classes,
            agreed_drops=np.sqrt(squares_of_drops) / classes,
            drops_of_class=np.array(drop_ends).reshape(-1, 2, *shape),
            units=count,
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
        classes = scenes.answered.subject.classes
        class_ids = {classes[label].id for label in self.labels}
        if drops is not None and set(drops.classes) != class_ids:
            drops = None
        accuracy = self.accuracy
        lost = accuracy[0] - accuracy
        drawn_drops = self.replicates[:, :1] - self.replicates
        images = self.images.tolist()
        weights = self.images[1:].astype(np.float64)
        top = len(scenes.levels)
        for model, name in enumerate(scenes.answered.models):
            key = {"model": name, "group": scenes.shift}
            drop_rows = []
            curve = []
            for column, at in enumerate(scenes.ats):
                index = (..., column, model)
                of_level = {
                    **key,
                    "at": at,
                    "n": images[column],
                    "units": self.units,
                }
                if not ending:
                    share = interval_of_draws(
                        float(accuracy[column, model]),
                        self.replicates[index],
                        tuple(self.agreed[index]),
                        0.0,
                        self.units,
                    )
                    yield estimate_row(names.ACCURACY, share, **of_level)
                if not column:
                    continue
                if drops is not None and column == top:
                    drop = drops.interval(model)
                else:
                    drop = interval_of_draws(
                        float(lost[column, model]),
                        drawn_drops[index],
                        tuple(self.agreed_drops[index]),
                        units=self.units,
                    )
                curve.append(drop)
                row = estimate_row(names.DROP + ending, drop, **of_level)
                drop_rows.append(row)
            yield from drop_rows
            ten = trajectory_stats.rising_reaches(curve, scenes.levels, weights, _TEN_POINTS)
            yield level_row(names.TEN_POINTS + ending, ten, n=images[0], **key)
            if not ending:
                yield from self._class_rows(model, key)

    def _class_rows(self, model: int, key: Mapping[str, str]) -> Iterator[ResultRow]:
        """Yield a model's accuracies and drops in each class."""
        classes = self.scenes.answered.subject.classes
        for index, label in enumerate(self.labels.tolist()):
            values = self.by_class[index, :, model].tolist()
            drop_ends = self.drops_of_class[index, :, :, model].T
            for column, at in enumerate(self.scenes.ats):
                value = values[column]
                n = int(self.counts[index, column])
                of_class = {
                    "class_id": classes[label].id,
                    "at": at,
                    "n": n,
                    **key,
                }
                share: stats.Estimate | float = value
                if self.units is None:
                    share = stats.wilson_estimate(round(value * n), n)
                yield estimate_row(names.ACCURACY, share, **of_class)
                if column:
                    low, high = map(_finite, drop_ends[column].tolist())
                    lost = values[0] - value
                    drop = stats.Estimate(lost, low, high)
                    yield estimate_row(names.DROP, drop, **of_class)


def _reaches(
    places: Sequence[tuple[Bools, Bools]],
    accuracy: Floats,
    images: Ints,
) -> tuple[Floats, Floats, Floats]:
    """Return how much wider intervals of a class are because its images agree, (2, K + 1, m)
    each: of accuracies, of drops as the average has them, and of the class's own drops.

    places: which images are present (n,), and right (n, m), at the base and at every level.
    """
    base = accuracy[0], int(images[0])
    base_present, base_right = places[0]
    of_accuracies = []
    of_drops = []
    of_class = []
    for column, (present, right) in enumerate(places):
        both = base_present & present
        first = base_right[both]
        last = right[both]
        level = accuracy[column], int(images[column])
        of_accuracies.append(stats.distances_of_share(*level))
        reach = stats.distances_of_difference(base, level, first, last)
        of_drops.append(reach)
        if len(first):
            # If images are missing at a level and all pairs agree, use at least the interval of
            # the pairs.
            of_first = first.mean(axis=0), len(first)
            of_last = last.mean(axis=0), len(last)
            of_pairs = stats.distances_of_difference(of_first, of_last, first, last)
            reach = np.maximum(reach, of_pairs)
        of_class.append(reach)
    return (
        np.stack(of_accuracies, axis=1),
        np.stack(of_drops, axis=1),
        np.stack(of_class, axis=1),
    )


def _failures(scenes: Trajectories) -> Iterator[ResultRow]:
    """Yield failure points by every definition, for the trajectories that a model gets right at the
    base."""
    answered = scenes.answered
    levels = scenes.levels
    equal_weights = np.ones(len(levels))
    ats = scenes.ats[1:]
    present = scenes.present[:, 1:]
    right = scenes.right[:, 1:]
    everywhere = np.ones_like(present)
    # Images that are missing count as wrong, or as right.
    if_held = right | ~present[:, :, None]
    runs_of = trajectory_stats.failure_runs
    first_runs = scenes.runs
    runs = {
        "": first_runs,
        names.LASTING: runs_of(present, right, lasting=True),
        names.IF_LOST_FAIL: runs_of(everywhere, right),
        names.IF_LOST_HOLD: runs_of(everywhere, if_held),
        names.COMPLETE: first_runs,
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
            for at, share in zip(ats, curve, strict=True):
                yield estimate_row(
                    names.FAILED + ending,
                    share,
                    at=at,
                    n=n,
                    **key,
                )
            median = trajectory_stats.rising_reaches(curve, levels, equal_weights, _HALF)
            yield level_row(names.MEDIAN + ending, median, n=n, **key)
            if not ending:
                recovered = share_estimate(again[counting, model], unit_of)
                yield estimate_row(names.RECOVERED, recovered, n=n, **key)


def _compared(curve: _Curve) -> Iterator[ResultRow]:
    """Yield comparisons between pairs of models: those best on the base, without models near
    chance."""
    scenes = curve.scenes
    answered = scenes.answered
    averaged = answered.averaged(scenes.groups[-1])
    sound = np.flatnonzero(averaged)
    few = curve.units is not None and curve.units < FEWEST_IMAGES
    if not len(curve.labels) or len(sound) < 2 or few:
        return
    on_base = curve.accuracy[0, sound]
    order = np.argsort(-on_base, kind="stable")
    models = sound[order[: names.MOST_COMPARED]]
    called = [answered.models[model] for model in models]
    keys = []
    for model, against in combinations(called, 2):
        keys.append({"model": model, "against": against, "group": scenes.shift})
    yield from _level_differences(curve, models, keys)
    yield from _failure_differences(scenes, models, keys)


def _level_differences(
    curve: _Curve,
    models: Ints,
    keys: Sequence[Mapping[str, str]],
) -> Iterator[ResultRow]:
    """Yield at each level by how much one model of a pair is more accurate, and each model's rank.

    keys: the key of each pair, in the order of `np.triu_indices`. Intervals hold for all pairs and
    levels at once.
    """
    scenes = curve.scenes
    count = len(models)
    first, other = np.triu_indices(count, 1)
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
    error = np.nanstd(differences, axis=0)
    error = np.maximum(error, least)
    low = values - reach * error
    high = values + reach * error
    for column, at in enumerate(scenes.ats):
        n = int(curve.images[column])
        for pair, key in enumerate(keys):
            ends = values[column, pair], low[column, pair], high[column, pair]
            difference = stats.Estimate(*map(float, ends))
            yield estimate_row(
                names.DIFFERENCE,
                difference,
                at=at,
                n=n,
                **key,
            )
        least_ahead, most_ahead = np.zeros((2, count, count))
        least_ahead[first, other] = low[column]
        least_ahead[other, first] = -high[column]
        most_ahead[first, other] = high[column]
        most_ahead[other, first] = -low[column]
        ranks = trajectory_stats.model_ranks(least_ahead, most_ahead, accuracy[column])
        for model, of_model in zip(models, ranks.tolist(), strict=True):
            yield estimate_row(
                names.RANK,
                stats.Estimate(*of_model),
                model=scenes.answered.models[model],
                group=scenes.shift,
                at=at,
                n=count,
            )


def _failure_differences(
    scenes: Trajectories,
    models: Ints,
    keys: Sequence[Mapping[str, str]],
) -> Iterator[ResultRow]:
    """Yield how far the failure points of a pair's models are apart, with a test that swaps the two
    models."""
    first, other = np.triu_indices(len(models), 1)
    seed = scenes.answered.seed
    shift = scenes.shift
    runs_first, runs_last = scenes.runs
    scores = trajectory_stats.failure_scores(
        runs_first[:, models],
        runs_last[:, models],
        scenes.right_at_base[:, models],
        scenes.levels,
    )
    apart = scores[:, first] - scores[:, other]
    units = np.arange(len(apart))
    if scenes.units is not None:
        units = Units.of(scenes.units).of_image
    # The models are swapped in all trajectories of a unit.
    of_units = np.zeros((units.max() + 1, len(keys)))
    np.add.at(of_units, units, np.nan_to_num(apart))
    rng = stats.seeded_generator(seed, "swaps", shift)
    p = trajectory_stats.swap_test(of_units, rng)
    adjusted = stats.holm_adjusted(p)
    for pair, key in enumerate(keys):
        difference = apart[:, pair]
        known = np.isfinite(difference)
        n = int(known.sum())
        mean = None
        if n:
            rng = stats.seeded_generator(seed, "failure difference", shift)
            mean = stats.mean_over_units(difference[known], units[known], rng)
        yield estimate_row(
            names.FAILURE_DIFFERENCE,
            mean,
            n=n,
            test=names.SWAPS,
            p=p[pair],
            q=adjusted[pair],
            **key,
        )


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
        right_at_base = scenes.right_at_base[:, of_model]
        scenes = scenes.only(scenes.complete & right_at_base)
        _, cells = scenes.runs
        # The place in the strip where each model fails first; 0 is the base.
        fails = np.where(scenes.right_at_base, cells + 1, 0)
        order = np.argsort(fails[:, of_model], kind="stable")
        if not len(order):
            continue
        count = len(order)
        quartiles = {count // 4, count // 2, count * 3 // 4}
        for scene in order[sorted(quartiles)]:
            cls = subject.classes[scenes.labels[scene]]
            keys = [subject.keys[row] for row in scenes.rows[scene]]
            shown += keys
            chosen.append((severity, model, cls.name, keys, fails[scene]))
    pictures = thumbnails(subject, shown)
    strips: dict[str, FilmStrips] = {}
    for severity, model, name, keys, fails in chosen:
        frames = []
        for column, at in enumerate(severity.ats):
            failing = []
            for other, fail in zip(results.models, fails, strict=True):
                if fail == column:
                    failing.append(other.short_name)
            picture = pictures[keys[column]]
            marked = model.short_name in failing
            frames.append(Frame(at, picture, tuple(failing), marked))
        of_shift = strips.setdefault(severity.shift, (severity, model, []))
        *_, shown_scenes = of_shift
        shown_scenes.append((name, tuple(frames)))
    return list(strips.values())


MEASURE = NestedMeasure(measure_severity, _draw, pick_strips)
