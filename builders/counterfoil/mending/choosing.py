"""Choosing λ, how much drawn images weigh: on the discover half alone, by the worst context, within a bound of loss.

Pure functions on numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.models.mended import LARGEST_LAMBDA

# Chegini 2023 reports .5 and shows values around it in Figure 5.
GRID = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
# Half a point of accuracy.
MOST_LOSS = 0.005
# The accuracy of fewer rows is one row's chance.
FEWEST_ROWS = 5
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ChosenLambda:
    """The place in the grid that was chosen. worst: (g,), what was compared. allowed: (g,) bool, within the bound.

    Where no λ is within the bound, the place is that of the least loss, and nothing is allowed.
    """

    place: int
    worst: NDArray[np.float64]
    allowed: NDArray[np.bool_]


def lambda_grid(values: Iterable[float]) -> tuple[float, ...]:
    """The values in order, each once, with 0, which is the control. UserError for a negative one, NaN, and one that
    mended.json may not tell."""
    given = list(values)
    wrong = [value for value in given if not 0 <= value <= LARGEST_LAMBDA]
    if wrong or not given:
        found = ", ".join(f"{value:g}" for value in wrong) or "nothing"
        such_as = ", ".join(f"{value:g}" for value in GRID)
        raise UserError(f"λ: found {found}, expected numbers from 0 to {LARGEST_LAMBDA:g}, such as {such_as}")
    return tuple(sorted({0.0, *(abs(float(value)) for value in given)}))


def choose_lambda(
    grid: tuple[float, ...],
    context_accuracy: NDArray[np.float64],
    overall: NDArray[np.float64],
    *,
    context_rows: NDArray[np.int64],
    before: float,
    most_loss: float = MOST_LOSS,
    fewest: int = FEWEST_ROWS,
) -> ChosenLambda:
    """The λ with the largest accuracy of its worst context, among those that lose little overall.

    All on the discover half: context_accuracy (g, c) and overall (g,) for each of g values, context_rows (c,) of each
    context, `before` the accuracy of the model as it was. Little is `most_loss`, against `before` and against λ = 0,
    which `grid` holds. Which is the worst context: `worst_accuracy`. Of equals that of the
    largest mean over the same contexts, for a worst one that no λ helps decides nothing; then the smallest λ.
    """
    values = np.asarray(grid)
    if 0.0 not in grid or context_accuracy.shape != (len(grid), len(context_rows)) or overall.shape != values.shape:
        raise ValueError("a grid with 0, and accuracies for each of its values")
    worst = worst_accuracy(context_accuracy, overall, context_rows, fewest)
    floor = max(before, float(overall[grid.index(0.0)])) - most_loss
    allowed = overall >= floor - _ROUNDING
    compared = np.where(allowed, worst, -np.inf) if allowed.any() else overall
    best = np.flatnonzero(compared >= compared.max() - _ROUNDING)
    many = context_rows >= fewest
    if many.any():
        mean = context_accuracy[:, many].mean(axis=1)[best]
        best = best[mean >= mean.max() - _ROUNDING]
    return ChosenLambda(int(best[np.argmin(values[best])]), worst, allowed)


def worst_accuracy(
    context_accuracy: NDArray[np.float64],
    overall: NDArray[np.float64],
    context_rows: NDArray[np.int64],
    fewest: int = FEWEST_ROWS,
) -> NDArray[np.float64]:
    """(g,) the accuracy of each of g heads in its worst context; arrays as `choose_lambda` takes them.

    Contexts of fewer than `fewest` rows are no worst one; where all are so few, their rows are counted together, and
    without any row it is the overall accuracy.
    """
    many = context_rows >= fewest
    if many.any():
        return context_accuracy[:, many].min(axis=1)
    if context_rows.sum() > 0:
        some = context_rows > 0
        return context_accuracy[:, some] @ context_rows[some] / context_rows.sum()
    return overall.astype(np.float64)
