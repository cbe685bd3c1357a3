"""The numbers of a robustness report, on arrays: accuracies, drops, intervals, slopes, near chance.
All are fractions.

The images of one class and one candidate index form a unit. With paired noise, the base image and
the shifted image of a unit share their noise, so the bootstrap draws them together. If the input
dataset names units (videos, patients), these are drawn, over all classes at once. Sources: Vendrow
2023, section 6 and Appendix A.5.

A model is *near chance* if Wilson's lower end of its class-averaged base accuracy is less than a
tenth of the way from chance to 1. A class is near chance if the same holds for its base accuracy,
averaged over the models that are not near chance. Such models and classes can hardly drop further,
so averages, impacts and slopes leave them out. This is decided once, on the base, for all groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.resampled_stats import Drawn, Units, UnitValues, interval_of_draws
from counterfoil.stats import (
    REPLICATES,
    Bounds,
    EndDistances,
    Estimate,
    bootstrap_weights,
    chance_line,
    distances_of_difference,
    distances_of_share,
    distances_with_correlation,
    least_squares_line,
    mover_distances,
    seeded_generator,
    wilson_intervals,
    wilson_reach,
)

# The largest ratio of shifted to base accuracy in the interval of a relative drop, if the base may
# be 0.
_LARGEST_RATIO = 100.0
_DRAWN_AT_ONCE = 1 << 24  # replicates times units held in memory at once: 400 MB of counts
# No line is fitted through fewer models than this.
FEWEST_MODELS_FOR_A_SLOPE = 5
_NO_SPREAD = 1e-12  # in squared probits: below this, base accuracies differ by rounding only


@dataclass(frozen=True)
class ClassUnits:
    """The images of one class on the base and under one shift, by unit. A unit is one candidate
    index."""

    class_id: str
    base_present: Bools
    """(n,), whether the unit's base image was accepted and could be read."""
    base_correct: Bools
    """(n, models), whether the model is right about it; rows of absent images are ignored."""
    shift_present: Bools
    shift_correct: Bools
    sources: tuple[Units, Ints, Ints] | None = None
    """The units of the input dataset, if it names any, and those of base images and of shifted
    images, (n,) each."""

    @property
    def counts(self) -> tuple[int, int]:
        base = self.base_present.sum()
        shift = self.shift_present.sum()
        return int(base), int(shift)

    @property
    def base_accuracy(self) -> Floats:
        """Each model's share of right answers to the base images, (models,); NaN without images."""
        return _share_right(self.base_present, self.base_correct)

    @property
    def shift_accuracy(self) -> Floats:
        return _share_right(self.shift_present, self.shift_correct)

    def pairs(self) -> ClassUnits:
        both = self.base_present & self.shift_present
        return replace(self, base_present=both, shift_present=both)

    def by_source(self) -> tuple[UnitValues, UnitValues]:
        """Return the units of the input dataset and the right answers of base images, and of
        shifted images."""
        assert self.sources is not None
        _, base_units, shift_units = self.sources
        base = self.base_present
        shift = self.shift_present
        of_base = (base_units[base], self.base_correct[base])
        of_shift = (shift_units[shift], self.shift_correct[shift])
        return of_base, of_shift


@dataclass(frozen=True)
class Drops:
    """The drops of all models, as arrays (models,) and (replicates, models)."""

    base_accuracy: Floats
    """Accuracy on the base, averaged over classes."""
    accuracy: Floats
    """Accuracy under the shift, averaged over the same classes."""
    drop: Floats
    """The first less the second."""
    replicates: Floats
    """The drop in each replicate."""
    base_replicates: Floats
    """The base accuracy in the same replicates."""
    classes: Mapping[str, Estimate | None]
    """Each class's drop averaged over these models; None if there is no such model."""
    averaged: Bools
    """(models,) bool, the models to average over."""
    agreed: EndDistances
    """What the classes whose images are all right or all wrong add to the ends of the drop's
    interval."""
    units: int | None = None
    """How many units of the input dataset are drawn; None if images are drawn."""

    def interval(self, model: int) -> Estimate:
        drop = float(self.drop[model])
        drawn = self.replicates[:, model]
        beside = _beside(self.agreed, model)
        return interval_of_draws(drop, drawn, beside, units=self.units)

    def impact(self) -> Estimate | None:
        """Return the absolute impact: the drop averaged over the `averaged` models (Vendrow 2023,
        section 6).

        None if there are no such models.
        """
        return _impact(self.drop, self.replicates, self.agreed, self.averaged, self.units)


@dataclass(frozen=True)
class Averages:
    """The class-averaged accuracy of every model, (models,), and its bootstrap replicates,
    (replicates, models)."""

    accuracy: Floats
    replicates: Floats
    agreed: EndDistances
    units: int | None = None

    def interval(self, model: int) -> Estimate:
        accuracy = float(self.accuracy[model])
        drawn = self.replicates[:, model]
        beside = _beside(self.agreed, model)
        return interval_of_draws(accuracy, drawn, beside, 0.0, self.units)


def _beside(agreed: EndDistances, model: int) -> Bounds:
    below, above = agreed
    return float(below[model]), float(above[model])


@dataclass(frozen=True)
class Slope:
    """The least-squares line `accuracy = slope * base accuracy + intercept` through one point per
    model."""

    slope: float
    low: float
    high: float
    intercept: float
    r_squared: float
    n_models: int


def _share_right(present: Bools, correct: Bools) -> Floats:
    """Return each model's share of right answers to the present images, (models,), from (n,) and
    (n, models)."""
    if not present.any():
        return np.full(correct.shape[1], np.nan)
    return correct[present].mean(axis=0)


def image_counts(classes: Sequence[ClassUnits]) -> tuple[int, int]:
    """Return how many base images and shifted images the classes have together."""
    base = sum(cls.counts[0] for cls in classes)
    shifted = sum(cls.counts[1] for cls in classes)
    return base, shifted


def classes_with_images(
    classes: Sequence[ClassUnits],
    min_images: int,
) -> list[ClassUnits]:
    return [cls for cls in classes if min(cls.counts) >= min_images]


def drops_of_classes(
    classes: Sequence[ClassUnits],
    *,
    paired: bool,
    seed: int,
    salt: str,
    replicates: int = REPLICATES,
    averaged: Bools | None = None,
) -> Drops:
    """Return class-averaged accuracies on base and shift, their difference, and the bootstrap
    replicates of it.

    Each replicate draws the units of every class with replacement, as many as the class has. If
    `paired`, a unit's base image and its shifted image are drawn together; otherwise they are drawn
    separately. The draws depend only on `seed`, `salt` (the shift's name) and the class id. If a
    draw of a class has no base image or no shifted image, the replicate leaves the class out.
    averaged (models,): the models to average over, by default all. If the classes name units of the
    input dataset, these are drawn.
    """
    if not classes:
        raise ValueError("no class to average over")
    models = classes[0].base_correct.shape[1]
    if averaged is None:
        averaged = np.ones(models, dtype=bool)
    sources = classes[0].sources
    if sources is not None:
        return _drops_by_source(classes, sources[0], averaged)
    base = np.zeros(models)
    shift = np.zeros(models)
    total = np.zeros((replicates, models))
    base_total = np.zeros((replicates, models))
    counted = np.zeros((replicates, 1))
    squares = np.zeros((2, models))
    per_class: dict[str, Estimate | None] = {}
    for cls in classes:
        base_of_class = cls.base_accuracy
        shift_of_class = cls.shift_accuracy
        base += base_of_class
        shift += shift_of_class
        rng = seeded_generator(seed, salt, cls.class_id)
        base_at, shift_at = _drawn_sides(cls, rng, replicates, paired=paired)
        difference = base_at - shift_at
        unknown = np.isnan(difference)
        usable = ~unknown.any(axis=1, keepdims=True)
        total += np.where(usable, difference, 0.0)
        base_total += np.where(usable, base_at, 0.0)
        counted += usable
        both = cls.base_present & cls.shift_present
        if not paired:
            both = np.zeros_like(both)
        base_images, shift_images = cls.counts
        agreed = distances_of_difference(
            (base_of_class, base_images),
            (shift_of_class, shift_images),
            cls.base_correct[both],
            cls.shift_correct[both],
        )
        squares += np.square(agreed)
        drop = base_of_class - shift_of_class
        per_class[cls.class_id] = _impact(drop, difference, agreed, averaged)
    base /= len(classes)
    shift /= len(classes)
    below, above = np.sqrt(squares) / len(classes)
    counted[counted == 0] = np.nan
    return Drops(
        base_accuracy=base,
        accuracy=shift,
        drop=base - shift,
        replicates=total / counted,
        base_replicates=base_total / counted,
        classes=per_class,
        averaged=averaged,
        agreed=(below, above),
    )


def _drawn_sides(
    cls: ClassUnits, rng: np.random.Generator, replicates: int, *, paired: bool
) -> Sequence[Floats]:
    """Return a class's accuracies on base and shift in replicates, (replicates, models) each."""
    on_base = (cls.base_present, cls.base_correct)
    on_shift = (cls.shift_present, cls.shift_correct)
    if paired:
        either = cls.base_present | cls.shift_present
        return drawn_accuracies([on_base, on_shift], either, rng, replicates)
    (base_at,) = drawn_accuracies([on_base], cls.base_present, rng, replicates)
    (shift_at,) = drawn_accuracies([on_shift], cls.shift_present, rng, replicates)
    return base_at, shift_at


def _drops_by_source(
    classes: Sequence[ClassUnits],
    draws: Units,
    averaged: Bools,
) -> Drops:
    """Return what `drops` returns. A class's drop has an interval if the class has enough units."""
    sides = [cls.by_source() for cls in classes]
    of_base = _average_by_source([base for base, _ in sides], draws)
    of_shift = _average_by_source([shift for _, shift in sides], draws)
    per_class: dict[str, Estimate | None] = {}
    for cls, (base, shift) in zip(classes, sides, strict=True):
        base_units, base_right = base
        shift_units, shift_right = shift
        drop = base_right.mean(axis=0) - shift_right.mean(axis=0)
        drawn = draws.mean(*base) - draws.mean(*shift)
        units = min(np.unique(base_units).size, np.unique(shift_units).size)
        per_class[cls.class_id] = _impact(drop, drawn, of_base.agreed, averaged, units)
    return Drops(
        base_accuracy=of_base.accuracy,
        accuracy=of_shift.accuracy,
        drop=of_base.accuracy - of_shift.accuracy,
        replicates=of_base.replicates - of_shift.replicates,
        base_replicates=of_base.replicates,
        classes=per_class,
        averaged=averaged,
        agreed=of_base.agreed,
        units=min(of_base.units or 0, of_shift.units or 0),
    )


def _average_by_source(side: Sequence[UnitValues], draws: Units) -> Averages:
    of_classes = [right.mean(axis=0) for _, right in side]
    accuracy = np.mean(of_classes, axis=0)
    units = np.concatenate([units for units, _ in side])
    nothing = np.zeros_like(accuracy)
    return Averages(
        accuracy,
        replicates=draws.average(side),
        agreed=(nothing, nothing),
        units=len(np.unique(units)),
    )


def class_averages(
    classes: Sequence[ClassUnits],
    *,
    seed: int,
    salt: str,
) -> Averages:
    """Return base accuracies averaged over classes, with bootstrap replicates.

    The draws depend only on `seed`, `salt` and the class id. Units are drawn as in `drops`.
    """
    if not classes:
        raise ValueError("no class to average over")
    sources = classes[0].sources
    if sources is not None:
        base = [cls.by_source()[0] for cls in classes]
        return _average_by_source(base, sources[0])
    models = classes[0].base_correct.shape[1]
    accuracy = np.zeros(models)
    total = np.zeros((REPLICATES, models))
    squares = np.zeros((2, models))
    for cls in classes:
        present = cls.base_present
        side = (present, cls.base_correct)
        rng = seeded_generator(seed, salt, cls.class_id)
        (drawn,) = drawn_accuracies([side], present, rng, REPLICATES)
        accuracy += cls.base_accuracy
        total += drawn
        agreed = distances_of_share(cls.base_accuracy, cls.counts[0])
        squares += np.square(agreed)
    accuracy /= len(classes)
    total /= len(classes)
    below, above = np.sqrt(squares) / len(classes)
    return Averages(accuracy, total, (below, above))


def accuracy_slope(
    base_accuracy: Sequence[float],
    accuracy: Sequence[float],
    images: tuple[int, int] | None = None,
) -> Slope | None:
    """Fit the ID/OOD slope: the least-squares line of shifted on base accuracy, one point per
    model, with a t interval.

    Both axes are plain accuracies, as in Vendrow 2023 (section 6, "the slope of the
    best-fit-line"). If `images` gives the numbers of base and shifted images, both axes are
    probits, because many models lie on a line in probits (Miller 2021; Taori 2020 took logits).
    None with fewer than five models, or if all base accuracies are equal.
    """
    x = np.asarray(base_accuracy, dtype=np.float64)
    y = np.asarray(accuracy, dtype=np.float64)
    if images is not None:
        x = probits(x, images[0])
        y = probits(y, images[1])
    if x.size < FEWEST_MODELS_FOR_A_SLOPE or np.ptp(x) == 0:
        return None
    fitted, intercept, r_squared = least_squares_line(x, y)
    assert fitted.low is not None and fitted.high is not None
    return Slope(
        slope=fitted.value,
        low=fitted.low,
        high=fitted.high,
        intercept=intercept,
        r_squared=r_squared,
        n_models=x.size,
    )


def probits(accuracy: Floats, images: int) -> Floats:
    """Return the normal quantile of (k + ½) / (n + 1) for k right of n images. It is finite for
    accuracies 0 and 1."""
    share = (accuracy * images + 0.5) / (images + 1)
    return ndtri(share)


def effective_robustness(
    base_accuracy: Floats,
    accuracy: Floats,
    images: tuple[int, int],
) -> Floats:
    """Return the accuracy under the shift minus the accuracy that the probit line of the *other*
    models predicts.

    Arguments and result are fractions of shape (…, models). A value is NaN if there are fewer than
    five other models, or if all of them have the same base accuracy. Taori 2020 and Miller 2021 fit
    the line to hundreds of standard models and judge other models by it. Here no model is marked as
    standard, and one outlier among ten models would pull the line towards itself. The line of each
    model therefore leaves out this model.
    """
    x = probits(base_accuracy, images[0])
    y = probits(accuracy, images[1])
    others = x.shape[-1] - 1
    if others < FEWEST_MODELS_FOR_A_SLOPE:
        return np.full(x.shape, np.nan)
    # The sums are centred, so that subtracting one model's part loses no digits.
    y_mean = y.mean(axis=-1, keepdims=True)
    dx = x - x.mean(axis=-1, keepdims=True)
    dy = y - y_mean
    # the means of the others
    left_x = -dx / others
    left_y = -dy / others
    squares = dx**2
    squares = squares.sum(axis=-1, keepdims=True) - squares
    squares -= others * left_x**2
    products = dx * dy
    products = products.sum(axis=-1, keepdims=True) - products
    products -= others * left_x * left_y
    fitted = np.full(x.shape, np.nan)
    np.divide(products, squares, out=fitted, where=squares > _NO_SPREAD)
    expected = y_mean + left_y + fitted * (dx - left_x)
    # Convert the prediction from probits to an accuracy within 0 … 1.
    _, shifted = images
    predicted = (ndtr(expected) * (shifted + 1) - 0.5) / shifted
    return accuracy - np.clip(predicted, 0, 1)


def effective_robustness_intervals(
    drops: Drops,
    images: tuple[int, int],
) -> dict[int, Estimate]:
    """Return the effective robustness of each averaged model that has one, with its bootstrap
    interval, by model index.

    All models share the draws of images, so the line is fitted anew in each draw. In simulations
    with 6 to 20 models and 100 to 500 images, the interval held the true value in 92 to 93 %. The
    interval does not include the uncertainty from the choice of models.
    """
    places = np.flatnonzero(drops.averaged)
    base = drops.base_accuracy[places]
    values = effective_robustness(base, drops.accuracy[places], images)
    base_draws = drops.base_replicates[:, places]
    draws = base_draws - drops.replicates[:, places]
    replicates = effective_robustness(base_draws, draws, images)
    intervals = {}
    for column, model in enumerate(places.tolist()):
        value = float(values[column])
        if math.isfinite(value):
            drawn = replicates[:, column]
            below, above = _beside(drops.agreed, model)
            # A larger drop means less robustness, so the two ends change places.
            beside = (above, below)
            intervals[model] = interval_of_draws(value, drawn, beside, units=drops.units)
    return intervals


def _impact(
    drop: Floats,
    replicates: Floats,
    agreed: EndDistances,
    averaged: Bools,
    units: int | None = None,
) -> Estimate | None:
    """Return the drop (models,) averaged over the marked models; None if none are marked."""
    if not averaged.any():
        return None
    # All models see the same images, so their errors may be fully correlated. The distances to the
    # ends are therefore averaged themselves, not their squares.
    below, above = agreed
    beside = (float(below[averaged].mean()), float(above[averaged].mean()))
    value = float(drop[averaged].mean())
    drawn = replicates[:, averaged].mean(axis=1)
    return interval_of_draws(value, drawn, beside, units=units)


def drawn_accuracies(
    sides: Sequence[tuple[Bools, Bools]],
    drawn: Bools,
    rng: np.random.Generator,
    replicates: int,
) -> list[Floats]:
    """Return the accuracy of each side in every replicate, (replicates, models) each. All sides
    share the drawn units.

    A side holds the units that are present (n,), and the right answers (n, models). drawn: (n,) the
    units to draw. Replicates are computed in blocks, which bounds the memory. The sums are of whole
    numbers, so the blocks do not change the result.
    """
    counted = []
    accuracies = []
    for present, correct in sides:
        shown = present[drawn, None].astype(np.float64)
        counted.append((correct[drawn] * shown, shown))
        accuracies.append(np.empty((replicates, correct.shape[1])))
    for block, weights in _weights(int(drawn.sum()), replicates, rng):
        for result, (right, shown) in zip(accuracies, counted, strict=True):
            with np.errstate(invalid="ignore", divide="ignore"):
                result[block] = (weights @ right) / (weights @ shown)
    return accuracies


def _weights(
    units: int,
    replicates: int,
    rng: np.random.Generator,
) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of replicates and their `bootstrap_weights`; the size of a block bounds the
    memory."""
    rows = max(1, _DRAWN_AT_ONCE // max(1, units))
    for start in range(0, replicates, rows):
        stop = min(start + rows, replicates)
        yield slice(start, stop), bootstrap_weights(units, stop - start, rng)


# The rows (k,) of a side, and the values (n,) of all images: right answers, or differences of right
# answers.
Side = tuple[Ints, Bools | Floats]


def draw_class_averages(
    sides: Sequence[Side],
    strata: Ints,
    units: Ints,
    generator_of: Callable[[int], np.random.Generator],
) -> Floats:
    """Return each side's average over strata in each bootstrap replicate, (replicates, sides).

    strata, units: (n,). Units are drawn within each stratum, each with all of its images.
    generator_of: returns the random generator of a stratum. A stratum without drawn images is left
    out of the average. The average is NaN if no stratum of a side has drawn images.
    """
    total = np.zeros((REPLICATES, len(sides)))
    counted = np.zeros_like(total)
    ordered = []
    for rows, values in sides:
        by_stratum = np.argsort(strata[rows], kind="stable")
        ordered.append((rows[by_stratum], values))
    all_rows = [rows for rows, _ in ordered]
    every = np.unique(np.concatenate(all_rows))
    for stratum in np.unique(strata[every]).tolist():
        in_stratum = every[strata[every] == stratum]
        drawn_units = np.unique(units[in_stratum])
        count = len(drawn_units)
        weights = bootstrap_weights(count, REPLICATES, generator_of(stratum))
        for side, (rows, values) in enumerate(ordered):
            start, end = np.searchsorted(strata[rows], [stratum, stratum + 1])
            if start == end:
                continue
            side_rows = rows[start:end]
            unit = np.searchsorted(drawn_units, units[side_rows])
            sums = np.bincount(unit, weights=values[side_rows], minlength=count)
            drawn = weights @ np.bincount(unit, minlength=count)
            averages = np.zeros(REPLICATES)
            np.divide(weights @ sums, drawn, out=averages, where=drawn > 0)
            total[:, side] += averages
            counted[:, side] += drawn > 0
    counted[counted == 0] = np.nan
    return total / counted


@dataclass(frozen=True)
class ClassAverage:
    """An accuracy averaged over classes."""

    value: float
    """The average."""
    images: float
    """The harmonic mean of the numbers of images per class."""
    counts: Ints
    """(classes,) the images per class."""
    shares: Floats
    """(classes,) the share of right answers per class."""
    variance: float
    """The variance of the average."""
    freedom: float
    """The degrees of freedom of the variance (Satterthwaite 1946)."""
    draws: Floats
    """(R,) the value in each bootstrap replicate."""
    units: int | None = None
    """How many units are drawn in it; None if images are."""

    @classmethod
    def of(
        cls,
        labels: Ints,
        right: NDArray[Any],
        draws: Floats,
        units: int | None = None,
    ) -> ClassAverage:
        """Average right answers over classes, from the labels (n,) and the right answers (n,) of
        some images."""
        _, label, count = np.unique(labels, return_inverse=True, return_counts=True)
        classes = len(count)
        share = np.bincount(label, weights=right) / count
        free = np.maximum(count - 1, 1)
        each = share * (1 - share) / free / classes**2
        spread = float(each.sum())
        squares = float((each**2 / free).sum())
        images = classes / float((1 / count).sum())
        # The variance of a bootstrap of n images is too small by (n - 1) / n.
        drawn = float(np.nanvar(draws)) * images / max(images - 1, 1)
        return cls(
            value=float(share.mean()),
            images=images,
            counts=count,
            shares=share,
            variance=max(spread, drawn),
            freedom=spread**2 / squares if squares else math.inf,
            draws=draws,
            units=units,
        )

    def correlation(self, other: ClassAverage) -> float:
        """Return the correlation of the draws of both averages; 0 if either does not vary."""
        apart = self.draws - np.nanmean(self.draws)
        other_apart = other.draws - np.nanmean(other.draws)
        variances = np.nanmean(apart**2) * np.nanmean(other_apart**2)
        if not variances:
            return 0.0
        covariance = float(np.nanmean(apart * other_apart))
        return covariance / math.sqrt(float(variances))

    def varying(self, reach: float) -> Bounds:
        """Return the distances to the ends of Wilson's interval, for the number of images that the
        variance implies."""
        if self.variance == 0:
            return 0.0, 0.0
        images = self.value * (1 - self.value) / self.variance
        low, high = wilson_reach(self.value, images, reach, self.freedom)
        return self.value - low, high - self.value

    def agreeing(self, reach: float) -> Bounds:
        """Return the distances below and above that classes of only right or only wrong answers
        add, by Wilson."""
        far = reach**2 / (self.counts + reach**2)

        def distance(share: float) -> float:
            squares = far[self.shares == share] ** 2
            return math.sqrt(float(squares.sum())) / len(far)

        return distance(1.0), distance(0.0)


@dataclass(frozen=True)
class AverageComparison:
    """An accuracy averaged over classes, or `first` less `second`, or this difference relative to
    `first`."""

    first: ClassAverage
    second: ClassAverage | None = None
    relative: bool = False

    @property
    def last(self) -> ClassAverage:
        return self.second or self.first

    @property
    def images(self) -> float:
        """The smaller side's images per class, or its units if images share any."""
        first = self.first
        last = self.last
        if first.units is None:
            return min(first.images, last.images)
        return min(first.units, last.units or 0)

    @property
    def counted(self) -> str:
        first = self.first
        if first.units is not None:
            return "units"
        return "images per class" if len(first.counts) > 1 else "images"

    @property
    def centre(self) -> float:
        """The value, which the draws lie around."""
        if self.second is None:
            return self.first.value
        if self.relative:
            return 1 - self.second.value / self.first.value
        return self.first.value - self.second.value

    @property
    def drawn(self) -> Floats:
        """The value in each bootstrap replicate, (R,). Those of a relative difference come from the
        delta method."""
        if self.second is None:
            return self.first.draws
        if not self.relative:
            return self.first.draws - self.second.draws
        ratio = self.second.value / self.first.value
        lost = ratio * self.first.draws - self.second.draws
        return 1 - ratio + lost / self.first.value

    def interval(self, reach: float) -> Estimate:
        """Return the value with an interval `reach` standard errors long.

        One average has Wilson's interval. A difference combines the Wilson intervals of both
        averages (Newcombe 1998, method 10). The interval of a relative difference holds each d for
        which second = (1 - d) · first is plausible: the interval of (1 - d) · first - second then
        holds 0 (Donner and Zou 2012). If units are drawn, the interval is that of a `Drawn`.
        """
        first = self.first
        second = self.second
        if first.units is not None:
            number = Drawn(
                value=self.centre,
                drawn=self.drawn,
                bias=0.0,
                unseen=(0.0, 0.0),
                images=int(self.images),
                signed=second is not None,
                by_units=True,
            )
            return number.interval(reach)
        if second is None:
            below, above = mover_distances(first.varying(reach), first.agreeing(reach))
            low = max(0.0, first.value - float(below))
            high = min(1.0, first.value + float(above))
            return Estimate(first.value, low, high)
        correlation = first.correlation(second)
        # Each distance is at least `floor`: the difference is not known exactly even if no pair
        # differs.
        first_images = first.images * len(first.counts)
        second_images = second.images * len(second.counts)
        images = min(first_images, second_images)
        floor = reach**2 / (images + reach**2)
        varying_below, varying_above = first.varying(reach)
        agreeing_below, agreeing_above = first.agreeing(reach)
        other_below, other_above = second.agreeing(reach)

        def end(share: float, upper: bool) -> float:
            varying = (share * varying_below, share * varying_above)
            agreeing = (share * agreeing_below, share * agreeing_above)
            other = second.varying(reach)
            below, above = distances_with_correlation(varying, other, correlation)
            varying = (max(floor, below), max(floor, above))
            below, above = mover_distances(varying, agreeing, (other_above, other_below))
            difference = share * first.value - second.value
            if upper:
                return difference + float(above)
            return difference - float(below)

        if not self.relative:
            low = max(-1.0, end(1.0, False))
            high = min(1.0, end(1.0, True))
            return Estimate(self.centre, low, high)
        ratio = second.value / first.value
        smallest: Any = 0.0
        largest: Any = max(_LARGEST_RATIO, 2 * ratio)
        if not end(largest, False) < 0:
            largest = brentq(end, ratio, largest, (False,))
        if not end(smallest, True) > 0:
            smallest = brentq(end, smallest, ratio, (True,))
        return Estimate(1 - ratio, 1 - float(largest), 1 - float(smallest))


# The number of bins of confidence, which have equal width from 0 to 1 (Guo 2017, section 2).
BINS = 15


def confidence_bins(confidence: AnyFloats) -> Ints:
    """Return the bin of each confidence, numbered from 0."""
    ends = np.ceil(confidence.astype(np.float64) * BINS)
    number = ends.astype(np.int64) - 1
    return np.clip(number, 0, BINS - 1)


@dataclass(frozen=True)
class NearChance:
    """Models and classes that are near chance on the base. The mappings are by class id."""

    models: Bools
    """(m,), the models that are near chance."""
    classes: Mapping[str, float] = field(default_factory=dict)
    """For each class near chance, its base accuracy averaged over the models that are not."""
    chances: Mapping[str, float] = field(default_factory=dict)
    """For each class near chance, the highest share of right guesses."""
    cells: Mapping[str, Bools] = field(default_factory=dict)
    """For every class with enough images, (m,), whether each model is near chance on it."""


def near_chance(accuracy: Floats, images: Ints | int, chance: Floats | float) -> Bools:
    """Return whether the Wilson interval of each accuracy starts below `chance_line`."""
    low, _ = wilson_intervals(accuracy, images)
    line = chance_line(np.asarray(chance, np.float64))
    return np.asarray(low < line)


def find_near_chance(
    class_ids: Sequence[str], accuracy: Floats, images: Ints, chances: Floats
) -> NearChance:
    """Find the models and the classes that are near chance, among m models and k >= 1 classes.

    accuracy: (k, m), on the base. images: (k,), all above 0. chances: (k, m). A model is judged by
    its accuracy and its chance, both averaged over classes, and by the number of all images. A
    class is judged by its accuracy averaged over the models that are not near chance, by the number
    of its images, and by the highest chance of these models. If all models are near chance, a class
    is judged by all models.
    """
    every = int(images.sum())
    models = near_chance(accuracy.mean(axis=0), every, chances.mean(axis=0))
    sound = ~models
    if models.all():
        sound = models
    averaged = accuracy[:, sound].mean(axis=1)
    highest = chances[:, sound].max(axis=1)
    is_near = near_chance(averaged, images, highest)
    near_classes = {}
    near_chances = {}
    for index in np.flatnonzero(is_near).tolist():
        class_id = class_ids[index]
        near_classes[class_id] = float(averaged[index])
        near_chances[class_id] = float(highest[index])
    cells = near_chance(accuracy, images[:, None], chances)
    return NearChance(
        models=models,
        classes=near_classes,
        chances=near_chances,
        cells=dict(zip(class_ids, cells, strict=True)),
    )
