"""Numbers with their values in resamples of images or of units: their intervals, sums, ratios, and
joint intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.stats import (
    NORMAL,
    REPLICATES,
    Bounds,
    Estimate,
    bootstrap_weights,
    clustered_interval,
    count_by_unit,
    mover_distances,
    percentile_interval,
    seeded_generator,
    simultaneous_reach,
    student_reach,
    wilson_estimate,
    wilson_interval,
    wilson_reach,
)

# An interval needs at least this many images with an object.
FEWEST_IMAGES = 10
# The bias of a score is estimated from _SPLITS pairs of halves of the images: it is _BIAS_OF_HALVES
# times the difference between the mean score of the halves and the score of all images.
_SPLITS = 40
_BIAS_OF_HALVES = 2.0
STILL = 1e-6  # resamples that differ by less than this differ by rounding only
_DRAWN_AT_ONCE = 100  # resamples whose draws are in memory at once


@dataclass(frozen=True)
class Drawn:
    """A number and its values in r resamples of images. The number is a detector's measure or a sum
    of such measures."""

    value: float
    drawn: Floats
    """(r,) the values in the resamples."""
    bias: float
    """How much too high the value is, estimated from halves of the images."""
    unseen: Bounds
    """What categories that no resample changes add to the interval, below and above the value."""
    images: int
    """The number of images with an object, or of units with one if images share units."""
    signed: bool = False
    """Whether the number is a difference, which may be below 0."""
    relative: bool = False
    """Whether the number is a share of another one: a share may be above 1, and a difference below
    -1."""
    doubt: Bounds | None = None
    """How much lower and higher a mean distance may be, because of a bias that its resamples do not
    show; None for other numbers."""
    by_units: bool = False
    """Whether images share units."""
    without: Floats | None = None
    """(units,) the value with each unit left out in turn, where it says better than resamples how
    far the value varies."""

    @property
    def counted(self) -> str:
        return "units" if self.by_units else "images"

    @property
    def centre(self) -> float:
        """The mean of the resamples: `interval` corrects the bias separately."""
        return float(np.nanmean(self.drawn))

    def interval(self, reach: float = NORMAL) -> Estimate:
        """Return the value with its interval, `reach` standard errors long.

        The interval is centred on the value minus its bias, and is extended to include the value. A
        share has Wilson's interval, for the number of rows that gives the bootstrap's standard
        error. A difference has an interval of equal length on both sides. Both use Student's t,
        with the number of images minus 1 as degrees of freedom. If few images change a difference,
        its resamples vary too little: one more such image of two more images is added to its
        variance. If no resample changes the value, each side is as long as Wilson's interval of 0
        among these images. There is no interval if there are too few images or the value is not
        finite.

        Few units have few values, and all of these additions together make the interval of a
        difference too long. If units change it, it has the longer one of Student's interval and of
        the one with another unit of two more.

        With `without`, the standard error is the jackknife's, with one more unit that changes the
        value as much as any does. Nothing else is added to a difference that any unit changes: a
        unit changes a number of pixels by far less than the whole number.
        """
        drawn = self.drawn[np.isfinite(self.drawn)]
        if self.images < FEWEST_IMAGES or not math.isfinite(self.value) or len(drawn) < 2:
            return Estimate(self.value)
        is_difference = self.signed or self.relative or self.doubt is not None
        adds_image = is_difference and self.without is None
        error = float(np.std(drawn, ddof=1))
        if self.without is not None:
            error = _error_with_one_more(self.without)
        middle = self.value - self.bias
        if error <= STILL:
            below = above = 0.0
        elif is_difference or not 0 < middle < 1:
            one_more_image = 0.0
            if adds_image:
                one_more_image = reach / math.sqrt(self.images * (self.images + 2))
            by_student = error * student_reach(reach, self.images - 1)
            below = above = math.hypot(by_student, one_more_image)
            if adds_image and self.by_units:
                below = above = max(by_student, math.hypot(error * reach, one_more_image))
        else:
            rows = middle * (1 - middle) / error**2
            low, high = wilson_reach(middle, rows, reach, self.images - 1)
            below = middle - low
            above = high - middle
        is_seen = is_difference and (self.by_units or self.without is not None)
        if error <= STILL or not is_seen:
            below, above = mover_distances((below, above), self.unseen)
        if below + above <= STILL:
            below = above = reach**2 / (self.images + reach**2)
        least = -1.0 if self.signed else 0.0
        most = 1.0
        if self.relative:
            least, most = (-math.inf, 1.0) if self.signed else (0.0, math.inf)
        doubt_below, doubt_above = self.doubt or (0.0, 0.0)
        low = min(self.value, max(least, middle - below - doubt_below))
        high = max(self.value, min(most, middle + above + doubt_above))
        return Estimate(self.value, float(low), float(high))


def _error_with_one_more(without: Floats) -> float:
    """Return the jackknife's standard error for n units and one more, which changes the value as
    much as the unit that changes it most.

    The jackknife alone is too short for few units whose errors are skewed: in simulations
    (`scripts/prove_masks.py`), intervals of 20 images held the truth in 83 to 94 %.
    """
    changes = np.abs(without - without.mean())
    squares = np.square(changes)
    total = float(squares.sum() + squares.max())
    units = len(without)
    return math.sqrt(total * (units - 1) / units)


def weighted_sum(parts: Sequence[tuple[float, Drawn]]) -> Drawn:
    """Return a weighted sum of numbers of the same images: a drop is ((1, base), (-1, shift)), mPC
    a mean of shifts."""
    below = []
    above = []
    doubt: Bounds | None = None
    for weight, part in parts:
        lower, upper = part.unseen
        if weight <= 0:  # the upper end of a subtracted part moves the lower end of the sum
            lower, upper = upper, lower
        below.append(abs(weight) * lower)
        above.append(abs(weight) * upper)
        if part.doubt is not None:
            less, more = part.doubt if weight > 0 else part.doubt[::-1]
            doubt_below, doubt_above = doubt or (0.0, 0.0)
            doubt = doubt_below + abs(weight) * less, doubt_above + abs(weight) * more
    without: Floats | None = None
    left_out = [weight * part.without for weight, part in parts if part.without is not None]
    if len(left_out) == len(parts):
        without = np.sum(left_out, axis=0)
    return Drawn(
        value=sum(weight * part.value for weight, part in parts),
        drawn=np.sum([weight * part.drawn for weight, part in parts], axis=0),
        bias=sum(weight * part.bias for weight, part in parts),
        unseen=(math.hypot(*below), math.hypot(*above)),
        images=min(part.images for _, part in parts),
        signed=any(weight < 0 or part.signed for weight, part in parts),
        doubt=doubt,
        by_units=any(part.by_units for _, part in parts),
        without=without,
    )


def resampled_ratio(part: Drawn, whole: Drawn) -> Drawn:
    """Return `part` over `whole`, NaN if `whole` is not above 0. An example is rPC, which is mPC
    over the base's AP."""
    drawn = np.full_like(part.drawn, np.nan)
    if not whole.value > 0:
        return Drawn(math.nan, drawn, 0.0, (0.0, 0.0), part.images)
    np.divide(part.drawn, whole.drawn, out=drawn, where=whole.drawn > 0)
    value = part.value / whole.value
    least = whole.value / 2
    corrected = (part.value - part.bias) / max(whole.value - whole.bias, least)
    whole_below, whole_above = whole.unseen
    of_whole = (value * whole_above, value * whole_below)
    below, above = mover_distances(part.unseen, of_whole)
    doubt = None
    if part.doubt is not None:
        less, more = part.doubt
        doubt = less / whole.value, more / whole.value
    without = None
    if part.without is not None and whole.without is not None:
        without = part.without / np.maximum(whole.without, least)
    return Drawn(
        value,
        drawn,
        bias=value - corrected,
        unseen=(float(below) / whole.value, float(above) / whole.value),
        images=min(part.images, whole.images),
        relative=True,
        doubt=doubt,
        by_units=part.by_units,
        without=without,
    )


class Number(Protocol):
    """A number that was resampled with others: how many images it is of, and an interval of any
    length."""

    @property
    def images(self) -> float: ...

    @property
    def counted(self) -> str:
        """What `images` counts: images, images per class or units."""
        ...

    @property
    def centre(self) -> float:
        """What the draws lie around."""
        ...

    @property
    def drawn(self) -> Floats: ...

    def interval(self, reach: float) -> Estimate: ...


def joint_reach(numbers: Sequence[Number]) -> float:
    """Return how many standard errors long the intervals of numbers of the same images are to hold
    together."""
    known = [number for number in numbers if np.isfinite(number.drawn).any()]
    if not known:
        return NORMAL
    centres = np.array([number.centre for number in known])
    drawn = np.stack([number.drawn for number in known], axis=1)
    return simultaneous_reach(centres, drawn)


def simultaneous_intervals(numbers: Sequence[Number]) -> list[Estimate]:
    """Return intervals that hold together, such as those of the drops under all shifts."""
    reach = joint_reach(numbers)
    return [number.interval(reach) for number in numbers]


# The units of n images, (n,), and the values of m models, (n, m).
UnitValues = tuple[Ints, AnyFloats | Bools]


@dataclass(frozen=True)
class Units:
    """The units of n images. Images of one unit (frames of a video) are drawn together."""

    of_image: Ints
    """(n,) the unit of each image, numbered from 0."""
    count: int
    """The number of units, each of which has an image."""
    seed: int = 0
    """The seed of `times`."""

    @property
    def shared(self) -> bool:
        """Whether any two images have the same unit."""
        return self.count < len(self.of_image)

    @classmethod
    def of_images(cls, images: int) -> Self:
        """Return units of one image each."""
        return cls(np.arange(images), images)

    @classmethod
    def of(cls, units: Ints) -> Self:
        """Return units from any numbers, (n,); equal numbers mark one unit."""
        numbers, of_image = np.unique(units, return_inverse=True)
        return cls(of_image.reshape(-1), len(numbers))

    @cached_property
    def times(self) -> NDArray[np.uint16]:
        """How often each of `REPLICATES` resamples draws each unit, (r, units), for numbers that
        are compared."""
        rng = seeded_generator(self.seed, "units")
        blocks = []
        for _ in range(REPLICATES // _DRAWN_AT_ONCE):
            weights = bootstrap_weights(self.count, _DRAWN_AT_ONCE, rng)
            blocks.append(weights.astype(np.uint16))
        return np.concatenate(blocks)

    def mean(self, units: Ints, values: AnyFloats | Bools) -> Floats:
        """Return the mean of values (n, m) of images with these units (n,) in each resample, (r,
        m).

        The variance over resamples of k units is (k - 1) / k of the true variance, so deviations
        are made longer to match. A resample without any of these units keeps the value of all of
        them.
        """
        distinct, unit, images = np.unique(units, return_inverse=True, return_counts=True)
        of_models = [np.bincount(unit.ravel(), column) for column in values.T]
        sums = np.stack(of_models, axis=1)
        drawn = self.times[:, distinct].astype(np.float64)
        whole = drawn @ images[:, None]
        value = values.mean(axis=0)
        means = np.tile(value, (len(drawn), 1))
        np.divide(drawn @ sums, whole, out=means, where=whole > 0)
        count = len(distinct)
        longer = math.sqrt(count / max(count - 1, 1))
        return value + (means - value) * longer

    def average(self, classes: Sequence[UnitValues]) -> Floats:
        """Return the average over classes in each resample, (r, m), from the units and the values
        of each class.

        A class with one unit does not vary. Such classes together count as one class whose units
        they are.
        """
        total = np.zeros((REPLICATES, classes[0][1].shape[1]))
        single_units = []
        single_means = []
        for units, values in classes:
            first = units[0]
            if (units == first).all():
                single_units.append(int(first))
                single_means.append(values.mean(axis=0))
            else:
                total += self.mean(units, values)
        if single_units:
            means = self.mean(np.array(single_units), np.stack(single_means))
            total += len(single_units) * means
        return total / len(classes)

    def drawn(self, replicates: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Draw units with replacement; return how often each image is drawn, (replicates, n)."""
        weights = bootstrap_weights(self.count, replicates, rng)
        return weights.astype(np.int32)[:, self.of_image]

    def halves(self, seed: int) -> NDArray[np.int32]:
        """Return 0/1 weights of `_SPLITS` random halves of the units and of their complements, (2 ·
        `_SPLITS`, n)."""
        rng = seeded_generator(seed, "halves of images")
        orders = np.stack([rng.permutation(self.count) for _ in range(_SPLITS)])
        first = (orders < self.count // 2).astype(np.int32)
        both = np.concatenate([first, 1 - first])
        return both[:, self.of_image]

    def counted(self, marked: Bools) -> Ints:
        """Return how many units have an image that is marked, (k,), for k marks of each image, (n,
        k)."""
        marked_units = np.zeros((self.count, marked.shape[1]), bool)
        image, column = np.nonzero(marked)
        unit = self.of_image[image]
        marked_units[unit, column] = True
        return marked_units.sum(axis=0)


def ratio_or_nan(
    part: NDArray[Any],
    whole: NDArray[Any],
    where: Bools | None = None,
) -> Floats:
    """Return `part` over `whole`, and NaN elsewhere. where: by default, where `whole` is above 0."""
    if where is None:
        where = whole > 0
    unknown = np.full(part.shape, np.nan)
    return np.divide(part, whole, out=unknown, where=where)


def mean_of_finite(values: Floats) -> Floats:
    """Return the mean over the first axis without its NaN values; NaN if every value is NaN."""
    finite = np.isfinite(values)
    sums = np.where(finite, values, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / finite.sum(axis=0))


def mean_over_categories(
    values: Floats,
    draws: AnyFloats,
    halves: Floats,
    images: Ints,
    whole: int,
    bias_of_halves: float = _BIAS_OF_HALVES,
    *,
    by_units: bool,
) -> Drawn:
    """Return the mean over categories that have objects: values (k,), draws (k, r), halves (k, h),
    images (k,).

    The variance over resamples of n images is (n - 1) / n of the true variance, so each category's
    deviations are made longer to match. No resample changes a category if all of its objects are
    found, if none is, or if one image has all of them. Such categories together count as one share,
    of the number of images that their mean is worth. The bias is estimated from halves: fewer
    images score higher by chance. A half scores higher than all images, by about half of the bias
    that all images have. halves may also be all images but one: bias_of_halves says how often what
    they score higher is the bias.
    """
    finite = np.isfinite(values)
    if not finite.any():
        drawn = np.full(draws.shape[1], np.nan)
        return Drawn(math.nan, drawn, 0.0, (0.0, 0.0), whole, by_units=by_units)
    values = values[finite]
    draws = draws[finite].astype(np.float64)
    images = images[finite]
    longer = np.sqrt(images / np.maximum(images - 1, 1))
    column = values[:, None]
    deviations = (draws - column) * longer[:, None]
    drawn = mean_of_finite(column + deviations)
    higher = mean_of_finite(halves[finite].T) - values
    # One image has no halves, and no bias that shows.
    bias = bias_of_halves * float(np.nan_to_num(higher).mean())
    highest = np.fmax.reduce(draws, axis=1)
    lowest = np.fmin.reduce(draws, axis=1)
    still = ~(highest - lowest > STILL)
    unseen = (0.0, 0.0)
    if still.any():
        share = float(values[still].mean())
        count = still.sum()
        worth = count**2 / (1 / images[still]).sum()
        low, high = wilson_interval(share * worth, worth)
        part = count / len(values)
        unseen = (part * (share - low), part * (high - share))
    value = float(values.mean())
    return Drawn(value, drawn, bias, unseen, whole, by_units=by_units)


@dataclass(frozen=True)
class CategoryScores:
    """The measures of a model for each of k categories, on the images of one group. If images share
    units, numbers of images are numbers of units."""

    values: Mapping[str, Floats]
    """(k,) on all images."""
    draws: Mapping[str, AnyFloats]
    """(k, r) in resamples."""
    parts: Mapping[str, Floats]
    """(k, h) on parts of the images, from which the bias is estimated."""
    images: Mapping[str, Ints]
    """(k,) the number of images that the measure of a category is of."""
    whole: int
    """The number of all images."""
    bias_of_parts: float
    """How many times what the parts score higher is the bias."""
    by_units: bool = False
    """Whether images share units."""
    leaves_each_out: bool = False
    """Whether the parts are all units but one, for each in turn."""
    of_all: str = ""
    """A measure of all categories together, whose k is 1."""

    def mean(self, measure: str, categories: Iterable[int]) -> Drawn:
        """Return the mean of a measure over categories; NaN without any."""
        chosen = [0] if measure == self.of_all else list(categories)
        images = self.images[measure][chosen]
        whole = int(images[0]) if len(chosen) == 1 else self.whole
        values = self.values[measure][chosen]
        draws = self.draws[measure][chosen]
        parts = self.parts[measure][chosen]
        if self.leaves_each_out:
            # A category of one unit varies in a way that no resample shows.
            single = images <= 1
            draws[single] = values[single, None]
        number = mean_over_categories(
            values,
            draws,
            parts,
            images,
            whole,
            self.bias_of_parts,
            by_units=self.by_units,
        )
        if not self.leaves_each_out:
            return number
        # Without its only unit, a category is not among those of the mean.
        without = mean_of_finite(parts)
        unknown = ~np.isfinite(without)
        without[unknown] = number.value
        return replace(number, without=without)


def interval_of_draws(
    value: float,
    drawn: Floats,
    beside: Bounds = (0.0, 0.0),
    least: float = -1.0,
    units: int | None = None,
) -> Estimate:
    """Return `percentile_interval`, or that of a `Drawn` if so many units were resampled and not
    images."""
    if units is None:
        return percentile_interval(value, drawn, beside, least)
    number = Drawn(
        value,
        drawn,
        bias=0.0,
        unseen=(0.0, 0.0),
        images=units,
        signed=least < 0,
        relative=least < -1,
        by_units=True,
    )
    return number.interval()


def share_estimate(hit: Bools, units: Ints | None) -> Estimate:
    """Return the share of n rows that are hit, with Wilson's interval, or over units (n,) with
    `clustered_interval`."""
    if units is None:
        return wilson_estimate(int(hit.sum()), len(hit))
    hits, rows = count_by_unit(hit, units)
    share = float(hit.mean())
    if len(rows) < FEWEST_IMAGES:
        return Estimate(share)
    return Estimate(share, *clustered_interval(hits, rows))
