"""What mending gains: accuracies before and after on the same rows, their paired difference, and a verdict in words.

Rows of one unit (a garment, a patient) are drawn together. Pure functions on arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.spoken_numbers import between, points
from counterfoil.evaluation.statistics import REPLICATES, Estimate, percentile_interval, wilson
from counterfoil.mending.choosing import MOST_LOSS

# Draws that are held at once: kinds of units times replicates.
_MOST_AT_ONCE = 4_000_000


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
        p=exact_mcnemar(gained, lost),
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
    one kind. A replicate draws as many units as there are, with replacement. Where all units agree on -1, 0 or 1 there
    is nothing to draw, and the bound is Wilson's of a share of units; of one unit otherwise no interval can be given.
    ValueError of no rows.
    """
    if not len(units):
        raise ValueError("a gain of no row has no value")
    difference = right_a.astype(np.float64) - right_b.astype(np.float64)
    _, of_unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    sums = np.bincount(of_unit.ravel(), difference)
    value = float(difference.mean())
    if (difference == difference[0]).all() and difference[0] in (-1.0, 0.0, 1.0):
        return _of_one_mind(value, len(sizes))
    if len(sizes) < 2:
        return Estimate(value)
    # Units alike in sum and size are drawn by number: the same distribution, whatever the number of units.
    kinds, counts = np.unique(np.stack([np.round(sums, 9), sizes.astype(np.float64)]), axis=1, return_counts=True)
    digest = hashlib.sha256(f"{seed}\0{salt}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    drawn = np.empty(REPLICATES)
    block = max(1, _MOST_AT_ONCE // len(counts))
    for start in range(0, REPLICATES, block):
        stop = min(start + block, REPLICATES)
        times = rng.multinomial(len(sizes), counts / len(sizes), size=stop - start)
        drawn[start:stop] = (times @ kinds[0]) / (times @ kinds[1])
    return percentile_interval(value, drawn)


def _of_one_mind(value: float, units: int) -> Estimate:
    share = wilson(round(abs(value)) * units, units)
    assert share.low is not None and share.high is not None
    if value == 0:
        return Estimate(0.0, -share.high, share.high)
    return Estimate(value, share.low, 1.0) if value > 0 else Estimate(value, -1.0, -share.low)


def exact_mcnemar(gained: int, lost: int) -> float:
    """Two-sided p of "as many become right as become wrong", by the binomial distribution; 1 where nothing changed."""
    from scipy import stats

    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0


def verdict(against: Mapping[str, Estimate], test: Estimate | None, most_loss: float = MOST_LOSS) -> str:
    """One or more plain sentences: whether mending helped.

    against: on held-out failures, the difference of gains to each control by what it is called ("the head retrained
    without drawn images"). test: the change of accuracy on test, None where there is no such row.
    """
    beaten = [name for name, one in against.items() if one.low is not None and one.low > 0]
    behind = [name for name, one in against.items() if one.high is not None and one.high < 0]
    open_ones = [name for name in against if name not in beaten and name not in behind]
    told = {name: f"{name} ({points(one.value, signed=True)}{_interval(one)})" for name, one in against.items()}
    sentences = []
    if not against:
        sentences.append("Nothing says whether this helped: there is no control to compare with.")
    elif len(beaten) == len(against):
        sentences.append(f"It helps: on failures held out it gains more than {_listed(beaten, told)}.")
    elif beaten:
        sentences.append(f"It helps in part: on failures held out it gains more than {_listed(beaten, told)}.")
    else:
        sentences.append("It is not shown to help: on failures held out it gains more than none of the controls.")
    if behind:
        sentences.append(f"It gains less than {_listed(behind, told)}.")
    if open_ones:
        sentences.append(f"No difference is shown to {_listed(open_ones, told)}.")
    return " ".join([*sentences, *_of_test(test, most_loss)])


def _of_test(test: Estimate | None, most_loss: float) -> list[str]:
    if test is None:
        return []
    change = f"{points(test.value, signed=True)} points{_interval(test)}"
    if test.high is not None and test.high < 0:
        return [f"Elsewhere it loses: test accuracy changes by {change}."]
    if test.value < -most_loss:
        return [f"Test accuracy falls by more than {points(most_loss)}: {change}."]
    if test.low is not None and test.low > 0:
        return [f"Test accuracy rises: {change}."]
    return [f"Test accuracy stays: {change}."]


def _interval(estimate: Estimate) -> str:
    told = between(estimate)
    return f", {told}" if told else ""


def _listed(names: list[str], told: Mapping[str, str]) -> str:
    words = [told[name] for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
