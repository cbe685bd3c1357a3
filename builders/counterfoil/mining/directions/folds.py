"""Folds of one class's rows for cross-validation: both hold errors and right rows, and no unit stands in two."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.report.words import counted


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold: rows that are trained on and rows that are scored, both ascending as scikit-learn gives them."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def why_not(right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: int, fewest_errors: int) -> str | None:
    """Why these rows have no direction, for people; None where they may have one.

    right: (n,), whether the target's answer is right. units: (n,), rows of equal number share a unit.
    """
    rows, errors = len(right), int((~right).sum())
    if not rows:
        return "no rows"
    if not errors:
        return "no errors"
    if errors == rows:
        return "all wrong"
    fewest = max(fewest_errors, folds)  # a fold without an error, or with nothing else, trains and scores nothing
    if errors < fewest:
        return f"{counted(errors, 'error')}, at least {fewest} are needed"
    if rows - errors < fewest:
        return f"{counted(rows - errors, 'right row')}, at least {fewest} are needed"
    if units is not None:
        for words, chosen in (("all rows", right | ~right), ("all errors", ~right), ("all right rows", right)):
            found = len(np.unique(units[chosen]))
            if found < folds:
                return f"{words} are of {counted(found, 'unit')}, and a unit is not split between {folds} folds"
    return None


def deal_folds(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, folds: int, seed: int
) -> tuple[Fold, ...] | str:
    """Stratified folds, shuffled with the seed; where rows share units, each unit's rows in one fold.

    What scikit-learn's `StratifiedKFold` and `StratifiedGroupKFold` give. A few units of unequal
    errors may leave a fold without an error, or with nothing else: then the reason, for people.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    if units is None or len(np.unique(units)) == len(units):
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(right)), right)
    else:
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        splits = splitter.split(np.zeros(len(right)), right, units)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of few errors: what that comes to is asked below
        dealt = tuple(Fold(train, test) for train, test in splits)
    if all(0 < right[fold.test].sum() < len(fold.test) for fold in dealt):
        return dealt
    return f"its units are so unequal that one of {folds} folds holds no error, or nothing else"
