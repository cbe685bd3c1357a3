"""How well a ranking of rows finds a known slice; the one measure for every method, as dcbench's
protocol has it.

A method gives one or several scores of rows, high for what it takes to be in its slice. A true
slice is matched with the score (or its complement) of the best average precision *on validation*;
what is reported of it is measured on test. Rows of equal scores are taken in no order: what depends
on it is the mean over all orders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats

# A slice counts as found above this precision among the first ten (Eyuboglu 2022, section 5).
FOUND = 0.8


@dataclass(frozen=True, slots=True)
class Quality:
    """What a ranking is worth for one slice.

    lift: mean over k from one to the slice's size of the precision among the first k, over the
    slice's share of all
    rows: one where rows are shuffled, one over that share where every member comes first. found:
    precision at 10 above .8.
    """

    at_10: float
    at_25: float
    average_precision: float
    lift: float
    found: bool


def precisions(scores: AnyFloats, members: Bools) -> Floats:
    """Return (n,) the expected share of members in the first 1, 2, … n rows by falling score, ties
    in random order."""
    scores, members = _checked(scores, members)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    hits = members[order].astype(np.float64)
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    sizes = np.diff(np.r_[starts, len(ranked)])
    expected = np.repeat(np.add.reduceat(hits, starts) / sizes, sizes)
    return np.cumsum(expected) / np.arange(1, len(ranked) + 1)


def average_precision(scores: AnyFloats, members: Bools) -> float:
    """Return scikit-learn's, of (n,) scores and (n,) bool. Raise ValueError without members or
    finite scores."""
    from sklearn.metrics import average_precision_score

    scores, members = _checked(scores, members)
    return float(average_precision_score(members, scores))


def quality(scores: AnyFloats, members: Bools) -> Quality:
    """Measure one ranking, (n,), of one slice, (n,) bool. Raise ValueError as `average_precision`
    does."""
    along = precisions(scores, members)
    share = float(np.mean(members))
    at_10 = float(along[min(10, len(along)) - 1])
    return Quality(
        at_10=at_10,
        at_25=float(along[min(25, len(along)) - 1]),
        average_precision=average_precision(scores, members),
        lift=float(along[: int(np.sum(members))].mean() / share),
        found=at_10 > FOUND,
    )


def with_complements(scores: AnyFloats) -> Floats:
    """Return (n, s) scores with their complements behind them, (n, 2s): dcbench takes both for
    slices."""
    scores = np.asarray(scores, np.float64)
    return np.concatenate([scores, -scores], axis=1)


def match(scores: AnyFloats, members: Bools) -> int:
    """Return which of (n, s) scores fits a slice best: highest average precision, the first of
    equal ones."""
    precisions = [average_precision(column, members) for column in np.asarray(scores, np.float64).T]
    return int(np.argmax(precisions))


def judged(
    validation: AnyFloats,
    validation_members: Bools,
    test: AnyFloats,
    test_members: Bools,
) -> tuple[int, Quality]:
    """Return the score that `match` chooses on validation, (n, s), and its quality on test, (m,
    s)."""
    chosen = match(validation, validation_members)
    return chosen, quality(np.asarray(test)[:, chosen], test_members)


def _checked(scores: AnyFloats, members: Bools) -> tuple[Floats, Bools]:
    values = np.asarray(scores, np.float64)
    inside = np.asarray(members, bool)
    if values.shape != inside.shape or values.ndim != 1:
        raise ValueError(f"expected a score for each of {len(inside)} rows, found {values.shape}")
    if not inside.any():
        raise ValueError("no row is a member of the slice")
    if np.isnan(values).any():
        raise ValueError("a score is not a number")
    return values, inside
