"""Hypotheses on the confirm half: each set's failure rate beside the rest's, with its test, interval and q-value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.findings import Compared, Difference, Rate, SmallestDifference
from counterfoil.mining.method import Hypothesis
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import (
    MISSING,
    POWER,
    FailureCount,
    benjamini_hochberg,
    count_failures,
    false_coverage_level,
    newcombe_interval,
    rate_interval,
    score_test,
    smallest_difference,
)

_TYPICAL_SHARE = 0.2  # of a class, where no hypothesis came as far as a test


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """n rows of one half: features (n, width), labels, failed, units (n,)."""

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    units: NDArray[np.int64]

    def of_classes(self, labels: Sequence[int]) -> NDArray[np.int64]:
        return np.flatnonzero(np.isin(self.labels, labels))


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What became of one hypothesis. `level` is that of a reported finding's intervals, None where not confirmed."""

    in_set: FailureCount
    rest: FailureCount
    p: float
    q: float
    confirmed: bool
    level: float | None

    def compared(self) -> Compared:
        return compared(self.in_set, self.rest, self.level)


@dataclass(frozen=True, slots=True)
class Counted:
    """A hypothesis' counts, (the set, the rest), on what it is tested on: rows of the confirm half, rendered images."""

    rows: tuple[FailureCount, FailureCount] | None
    rendered: tuple[FailureCount, FailureCount] | None

    @property
    def tested_on(self) -> Literal["rows", "rendered", "both"]:
        if self.rendered is None:
            return "rows"
        return "rendered" if self.rows is None else "both"

    @property
    def first(self) -> tuple[FailureCount, FailureCount]:
        """The counts that its rates are told of: rows, where it is tested on them."""
        counts = self.rendered if self.rows is None else self.rows
        assert counts is not None
        return counts

    def p(self, margin: float) -> float:
        """Of both tests the larger p: either hypothesis alone would be enough to refute it (intersection-union)."""
        return max(score_test(*each, margin) for each in (self.rows, self.rendered) if each is not None)


def count_hypothesis(hypothesis: Hypothesis, rows: LabelledRows) -> tuple[FailureCount, FailureCount]:
    """Failures of the set and of the rest of its classes among those of some rows that it is tested on."""
    own = np.flatnonzero(hypothesis.tested_on(rows.features, rows.labels))
    members = hypothesis.members(rows.features[own], rows.labels[own])
    return count_failures(rows.failed[own], rows.units[own], members)


def confirm(
    counts: Sequence[tuple[FailureCount, FailureCount]], margin: float, fdr: float, p: Sequence[float] | None = None
) -> list[Confirmation]:
    """Test m sets against their rests; confirmed are those with q ≤ `fdr` (Benjamini and Hochberg over all m).

    Sets of one class overlap, mostly with positive dependence, for which the procedure holds. `p` where the p-values
    come from elsewhere.
    """
    values = [score_test(in_set, rest, margin) for in_set, rest in counts] if p is None else list(p)
    adjusted = benjamini_hochberg(values)
    reported = sum(q <= fdr for q in adjusted)
    # Of the intervals of what is reported one in twenty misses on average: never narrower than the usual ones.
    level = false_coverage_level(reported, len(counts), min(fdr, MISSING))
    return [
        Confirmation(in_set, rest, value, q, q <= fdr, level if q <= fdr else None)
        for (in_set, rest), value, q in zip(counts, values, adjusted, strict=True)
    ]


def compared(in_set: FailureCount, rest: FailureCount, level: float | None = None) -> Compared:
    """Both rates and their difference, with 95 % intervals; and at `level`, for what was selected to be reported."""
    there = in_set.rows > 0 and rest.rows > 0
    return Compared(
        set=rate_of(in_set),
        rest=rate_of(rest),
        difference=Difference(
            value=in_set.rate - rest.rate if there else None,
            interval=newcombe_interval(in_set, rest),
            reported_interval=None if level is None else newcombe_interval(in_set, rest, level),
        ),
    )


def rate_of(count: FailureCount) -> Rate:
    return Rate(count.rows, count.units, count.failures, count.rate if count.rows else None, rate_interval(count))


def would_have_been_seen(
    counts: Sequence[tuple[FailureCount, FailureCount]],
    rows: Sequence[LabelledRows],
    margin: float,
    fdr: float,
    tested: int | None = None,
) -> SmallestDifference | None:
    """The smallest difference that this run would have shown in its typical (median) set; None without any row.

    rows: those of each audit. Where no hypothesis was tested, the typical set is a fifth of a class. tested: how many
    were, where `counts` are not all of them.
    """
    carried = max(len(counts), 1) if tested is None else tested
    sizes = list(counts) or [_typical(own, label) for own in rows for label in np.unique(own.labels).tolist()]
    # One that could be shown by no difference is worse than any.
    seen = [(smallest_difference(*each, margin, fdr, carried), each) for each in sizes]
    seen.sort(key=lambda one: (one[0] is None, one[0] or 0.0))
    if not seen:
        return None
    difference, (in_set, rest) = seen[(len(seen) - 1) // 2]
    return SmallestDifference(difference, POWER, in_set.rows, rest.rows, rest.rate if rest.rows else 0.0)


def smallest_seen(counted: Sequence[Counted], rows: Sequence[LabelledRows], mine: Mine) -> SmallestDifference | None:
    """`would_have_been_seen` on what `mine.confirm` says: where two tests must both reject, by the one that sees less.

    Where no hypothesis was tested, as many images as would have been rendered, which fail as the rows of a class do.
    """
    seen = []
    if mine.confirm != "rendered":
        on_rows = [one.rows for one in counted if one.rows is not None]
        seen.append(would_have_been_seen(on_rows, rows, mine.margin, mine.fdr))
    drawn = [one.rendered for one in counted if one.rendered is not None]
    if mine.confirm == "rendered" and not drawn:
        drawn = [_as_rendered(own, label, mine.rendered) for own in rows for label in np.unique(own.labels).tolist()]
        seen.append(would_have_been_seen(drawn, rows, mine.margin, mine.fdr, tested=1))
    elif drawn:
        seen.append(would_have_been_seen(drawn, rows, mine.margin, mine.fdr, tested=len(counted)))
    known = [one for one in seen if one is not None]
    return max(known, key=lambda one: 1.0 if one.difference is None else one.difference) if known else None


def _as_rendered(rows: LabelledRows, label: int, images: int) -> tuple[FailureCount, FailureCount]:
    """Counts of `images` that fail as the rows of a class do, and of as many more."""
    own = rows.of_classes([label])
    failed = round(images * float(rows.failed[own].mean()))
    one = FailureCount(images, images, failed, float(images))
    return one, one


def _typical(rows: LabelledRows, label: int) -> tuple[FailureCount, FailureCount]:
    own = rows.of_classes([label])
    members = np.zeros(len(own), dtype=bool)
    members[: max(1, round(len(own) * _TYPICAL_SHARE))] = True
    return count_failures(rows.failed[own], rows.units[own], members)
