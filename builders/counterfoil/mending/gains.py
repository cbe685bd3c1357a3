"""What mending gains: accuracies before and after on the same rows, their paired difference, and a verdict in words.

Rows of one unit (a garment, a patient) are drawn together. Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.mending.choosing import MOST_LOSS
from counterfoil.mending.document import HELPS, Helped
from counterfoil.report.words import between, points
from counterfoil.stats import Estimate, mean_over_units, seeded, sign_test

# At this level, two-sided, one head is said to gain more than another on held-out failures.
LEVEL = 0.05
# Of fewer units that two heads decide differently not even unanimous ones reach that level: 2 / 2^5 is more.
FEWEST_UNITS = 6


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """One set of rows: how many, of how many units, accuracies before and after, and the gain with its interval.

    changed: rows that became right and rows that became wrong. p: McNemar's exact, two-sided, on rows, which is for
    rows that are units; the interval holds for any. All None of no rows.
    """

    rows: int
    units: int
    before: float | None
    after: float | None
    gain: Estimate | None
    changed: tuple[int, int]
    p: float | None


@dataclass(frozen=True, slots=True)
class HeadsCompared:
    """How much more one head gains than another: the difference with its interval, and the units behind it.

    ahead, behind: units of which the one head gets more, or fewer, rows right than the other.
    """

    difference: Estimate
    ahead: int
    behind: int

    @property
    def p(self) -> float:
        """The exact sign test of units, two-sided."""
        return sign_test(self.ahead, self.behind)

    @property
    def side(self) -> int:
        """1 where it surely gains more, -1 where it surely gains less, by the interval and the sign test; else 0.

        An interval of few units is too narrow: three that agree would be enough for it.
        """
        one = self.difference
        if self.p > LEVEL:
            return 0
        if one.low is not None and one.low > 0 and self.ahead > self.behind:
            return 1
        return -1 if one.high is not None and one.high < 0 and self.ahead < self.behind else 0

    @property
    def too_few(self) -> bool:
        """Whether so few units are decided differently that no sign test could tell."""
        return self.ahead + self.behind < FEWEST_UNITS


@dataclass(frozen=True, slots=True)
class MendVerdict:
    """Whether an arm helped: in a word, and in sentences."""

    outcome: Helped
    text: str


def measure(
    before: NDArray[np.bool_], after: NDArray[np.bool_], units: NDArray[np.int64], *, seed: int, salt: str
) -> MeasuredGain:
    """n rows that were answered rightly `before` (n,) and `after` (n,), of units (n,), equal where rows share one.

    The draws depend on `seed`, `salt` and the rows.
    """
    if not len(before):
        return MeasuredGain(0, 0, None, None, None, (0, 0), None)
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    gain = difference_of_gains(after, before, units, seed=seed, salt=salt)
    return MeasuredGain(
        rows=len(before),
        units=len(np.unique(units)),
        before=float(before.mean()),
        after=float(after.mean()),
        gain=gain,
        changed=(gained, lost),
        p=sign_test(gained, lost),
    )


def difference_of_gains(
    right_a: NDArray[np.bool_ | np.floating],
    right_b: NDArray[np.bool_ | np.floating],
    units: NDArray[np.int64],
    *,
    seed: int,
    salt: str,
) -> Estimate:
    """How much more one head gains than another on the same n rows, from the same model: (n,) right answers of both.

    What the model answered before falls out of the difference. Either may be a share in [0, 1], of several heads of
    one kind. Units are drawn together (`mean_over_units`). ValueError of no rows.
    """
    if not len(units):
        raise ValueError("a gain of no row has no value")
    return mean_over_units(right_a.astype(np.float64) - right_b.astype(np.float64), units, seeded(seed, salt))


def compare_heads(
    right_a: NDArray[np.bool_ | np.floating],
    right_b: NDArray[np.bool_ | np.floating],
    units: NDArray[np.int64],
    *,
    seed: int,
    salt: str,
) -> HeadsCompared:
    """As `difference_of_gains`, with the units that are decided differently."""
    found = difference_of_gains(right_a, right_b, units, seed=seed, salt=salt)
    of_unit = np.unique(units, return_inverse=True)[1].ravel()
    net = np.round(np.bincount(of_unit, right_a.astype(np.float64) - right_b.astype(np.float64)), 9)
    return HeadsCompared(found, int((net > 0).sum()), int((net < 0).sum()))


def verdict(
    against: Mapping[str, HeadsCompared],
    test: Estimate | None,
    *,
    controls: Sequence[Collection[str]] = (),
    everywhere: HeadsCompared | None = None,
    test_is: str = "test accuracy",
    notes: Sequence[str] = (),
    rows_are: tuple[str, str] = ("failures held out", "the confirm half"),
    most_loss: float = MOST_LOSS,
) -> MendVerdict:
    """Whether mending helped, with one or more plain sentences.

    against: on held-out failures, the difference of gains to each control by what it is called ("the head retrained
    without drawn images"). controls: of each control of as many images, what it is called at each λ that it has there;
    the others are heads retrained alone. On failures, which are all wrong, a head can only gain, and what moves it
    further gains more: so it helps in part only where it gains more than the retrained heads and than some control at
    every λ of that one. test: the change of accuracy on test, None where there is no such row; test_is: what that
    accuracy is called. everywhere: the difference to the head retrained alone on all rows, failures and not.
    notes: sentences that belong to the comparison, told before that of test. rows_are: what failures and all rows are.
    """
    failures, every = rows_are
    equal = {name for names in controls for name in names}
    beaten = [name for name, one in against.items() if one.side > 0]
    behind = [name for name, one in against.items() if one.side < 0]
    few = [name for name, one in against.items() if not one.side and one.too_few]
    open_ones = [name for name, one in against.items() if not one.side and not one.too_few]
    told = {name: f"{name} ({_difference(one)})" for name, one in against.items()}
    sentences = []
    loses = everywhere is not None and everywhere.side < 0
    elsewhere = f" on {failures} and loses elsewhere" if loses else ""
    retrained = all(name in beaten for name in against if name not in equal)
    outcome: Helped = "not shown to help"
    if not against:
        outcome = "not known"
        sentences.append("Nothing says whether this helped: there is no control to compare with.")
    elif len(beaten) == len(against) and equal:
        outcome = HELPS
        sentences.append(f"It helps{elsewhere}: on {failures} it gains more than {_listed(beaten, told)}.")
    elif retrained and any(all(name in beaten for name in names) for names in controls if names):
        outcome = "helps in part"
        sentences.append(f"It helps in part{elsewhere}: on {failures} it gains more than {_listed(beaten, told)}.")
    elif beaten:
        but = "but not more than the head retrained alone"
        if retrained:
            but = (
                "but not more than as many other images at the same λ"
                if equal
                else "as any head does that is moved further"
            )
        sentences.append(f"It is not shown to help: on {failures} it gains more than {_listed(beaten, told)}, {but}.")
    else:
        sentences.append(f"It is not shown to help: on {failures} it gains more than none of the controls.")
    if loses:
        assert everywhere is not None
        sentences.append(
            f"Of all rows of {every} it gets fewer right than the head retrained alone: {_difference(everywhere)}."
        )
    if behind:
        sentences.append(f"It gains less than {_listed(behind, told)}.")
    if open_ones:
        sentences.append(f"No difference is shown to {_listed(open_ones, told)}.")
    if few:
        sentences.append(
            f"Too few {failures} are decided differently, fewer than {FEWEST_UNITS}, to tell it from"
            f" {_listed(few, told)}."
        )
    lost = test is not None and test.high is not None and test.high < 0
    if outcome in (HELPS, "helps in part") and (loses or lost):
        outcome = "loses elsewhere"
    return MendVerdict(outcome, " ".join([*sentences, *notes, *_of_test(test, test_is, most_loss)]))


def _difference(one: HeadsCompared) -> str:
    """The difference with its interval, and with the sign test where that is what forbids to believe the interval."""
    words = f"{points(one.difference.value, signed=True)}{_interval(one.difference)}"
    low, high = one.difference.low, one.difference.high
    excluded = low is not None and high is not None and not low <= 0 <= high
    if one.side or not excluded:
        return words
    units = f"{one.ahead + one.behind} unit{'' if one.ahead + one.behind == 1 else 's'}"
    return f"{words}; sign test of {units}: p = {one.p:.2g}"


def _of_test(test: Estimate | None, test_is: str, most_loss: float) -> list[str]:
    if test is None:
        return []
    change = f"{points(test.value, signed=True)} points{_interval(test)}"
    name = test_is[0].upper() + test_is[1:]
    if test.high is not None and test.high < 0:
        return [f"Elsewhere it loses: {test_is} changes by {change}."]
    if test.value < -most_loss:
        return [f"{name} falls by more than {points(most_loss)}: {change}."]
    if test.low is not None and test.low > 0:
        return [f"{name} rises: {change}."]
    if test.low is not None and test.low > -most_loss:
        return [f"{name} stays: {change}."]
    return [f"No change of {test_is} is shown: {change}."]


def _interval(estimate: Estimate) -> str:
    told = between(estimate)
    return f", {told}" if told else ""


def _listed(names: list[str], told: Mapping[str, str]) -> str:
    words = [told[name] for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
