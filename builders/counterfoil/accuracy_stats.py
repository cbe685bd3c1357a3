"""The numbers of a robustness report, as pure functions on arrays: accuracies, drops, intervals, slopes, near chance.

All accuracies and drops here are fractions between -1 and 1. Images of one class and one candidate
index form a unit: with paired noise its base and its shifted image share their noise and are
resampled together. Sources: Vendrow 2023, section 6 and Appendix A.5.

Intervals are a bootstrap's. It has no width where the images of a class all agree, as if nothing were left open:
what is open is added to it from their counts (`stats.distances_of_share`).

Who is right by chance can lose nothing: such a model looks robust, such a class looks safe, and both pull every average
towards 0. So what is near chance on the base is found first, and is in no average.

A model whose class-averaged base accuracy, or a class whose base accuracy over the other models, begins (Wilson's
lower end) under a tenth of the way up from chance is *near chance*: in every table, marked, and in no average, impact
or slope. It is decided on the base once, for all groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from counterfoil.stats import (
    CONFIDENCE,
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
    mover,
    percentile_interval,
    seeded,
    wilson_intervals,
    wilson_reach,
)

_LARGEST_RATIO = 100.0
_DRAWN_AT_ONCE = 1 << 24  # units of some replicates: 400 MB of counts
# A line through fewer models than this says nothing worth printing.
FEWEST_MODELS_FOR_A_SLOPE = 5
_NO_SPREAD = 1e-12  # squared probits: all base accuracies are equal but for rounding


@dataclass(frozen=True)
class ClassUnits:
    """One class under the base and one shift, unit by unit (a unit is one candidate index).

    base_present, shift_present: (n,) bool, whether that unit's image was accepted (and readable).
    base_correct, shift_correct: (n, models) bool; rows of absent images are ignored.
    """

    class_id: str
    base_present: NDArray[np.bool_]
    base_correct: NDArray[np.bool_]
    shift_present: NDArray[np.bool_]
    shift_correct: NDArray[np.bool_]

    @property
    def counts(self) -> tuple[int, int]:
        """How many base and how many shifted images there are."""
        return int(self.base_present.sum()), int(self.shift_present.sum())

    def pairs(self) -> ClassUnits:
        """Only the units whose base and shifted image were both accepted."""
        both = self.base_present & self.shift_present
        return ClassUnits(self.class_id, both, self.base_correct, both, self.shift_correct)


@dataclass(frozen=True)
class Drops:
    """What `drops` computes for every model at once; arrays are (models,) and (replicates, models).

    `replicates` are the drop's; those of the base accuracy are drawn with them. `averaged` says which models averages
    are over, (models,) bool. `classes` has each class's drop averaged over these models, None where there are
    none. `agreed` is what classes whose images all agree add to the ends of the drop's interval.
    """

    base_accuracy: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    drop: NDArray[np.float64]
    replicates: NDArray[np.float64]
    base_replicates: NDArray[np.float64]
    classes: Mapping[str, Estimate | None]
    averaged: NDArray[np.bool_]
    agreed: EndDistances

    def interval(self, model: int) -> Estimate:
        """The drop of one model with its interval."""
        below, above = (float(side[model]) for side in self.agreed)
        return percentile_interval(float(self.drop[model]), self.replicates[:, model], (below, above))

    def impact(self) -> Estimate | None:
        """Absolute impact: the drop averaged over models (Vendrow 2023, section 6); None where none is averaged.

        Its interval resamples images, with the models held fixed.
        """
        return _impact(self.drop, self.replicates, self.agreed, self.averaged)


@dataclass(frozen=True)
class Averages:
    """What `averages` computes for every model: (models,), and (replicates, models)."""

    accuracy: NDArray[np.float64]
    replicates: NDArray[np.float64]
    agreed: EndDistances

    def interval(self, model: int) -> Estimate:
        """The accuracy of one model with its interval."""
        below, above = (float(side[model]) for side in self.agreed)
        return percentile_interval(float(self.accuracy[model]), self.replicates[:, model], (below, above), least=0.0)


@dataclass(frozen=True)
class Slope:
    """The line `accuracy = slope * base accuracy + intercept` over models, by least squares."""

    slope: float
    low: float
    high: float
    intercept: float
    r_squared: float
    n_models: int


def accuracy_per_class(present: NDArray[np.bool_], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Share of the present images that are right, for every model: (n,), (n, models) -> (models,)."""
    if not present.any():
        return np.full(correct.shape[1], np.nan)
    return correct[present].mean(axis=0)


def surviving(classes: Sequence[ClassUnits], min_images: int) -> list[ClassUnits]:
    """The classes with at least `min_images` accepted images, both under the shift and under the base."""
    return [cls for cls in classes if min(cls.counts) >= min_images]


def drops(
    classes: Sequence[ClassUnits],
    *,
    paired: bool,
    seed: int,
    salt: str,
    replicates: int = REPLICATES,
    averaged: NDArray[np.bool_] | None = None,
) -> Drops:
    """Class-averaged accuracy on base and shift, their difference, and bootstrap replicates of it.

    Each class counts once, whatever its number of images. A replicate draws, within every class,
    as many units as there are, with replacement: with `paired` a unit brings its base and its
    shifted image together, otherwise base and shifted images are drawn apart. The draws depend on
    `seed`, `salt` (the shift's name) and the class id only, never on which models or how many
    classes are measured. A class whose draw holds no image on one side sits out that replicate.
    Averages over models are over those that `averaged`, (models,), says; else over all.
    """
    if not classes:
        raise ValueError("no class to average over")
    models = classes[0].base_correct.shape[1]
    averaged = np.ones(models, dtype=bool) if averaged is None else averaged
    base = np.zeros(models)
    shift = np.zeros(models)
    total, base_total = np.zeros((replicates, models)), np.zeros((replicates, models))
    counted = np.zeros((replicates, 1))
    squares = np.zeros((2, models))
    per_class: dict[str, Estimate | None] = {}
    for cls in classes:
        base_of_class = accuracy_per_class(cls.base_present, cls.base_correct)
        shift_of_class = accuracy_per_class(cls.shift_present, cls.shift_correct)
        base += base_of_class
        shift += shift_of_class
        rng = seeded(seed, salt, cls.class_id)
        base_at, shift_at = _draws(cls, rng, replicates, paired)
        difference = base_at - shift_at
        usable = ~np.isnan(difference).any(axis=1, keepdims=True)
        total += np.where(usable, difference, 0.0)
        base_total += np.where(usable, base_at, 0.0)
        counted += usable
        both = cls.base_present & cls.shift_present if paired else np.zeros_like(cls.base_present)
        sides = (base_of_class, cls.counts[0]), (shift_of_class, cls.counts[1])
        agreed = distances_of_difference(*sides, cls.base_correct[both], cls.shift_correct[both])
        squares += np.square(agreed)
        per_class[cls.class_id] = _impact(base_of_class - shift_of_class, difference, agreed, averaged)
    with np.errstate(invalid="ignore"):
        drawn, base_drawn = (sums / np.where(counted == 0, np.nan, counted) for sums in (total, base_total))
    base /= len(classes)
    shift /= len(classes)
    below, above = np.sqrt(squares) / len(classes)
    return Drops(base, shift, base - shift, drawn, base_drawn, per_class, averaged, (below, above))


def averages(classes: Sequence[ClassUnits], *, seed: int, salt: str, replicates: int = REPLICATES) -> Averages:
    """Accuracy on the base images averaged over classes, with bootstrap replicates, for every model.

    The draws depend on `seed`, `salt` and the class id only. Every class needs an image. ValueError for no class.
    """
    if not classes:
        raise ValueError("no class to average over")
    models = classes[0].base_correct.shape[1]
    accuracy, total, squares = np.zeros(models), np.zeros((replicates, models)), np.zeros((2, models))
    for cls in classes:
        of_class = accuracy_per_class(cls.base_present, cls.base_correct)
        right = cls.base_correct[cls.base_present].astype(np.float64)
        accuracy += of_class
        total += bootstrap_weights(len(right), replicates, seeded(seed, salt, cls.class_id)) @ right / len(right)
        squares += np.square(distances_of_share(of_class, len(right)))
    below, above = np.sqrt(squares) / len(classes)
    return Averages(accuracy / len(classes), total / len(classes), (below, above))


def slope(
    base_accuracy: Sequence[float], accuracy: Sequence[float], images: tuple[int, int] | None = None
) -> Slope | None:
    """ID/OOD slope: the least-squares line of shifted on base accuracy, one point a model.

    Both axes are plain accuracies, as in Vendrow 2023 (section 6, "the slope of the best-fit-line"),
    with no probit scaling. With `images`, how many base and shifted ones there are, both are probits,
    on which accuracies of many models lie on a line (Miller 2021; Taori 2020 took logits).
    The interval is the t interval of the slope, so models are the sampling
    unit. None with fewer than five models, or when all base accuracies are equal.
    """
    x = np.asarray(base_accuracy, dtype=np.float64)
    y = np.asarray(accuracy, dtype=np.float64)
    if images is not None:
        x, y = probits(x, images[0]), probits(y, images[1])
    if x.size < FEWEST_MODELS_FOR_A_SLOPE or np.ptp(x) == 0:
        return None
    fitted, intercept, r_squared = least_squares_line(x, y)
    assert fitted.low is not None and fitted.high is not None
    return Slope(fitted.value, fitted.low, fitted.high, intercept, r_squared, int(x.size))


def probits(accuracy: NDArray[np.float64], images: int) -> NDArray[np.float64]:
    """Accuracies on the probit scale: the normal quantile of (k + ½) / (n + 1) with k right of n images.

    So an accuracy of 0 or 1 is finite. One averaged over classes counts as that share of all n images.
    """
    return ndtri((accuracy * images + 0.5) / (images + 1))


def effective_robustness(
    base_accuracy: NDArray[np.float64], accuracy: NDArray[np.float64], images: tuple[int, int]
) -> NDArray[np.float64]:
    """Accuracy under the shift less what the probit line through the *other* models expects at a model's base accuracy.

    (…, models) -> (…, models), fractions; NaN where fewer than five others are left, or all of these have one base
    accuracy. Taori 2020 and Miller 2021 fit the line to standard models and judge others, trained on more data or with
    an intervention, by their distance from it: who is judged does not pull the line. Of hundreds of standard models
    one more would hardly matter. Here nobody says which models are standard, and of ten models one that stands out
    would pull the line to itself, so each is left out of its own line.
    """
    x, y = probits(base_accuracy, images[0]), probits(accuracy, images[1])
    others = x.shape[-1] - 1
    if others < FEWEST_MODELS_FOR_A_SLOPE:
        return np.full(x.shape, np.nan)
    # About their mean, sums of squares lose no digits when a model is taken out of them.
    x_mean, y_mean = x.mean(axis=-1, keepdims=True), y.mean(axis=-1, keepdims=True)
    dx, dy = x - x_mean, y - y_mean
    left_x, left_y = -dx / others, -dy / others  # the means of the others
    squares = (dx**2).sum(axis=-1, keepdims=True) - dx**2 - others * left_x**2
    products = (dx * dy).sum(axis=-1, keepdims=True) - dx * dy - others * left_x * left_y
    with np.errstate(invalid="ignore", divide="ignore"):
        fitted = np.where(squares > _NO_SPREAD, products / squares, np.nan)
    expected = y_mean + left_y + fitted * (dx - left_x)
    # Back from the probit scale, within 0 … 1.
    return accuracy - np.clip((ndtr(expected) * (images[1] + 1) - 0.5) / images[1], 0, 1)


def effective_robustness_intervals(found: Drops, images: tuple[int, int]) -> dict[int, Estimate]:
    """Effective robustness with its bootstrap interval, by the place of each averaged model that has one.

    Images are drawn for all models together, so the line moves with each draw. Of 6 to 20 simulated models on 100 to
    500 images the interval held the truth of these models in 92 to 93 %. It says nothing of which models there are.
    """
    places = np.flatnonzero(found.averaged)
    base, drawn = found.base_replicates[:, places], found.replicates[:, places]
    values = effective_robustness(found.base_accuracy[places], found.accuracy[places], images)
    replicates = effective_robustness(base, base - drawn, images)
    below, above = (side[places] for side in found.agreed)
    # A larger drop is less robust: what widens one end of the drop widens the other end here.
    return {
        int(place): percentile_interval(float(values[at]), replicates[:, at], (float(above[at]), float(below[at])))
        for at, place in enumerate(places)
        if np.isfinite(values[at])
    }


def _impact(
    drop: NDArray[np.float64], replicates: NDArray[np.float64], agreed: EndDistances, averaged: NDArray[np.bool_]
) -> Estimate | None:
    """The drop (models,) averaged over some models; None for none of them."""
    if not averaged.any():
        return None
    # All models see the same images, so that their errors may well be one: the ends are averaged, not their squares.
    below, above = (float(side[averaged].mean()) for side in agreed)
    return percentile_interval(float(drop[averaged].mean()), replicates[:, averaged].mean(axis=1), (below, above))


def _draws(
    one: ClassUnits, rng: np.random.Generator, replicates: int, paired: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Accuracy of one class in every replicate, on base and on shift: two (replicates, models)."""
    either = one.base_present | one.shift_present
    sides = (
        (one.base_present, one.base_correct, either if paired else one.base_present),
        (one.shift_present, one.shift_correct, either if paired else one.shift_present),
    )
    # What is drawn together is drawn once, for both sides.
    together = [sides] if paired else [(side,) for side in sides]
    base, shift = (one for some in together for one in drawn_accuracies(some, rng, replicates))
    return base, shift


_Units = tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]


def drawn_accuracies(sides: Sequence[_Units], rng: np.random.Generator, replicates: int) -> list[NDArray[np.float64]]:
    """Accuracy of sides that share their units, (replicates, models) each, in blocks of bounded memory.

    A side is which units have an image there (n,), which are right (n, models), and which units are drawn (n,), the
    first side's. Sums are of whole numbers, so that blocks change no bit.
    """
    units = sides[0][2]
    shown = [present[units] for present, _, _ in sides]
    right = [
        (correct[units] & there[:, None]).astype(np.float64)
        for (_, correct, _), there in zip(sides, shown, strict=True)
    ]
    found = [np.empty((replicates, one.shape[1])) for one in right]
    for here, weights in _weights(int(units.sum()), replicates, rng):
        for result, there, correct in zip(found, shown, right, strict=True):
            drawn = weights @ there.astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                result[here] = (weights @ correct) / drawn[:, None]
    return found


def _weights(units: int, replicates: int, rng: np.random.Generator) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """`bootstrap_weights` in blocks of bounded memory: which replicates, and how often each unit is drawn in them."""
    rows = max(1, _DRAWN_AT_ONCE // max(1, units))
    for start in range(0, replicates, rows):
        stop = min(start + rows, replicates)
        yield slice(start, stop), bootstrap_weights(units, stop - start, rng)


# Rows (k,) of a side, and values (n,) of all images: who is right, or a difference of such.
Side = tuple[NDArray[np.int64], NDArray[np.bool_] | NDArray[np.float64]]


def draw_class_averages(
    sides: Sequence[Side],
    strata: NDArray[np.int64],
    units: NDArray[np.int64],
    generator_of: Callable[[int], np.random.Generator],
) -> NDArray[np.float64]:
    """Return each side's average over strata in each bootstrap replicate, (replicates, sides); NaN if a draw has none.

    strata, units (n,): what an image's draw is within, and what is drawn together. Each stratum has its generator.
    """
    total, counted = np.zeros((REPLICATES, len(sides))), np.zeros((REPLICATES, len(sides)))
    ordered = [rows[np.argsort(strata[rows], kind="stable")] for rows, _ in sides]
    every = np.unique(np.concatenate(ordered))
    for stratum in np.unique(strata[every]).tolist():
        own_units = np.unique(units[every[strata[every] == stratum]])
        weights = bootstrap_weights(len(own_units), REPLICATES, generator_of(stratum))
        for side, (rows, (_, values)) in enumerate(zip(ordered, sides, strict=True)):
            start, end = np.searchsorted(strata[rows], [stratum, stratum + 1])
            if start == end:
                continue
            here = rows[start:end]
            at = np.searchsorted(own_units, units[here])
            sums = np.bincount(at, weights=values[here], minlength=len(own_units))
            drawn = weights @ np.bincount(at, minlength=len(own_units))
            total[:, side] += np.divide(weights @ sums, drawn, out=np.zeros(REPLICATES), where=drawn > 0)
            counted[:, side] += drawn > 0
    return np.divide(total, counted, out=np.full_like(total, np.nan), where=counted > 0)


@dataclass(frozen=True)
class ClassAverage:
    """An accuracy averaged over classes. images: of a class, the harmonic mean. counts, shares (classes,): images, and
    how many of them are right. freedom: the degrees of freedom of the variance (Satterthwaite 1946). draws (R,): of the
    bootstrap."""

    value: float
    images: float
    counts: NDArray[np.int64]
    shares: NDArray[np.float64]
    variance: float
    freedom: float
    draws: NDArray[np.float64]

    @classmethod
    def of(cls, labels: NDArray[np.int64], right: NDArray[Any], draws: NDArray[np.float64]) -> ClassAverage:
        """Average over the classes of some images, labels and right (n,)."""
        _, label, count = np.unique(labels, return_inverse=True, return_counts=True)
        share = np.bincount(label, weights=right) / count
        each = share * (1 - share) / np.maximum(count - 1, 1) / len(count) ** 2
        spread, squares = float(each.sum()), float((each**2 / np.maximum(count - 1, 1)).sum())
        images = len(count) / float((1 / count).sum())
        # A bootstrap of n images has n - 1 degrees of freedom.
        variance = max(spread, float(np.nanvar(draws)) * images / max(images - 1, 1))
        freedom = spread**2 / squares if squares else math.inf
        return cls(float(share.mean()), images, count, share, variance, freedom, draws)

    def varying(self, reach: float) -> Bounds:
        """Return the distances of Wilson's ends, on as many images as the variance implies."""
        if self.variance == 0:
            return 0.0, 0.0
        images = self.value * (1 - self.value) / self.variance
        low, high = wilson_reach(self.value, images, reach, self.freedom)
        return self.value - low, high - self.value

    def agreeing(self, reach: float) -> Bounds:
        """Return what classes add below and above whose images are all right, or all wrong, by Wilson's interval of
        each: a bootstrap takes them for certain."""
        far = reach**2 / (self.counts + reach**2)
        below, above = (math.sqrt(float((far[self.shares == end] ** 2).sum())) for end in (1.0, 0.0))
        return below / len(far), above / len(far)


def difference_of(
    first: ClassAverage, second: ClassAverage | None = None, *, relative: bool = False
) -> tuple[float, NDArray[np.float64]]:
    """Return the value and draws of an average, or of the first less the second, or of this as a share of the first.

    Draws of a share are linear in the two averages (delta method).
    """
    if second is None:
        return first.value, first.draws
    if not relative:
        return first.value - second.value, first.draws - second.draws
    ratio = second.value / first.value
    return 1 - ratio, 1 - ratio + (ratio * first.draws - second.draws) / first.value


def class_average_interval(
    first: ClassAverage, second: ClassAverage | None = None, *, reach: float, relative: bool = False
) -> Estimate:
    """Return the value of `difference_of` with an interval `reach` standard errors long.

    It is Wilson's, or made of two such (Newcombe 1998, method 10). That of a relative difference d holds each d for
    which (1 - d) of the first may be the second (Donner and Zou 2012).
    """
    if second is None:
        below, above = mover(first.varying(reach), first.agreeing(reach))
        return Estimate(first.value, max(0.0, first.value - float(below)), min(1.0, first.value + float(above)))
    of_first, of_second = (side.draws - np.nanmean(side.draws) for side in (first, second))
    spread = math.sqrt(float(np.nanmean(of_first**2) * np.nanmean(of_second**2)))
    correlation = float(np.nanmean(of_first * of_second)) / spread if spread else 0.0
    # If no pair is judged differently, some images may still be all the same.
    floor = reach**2 / (min(side.images * len(side.counts) for side in (first, second)) + reach**2)

    def end(share: float, upper: bool) -> float:
        """Return an end of the interval of `share` times the first, less the second."""
        scaled, agreeing = ([share * side for side in sides] for sides in (first.varying(reach), first.agreeing(reach)))
        varying = distances_with_correlation((scaled[0], scaled[1]), second.varying(reach), correlation)
        varying = max(floor, varying[0]), max(floor, varying[1])
        below, above = mover(varying, (agreeing[0], agreeing[1]), second.agreeing(reach)[::-1])
        return share * first.value - second.value + (float(above) if upper else -float(below))

    if not relative:
        return Estimate(first.value - second.value, max(-1.0, end(1.0, False)), min(1.0, end(1.0, True)))
    ratio = second.value / first.value
    most = max(_LARGEST_RATIO, 2 * ratio)
    largest = most if end(most, False) < 0 else brentq(end, ratio, most, (False,))
    smallest = 0.0 if end(0.0, True) > 0 else brentq(end, 0.0, ratio, (True,))
    return Estimate(1 - ratio, 1 - float(largest), 1 - float(smallest))  # type: ignore[arg-type]


# Guo 2017, section 2: equal width, from 0 to 1.
BINS = 15


def confidence_bins(confidence: NDArray[np.floating]) -> NDArray[np.int64]:
    """The bin of each confidence, numbered from 0."""
    return np.clip(np.ceil(confidence.astype(np.float64) * BINS).astype(np.int64) - 1, 0, BINS - 1)


def calibration_errors(
    confidence: NDArray[np.floating], right: NDArray[np.bool_], rng: np.random.Generator, replicates: int = REPLICATES
) -> list[Estimate]:
    """Expected calibration error of models on the same images, (n, models) each, n >= 1, with its bootstrap interval.

    The mean distance of confidence from accuracy over bins. Draws are biased upward as the error is, so the interval
    reaches to it at least.
    """
    apart, bins = right - confidence.astype(np.float64), confidence_bins(confidence)
    signed = [(bins[:, [model]] == np.unique(bins[:, model])) * apart[:, [model]] for model in range(right.shape[1])]
    drawn = np.empty((len(signed), replicates))
    for here, weights in _weights(len(right), replicates, rng):
        for model, own in enumerate(signed):
            drawn[model, here] = np.abs(weights @ own).sum(axis=1) / len(right)
    values = [float(np.abs(own.sum(axis=0)).sum()) / len(right) for own in signed]
    ends = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1).T.tolist()
    return [Estimate(value, min(low, value), max(high, value)) for value, (low, high) in zip(values, ends, strict=True)]


@dataclass(frozen=True)
class NearChance:
    """What is near chance on the base. models: (m,) bool. classes: id of each such class → its base accuracy averaged
    over the models that are not near chance. chances: id of each such class → how often a guess is right, at most.
    cells: by class id (m,) bool, by a class and model's own interval, for every class with enough images."""

    models: NDArray[np.bool_]
    classes: Mapping[str, float] = field(default_factory=dict)
    chances: Mapping[str, float] = field(default_factory=dict)
    cells: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def near_chance(
    accuracy: NDArray[np.float64], images: NDArray[np.int64] | int, chance: NDArray[np.float64] | float
) -> NDArray[np.bool_]:
    """Where the Wilson interval of an accuracy on so many images begins under `MARGIN` of the way up from chance."""
    low, _ = wilson_intervals(accuracy, images)
    return np.asarray(low < chance_line(np.asarray(chance, np.float64)))


def find_near_chance(
    class_ids: Sequence[str],
    accuracy: NDArray[np.float64],
    images: NDArray[np.int64],
    chances: NDArray[np.float64],
) -> NearChance:
    """Of m models on k >= 1 classes: base accuracy (k, m) on `images` (k,), all above 0, and chances (k, m).

    A model is judged by its accuracy and chance averaged over classes, and all images. A class is judged by its
    accuracy averaged over the models that are not near chance (over all where all are), its own images, and the highest
    of their chances.
    """
    models = near_chance(accuracy.mean(axis=0), int(images.sum()), chances.mean(axis=0))
    counted_models = ~models if not models.all() else np.ones_like(models)
    averaged = accuracy[:, counted_models].mean(axis=1)
    highest = chances[:, counted_models].max(axis=1)
    near = [(class_ids[index], index) for index in np.flatnonzero(near_chance(averaged, images, highest)).tolist()]
    return NearChance(
        models,
        {class_id: float(averaged[place]) for class_id, place in near},
        {class_id: float(highest[place]) for class_id, place in near},
        dict(zip(class_ids, near_chance(accuracy, images[:, None], chances), strict=True)),
    )
