"""λ is the one that serves the worst context best without losing elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from counterfoil.errors import UserError
from counterfoil.mending.judging import GRID, choose_lambda, lambda_grid

VALUES = (0.0, 0.5, 1.0, 2.0)
ROWS = np.array([10, 10])


def chosen(contexts: list[list[float]], overall: list[float], before: float = 0.8, rows: np.ndarray = ROWS) -> int:
    return choose_lambda(VALUES, np.array(contexts), np.array(overall), context_rows=rows, before=before).place


def test_the_worst_context_decides_and_not_the_average() -> None:
    contexts = [[0.2, 0.3], [0.1, 0.99], [0.4, 0.35], [0.3, 0.3]]
    assert chosen(contexts, [0.8, 0.8, 0.8, 0.8]) == 2


@pytest.mark.parametrize(
    ("overall", "before", "place"),
    [
        ([0.8, 0.8, 0.795, 0.794], 0.8, 2),  # half a point is allowed, more is not
        ([0.8, 0.7949, 0.7949, 0.7949], 0.8, 0),
        ([0.9, 0.89, 0.894, 0.8951], 0.8, 3),  # against λ = 0
        ([0.7, 0.78, 0.796, 0.7], 0.8, 2),  # against the model as it was
    ],
)
def test_what_loses_more_than_half_a_point_is_not_chosen(overall: list[float], before: float, place: int) -> None:
    assert chosen([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]], overall, before) == place


def test_where_no_lambda_helps_the_worst_context_the_others_decide() -> None:
    assert chosen([[0.0, 0.2], [0.0, 0.5], [0.0, 0.7], [0.0, 0.7]], [0.8] * 4) == 2
    # What is lost overall still counts.
    assert chosen([[0.0, 0.2], [0.0, 0.5], [0.0, 0.7], [0.0, 0.7]], [0.8, 0.8, 0.7, 0.7]) == 1
    # And contexts of too few rows do not.
    assert chosen([[0.0, 0.2], [0.0, 0.1], [0.0, 0.9], [0.0, 0.9]], [0.8] * 4, rows=np.array([10, 2])) == 0


def test_of_equals_the_smallest_is_chosen() -> None:
    assert chosen([[0.1, 0.1], [0.4, 0.4], [0.4, 0.4], [0.4, 0.4]], [0.8] * 4) == 1
    assert chosen([[0.4, 0.4]] * 4, [0.8] * 4) == 0


def test_where_all_lose_the_least_loss_is_chosen_and_said() -> None:
    found = choose_lambda(
        VALUES,
        np.array([[0.1], [0.2], [0.3], [0.4]]),
        np.array([0.7, 0.72, 0.71, 0.6]),
        context_rows=ROWS[:1],
        before=0.8,
    )
    assert found.place == 1 and not found.allowed.any()


def test_a_context_of_a_row_or_two_decides_nothing_beside_larger_ones() -> None:
    contexts = [[0.3, 0.0], [0.5, 0.0], [0.4, 1.0], [0.4, 1.0]]
    assert chosen(contexts, [0.8] * 4, rows=np.array([20, 1])) == 1
    # Where all are so small, their rows count together: (3·.4 + 4·1) / 7 is the most.
    assert chosen(contexts, [0.8] * 4, rows=np.array([3, 4])) == 2


def test_without_any_context_the_overall_accuracy_decides() -> None:
    none = np.empty((4, 0))
    found = choose_lambda(VALUES, none, np.array([0.8, 0.82, 0.81, 0.8]), context_rows=np.empty(0, int), before=0.8)
    assert found.place == 1
    empty = np.full((4, 1), np.nan)  # a context without a row has no accuracy
    assert (
        choose_lambda(VALUES, empty, np.array([0.8, 0.82, 0.81, 0.8]), context_rows=np.array([0]), before=0.8).place
        == 1
    )


def test_a_grid_is_sorted_and_holds_the_control() -> None:
    assert lambda_grid([2, 0.5, 0.5]) == (0.0, 0.5, 2.0)
    assert lambda_grid(GRID) == GRID
    assert str(lambda_grid([-0.0])) == "(0.0,)"


@pytest.mark.parametrize("values", [[], [-1.0, 0.5], [float("nan")], [float("inf")], [1e30]])
def test_a_grid_of_something_else_is_refused(values: list[float]) -> None:
    with pytest.raises(UserError, match="expected numbers from 0"):
        lambda_grid(values)
