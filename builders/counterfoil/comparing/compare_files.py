"""`compare`: the difference of two models' scores of the same images, with an interval, an exact
test, and how many images would decide it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.comparing.answer_files import FileAnswers, Key, case_counts, read_answer_file
from counterfoil.comparing.messages import message
from counterfoil.comparing.options import CompareOptions
from counterfoil.documents import Count, Strict
from counterfoil.errors import Problems, some_of
from counterfoil.options import takes
from counterfoil.paired_stats import (
    PairCount,
    clustered_error,
    pairs_of_half_width,
    sign_flip_test,
    tango_interval,
)
from counterfoil.report.words import (
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_points,
    format_probability,
    interval_sign,
)
from counterfoil.resampled_stats import FEWEST_IMAGES, Units, interval_of_draws, share_estimate
from counterfoil.stats import (
    CONFIDENCE,
    NORMAL,
    NORMAL_OF_POWER,
    POWER,
    Estimate,
    sign_test,
    student_reach,
)

_LEVEL = round(1 - CONFIDENCE, 10)
# McNemar's test of fewer differing images never reaches the level: 2 / 2^5 is larger.
_FEWEST_DIFFERING = 6
MCNEMAR = "McNemar exact"
SIGN_FLIPS = "sign flips"
PairedVerdict = Literal["first is better", "second is better", "undecided"]


@dataclass(frozen=True, slots=True)
class ComparedFile(Strict):
    """A file of answers, and its mean score over the images that are in both files."""

    name: str
    score: Estimate
    """The mean score, with its interval."""
    key_columns: tuple[str, ...]
    """The columns that name an image."""
    score_column: str
    """The column of the scores, or the two that are compared."""
    only_here: Count
    """The number of images that the other file does not score."""
    unscored: Count
    """The number of rows without a score."""
    averaged: Count
    """The number of images whose score is a mean over several answers."""
    lowest: float
    """The lowest score of an image in both files."""
    highest: float
    """The highest score of an image in both files."""
    binary: bool
    """Whether every score is 0 or 1."""

    @property
    def is_share(self) -> bool:
        """Whether every score lies between 0 and 1."""
        return self.lowest >= 0 and self.highest <= 1

    @property
    def range(self) -> str:
        """Which values its scores take, in words."""
        if self.binary:
            return "are 0 or 1"
        return f"lie between {self.lowest:.4g} and {self.highest:.4g}"


@dataclass(frozen=True, slots=True)
class PairedDifference(Strict):
    """The difference of two models' mean scores of the same n images: first less second."""

    images: Count
    units: Count | None
    """The number of units, if images share any."""
    binary: bool
    """Whether every score is 0 or 1."""
    difference: Estimate
    """The difference, with its 95 % interval."""
    first_better: Count
    """The number of images on which the first model scores higher: it alone is right."""
    second_better: Count
    """The number of images on which the second model scores higher."""
    test: str
    """The exact two-sided test."""
    p: float
    error: float | None
    """The clustered standard error of the difference; None for one unit."""

    @property
    def verdict(self) -> PairedVerdict:
        """Which model is better, by the test and by the interval alike."""
        sign = interval_sign(self.difference) if self.p <= _LEVEL else 0
        if sign == 0:
            return "undecided"
        return "first is better" if sign > 0 else "second is better"

    @property
    def images_to_decide(self) -> int | None:
        """How many images decide a true difference of the measured size with a power of 80 %; None
        if it is 0."""
        size = abs(self.difference.value)
        if not size:
            return None
        needed = self.images_of_half_width(size * NORMAL / (NORMAL + NORMAL_OF_POWER))
        if needed is None or self.test != MCNEMAR:
            return needed
        differing = self.first_better + self.second_better
        return max(needed, math.ceil(_FEWEST_DIFFERING * self.images / differing))

    def images_of_half_width(self, half_width: float) -> int | None:
        """Return how many images make an interval of ± `half_width`, if they are like these.

        It uses the normal approximation. Units keep their mean size. None if the differences of
        these images do not vary.
        """
        needed = 0
        if self.binary:
            # Smoothed shares, because a few images say little about rare differences.
            needed = pairs_of_half_width(self.pairs, half_width)
        if self.error and (self.units is not None or not self.binary):
            needed = max(needed, math.ceil(self.images * (NORMAL * self.error / half_width) ** 2))
        return needed or None

    @property
    def pairs(self) -> PairCount:
        """The counts of images that only one of the models gets right."""
        return PairCount(self.images, 0, self.first_better, self.second_better)


def compare_scores(first: Floats, second: Floats, units: Ints | None = None) -> PairedDifference:
    """Compare two models' scores (n,) of the same images. units: (n,), equal numbers mark one unit.

    If every score is 0 or 1, the interval is Tango's (1998) and the test McNemar's exact one; with
    units, the interval is a bootstrap of units (`Drawn.interval`). Other scores have Student's
    interval of their mean difference, by its clustered standard error and k - 1 degrees of freedom
    for k units or images (Miller 2024, sections 2.2 and 4.2). Their test, and that with units,
    flips the signs of units. Ten units at least have an interval.
    """
    images = len(first)
    differences = first - second
    of_image = np.arange(images) if units is None else units
    count = len(np.unique(of_image))
    shared = count < images
    binary = bool(np.isin([first, second], (0.0, 1.0)).all())
    value = float(differences.mean())
    error = clustered_error(differences, of_image)
    better = int((differences > 0).sum())
    worse = int((differences < 0).sum())
    test = SIGN_FLIPS
    if binary and not shared:
        test = MCNEMAR
        p = sign_test(better, worse)
        difference = Estimate(value, *tango_interval(PairCount(images, 0, better, worse)))
    else:
        p = sign_flip_test(differences, of_image)
        difference = _mean(differences, of_image)
        if binary:
            drawn = Units.of(of_image)
            means = drawn.mean(drawn.of_image, differences[:, None])
            difference = interval_of_draws(value, means[:, 0], units=count)
    return PairedDifference(
        images,
        count if shared else None,
        binary,
        difference,
        better,
        worse,
        test,
        p,
        None if math.isnan(error) else error,
    )


def _mean(values: Floats, units: Ints) -> Estimate:
    """Return the mean of values (n,) with Student's interval over units (n,).

    There is no interval for fewer than `FEWEST_IMAGES` units or if the values do not vary.
    """
    value = float(values.mean())
    count = len(np.unique(units))
    error = clustered_error(values, units)
    if count < FEWEST_IMAGES or not error > 0:
        return Estimate(value)
    half = error * student_reach(NORMAL, count - 1)
    return Estimate(value, value - half, value + half)


@dataclass(frozen=True, slots=True)
class AnswerComparison(Strict):
    """Two files of answers to the same images, compared."""

    first: ComparedFile
    second: ComparedFile
    paired: PairedDifference
    verdict: PairedVerdict
    """Which model is better, by the test and by the interval alike."""
    images_to_decide: Count | None
    """How many images decide a true difference of the measured size with a power of 80 %, if they
    are like these. None if the measured difference is 0."""
    half_width: float | None
    """The half width that was asked for."""
    images_of_half_width: Count | None
    """How many images make an interval of this half width."""

    @property
    def unlike_scores(self) -> bool:
        """Whether the two files' scores look like two measures: 0 or 1 in one file alone, or
        beyond 0 and 1 in one file alone.

        Means over several answers are fractions also where each answer is right or wrong.
        """
        first = self.first
        second = self.second
        one_answer = not (first.averaged or second.averaged)
        if one_answer and first.binary != second.binary:
            return True
        return first.is_share != second.is_share

    @property
    def sentences(self) -> Iterator[str]:
        """The comparison in words, for people."""
        paired = self.paired
        for which, file in (("First", self.first), ("Second", self.second)):
            score = self._score(file.score)
            yield f"{which}: {score}. {file.name}, column {file.score_column}."
        if self.unlike_scores:
            yield (
                f"Scores of the first {self.first.range}, those of the second {self.second.range}:"
                " the difference means something only if both are one measure on one scale."
            )
        of_units = ""
        if paired.units is not None:
            of_units = f" of {format_count(paired.units, 'unit')}"
        yield f"{format_count(paired.images, 'image')}{of_units} in both.{self._left_out()}"
        yield f"First less second: {self._difference()}."
        better = "is right" if paired.binary else "scores higher"
        test = "McNemar's exact test" if paired.test == MCNEMAR else "exact test by sign flips"
        yield (
            f"Only the first {better} on {format_count(paired.first_better, 'image')}, only the second"
            f" on {paired.second_better:,}: {test}, p {format_probability(paired.p)}."
        )
        if self.verdict == "undecided":
            yield f"Undecided: neither is shown to be better.{self._to_decide()}"
        else:
            yield f"The {self.verdict}, by the test and by the interval."
        if self.half_width and self.images_of_half_width is not None:
            yield (
                f"An interval of ± {self._size(self.half_width)} takes about"
                f" {self.images_of_half_width:,} images like these."
            )

    def _score(self, score: Estimate) -> str:
        if self.paired.binary:
            interval = format_interval(score)
            return f"{format_percent(score.value)} right{interval and f' ({interval})'}"
        return f"mean score {self._number(score)}"

    def _difference(self) -> str:
        difference = self.paired.difference
        if not self.paired.binary:
            return self._number(difference, signed=True)
        interval = format_interval(difference)
        bounds = f" (95 % interval {interval})" if interval else ", without an interval"
        return f"{format_points(difference.value, signed=True)} points{bounds}"

    @staticmethod
    def _number(value: Estimate, *, signed: bool = False) -> str:
        text = format_number(value.value, 4, signed=signed)
        if value.low is None:
            return f"{text}, without an interval"
        return f"{text} (95 % interval {format_number(value.low, 4)} to {format_number(value.high, 4)})"

    def _size(self, value: float) -> str:
        return f"{format_points(value)} points" if self.paired.binary else format_number(value, 4)

    def _left_out(self) -> str:
        parts = []
        for which, file in (("first", self.first), ("second", self.second)):
            if file.only_here:
                parts.append(f"{format_count(file.only_here, 'image')} only in the {which}")
            if file.unscored:
                unscored = format_count(file.unscored, "row")
                parts.append(f"{unscored} of the {which} without a score")
        left_out = f" Left out: {'; '.join(parts)}." if parts else ""
        averaged = max(self.first.averaged, self.second.averaged)
        if averaged:
            left_out += f" Several answers to an image are averaged ({averaged:,} images)."
        return left_out

    def _to_decide(self) -> str:
        if self.images_to_decide is None:
            return " They are equal on these images, which do not say how many would decide."
        more = max(0, self.images_to_decide - self.paired.images)
        return (
            f" If the true difference is {self._size(abs(self.paired.difference.value))}, as measured,"
            f" about {self.images_to_decide:,} images like these ({more:,} more) show it in"
            f" {100 * POWER:.0f} % of cases."
        )


@takes(CompareOptions)
def compare(options: CompareOptions) -> AnswerComparison:
    """Compare two files of answers to the same images: the difference with its interval, an exact
    test, and how many images would decide it.

    Images are matched by their keys; those that only one file scores are counted and left out. With
    units, intervals and test count units and not images. The number of images that would decide
    assumes that the true difference is the measured one; judge it on images planned beforehand,
    because a test that is repeated until it decides finds differences that do not exist.

    Returns:
        An AnswerComparison, whose `sentences` say it in words.

    Raises:
        UserError: a file has no such columns, has several answers to an image, or is no table;
        the files share no image, or disagree about labels, questions or units.
    """
    first = read_answer_file(options)
    second = read_answer_file(options, second=True)
    labels = first.facts["label"], second.facts["label"]
    scores = first.columns.score, second.columns.score
    matched = None in scores
    if matched and case_counts(label for of_file in labels for label in of_file.values()):
        first = read_answer_file(options, cased=True)
        second = read_answer_file(options, second=True, cased=True)
    keys = sorted(first.scores.keys() & second.scores.keys())
    problems = Problems(message)
    _find_disagreements(first, second, keys, problems)
    if not keys:
        problems.add("unlike-files.images", None, _example(first), _example(second))
    units = _units(first, second, keys, options.unit, problems)
    if options.epoch and not (first.columns.epoch or second.columns.epoch):
        problems.add("unlike-files.column", "--epoch", options.epoch)
    problems.refuse()
    of_first = np.array([first.scores[key] for key in keys])
    of_second = np.array([second.scores[key] for key in keys])
    paired = compare_scores(of_first, of_second, units)
    half_width = options.half_width or None
    named = first.path.name != second.path.name
    files = []
    for answers, of_file, other in ((first, of_first, second), (second, of_second, first)):
        score = _mean(of_file, np.arange(len(keys)) if units is None else units)
        if paired.binary:
            score = share_estimate(of_file == 1, units)
        files.append(
            ComparedFile(
                name=answers.path.name if named else str(answers.path),
                score=score,
                key_columns=answers.columns.key,
                score_column=answers.columns.worth,
                only_here=len(answers.scores.keys() - other.scores.keys()),
                unscored=answers.unscored,
                averaged=answers.averaged,
                lowest=float(of_file.min()),
                highest=float(of_file.max()),
                binary=bool(np.isin(of_file, (0.0, 1.0)).all()),
            )
        )
    return AnswerComparison(
        first=files[0],
        second=files[1],
        paired=paired,
        verdict=paired.verdict,
        images_to_decide=paired.images_to_decide,
        half_width=half_width,
        images_of_half_width=half_width and paired.images_of_half_width(half_width),
    )


def _example(answers: FileAnswers) -> str:
    key = next(iter(answers.scores))
    columns = ", ".join(answers.columns.key)
    return f"{answers.path} has '{', '.join(key)}' in {columns}"


def _find_disagreements(
    first: FileAnswers,
    second: FileAnswers,
    keys: list[Key],
    problems: Problems,
) -> None:
    """Add a problem for each fact about images that the two files state differently."""
    for what in ("label", "question", "unit"):
        of_first = first.facts[what]
        of_second = second.facts[what]
        differing = []
        for key in keys:
            known = of_first.get(key)
            if known is not None and of_second.get(key, known) != known:
                differing.append(", ".join(key))
        if differing:
            shown = some_of(differing, 3)
            problems.add("unlike-files.facts", None, shown, what=what, images=len(differing))


def _units(
    first: FileAnswers,
    second: FileAnswers,
    keys: list[Key],
    named: str | None,
    problems: Problems,
) -> Ints | None:
    """Return the number of each image's unit, (n,); None without units. Add what is wrong."""
    of_first = first.facts["unit"]
    of_second = second.facts["unit"]
    if not (of_first or of_second):
        if named:
            problems.add("unlike-files.column", "--unit", named)
        return None
    units = [of_first.get(key) or of_second.get(key) for key in keys]
    missing = units.count(None)
    if missing:
        problems.add("unlike-files.units", None, expected=len(keys), units=missing)
        return None
    _, numbers = np.unique(np.array(units), return_inverse=True)
    return numbers.ravel()
