"""The permutation p: exact labels, no fit that matters left out, uniform under nothing and small when planted."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from planted_points import planted

from counterfoil.mining.directions.fitting import GRID, Direction, fit_direction
from counterfoil.mining.directions.folds import Fold, deal_folds
from counterfoil.mining.directions.permutation import permuted, reaches
from counterfoil.mining.directions.solvers import KernelSolver, LinearSolver
from counterfoil.mining.directions.strength import balanced_accuracy


def p_of(found: object) -> float:
    assert isinstance(found, Direction), found
    return found.p


def dealt(right: np.ndarray, units: np.ndarray | None = None) -> tuple[Fold, ...]:
    folds = deal_folds(right, units, 2, 0)
    assert not isinstance(folds, str)
    return folds


def test_labels_are_permuted_within_folds() -> None:
    _, right = planted(100, seed=0)
    folds = dealt(right)
    seen = list(islice(permuted(right, None, folds, 0), 50))
    assert all(one[fold.test].sum() == right[fold.test].sum() for one in seen for fold in folds)
    assert len({one.tobytes() for one in seen}) > 40
    # Every row is wrong about as often as its fold is.
    assert abs(np.mean(seen, axis=0)[~right].mean() - 0.75) < 0.05
    again = list(islice(permuted(right, None, folds, 0), 50))
    assert all((one == other).all() for one, other in zip(seen, again, strict=True))


def test_labels_of_a_unit_move_together_between_units_of_its_size() -> None:
    sizes = np.array([1] * 10 + [2] * 10 + [3] * 10 + [7])
    units = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(0).permutation(len(units))
    units = units[order]
    right = np.random.default_rng(1).random(len(units)) > 0.4
    folds = dealt(right, units)

    def vectors(labels: np.ndarray, fold: Fold) -> list[tuple[bool, ...]]:
        rows = fold.test
        return sorted(tuple(labels[rows[units[rows] == unit]].tolist()) for unit in np.unique(units[rows]))

    alone = units == 30  # the only unit of seven rows
    seen = list(islice(permuted(right, units, folds, 3), 20))
    for labels in seen:
        assert all(vectors(labels, fold) == vectors(right, fold) for fold in folds)
        assert (labels[alone] == right[alone]).all()
    assert len({one.tobytes() for one in seen}) == 20


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.5])
def test_shortcuts_leave_out_no_fit_that_matters(gap: float) -> None:
    points, right = planted(80, seed=int(gap * 10), gap=gap)
    folds = dealt(right)

    def best(solver: KernelSolver | LinearSolver, labels: np.ndarray) -> float:
        def score(fold: int, C: float) -> float:
            return balanced_accuracy(labels[folds[fold].test], solver.predicted(fold, labels, C))

        return max((score(0, C) + score(1, C)) / 2 for C in GRID)

    for solver in (KernelSolver(points, folds), LinearSolver(points, folds, 0)):
        for labels in (right, *islice(permuted(right, None, folds, 0), 3)):
            score = best(solver, labels)
            for asked in (0.5, 0.55, 0.6, 0.7, score - 0.01, score, score + 1e-6):
                assert reaches(solver, labels, GRID, asked) is (score >= asked - 1e-9)


def test_noise_is_called_a_direction_no_more_often_than_it_says() -> None:
    found = []
    for seed in range(50):
        points, right = planted(60, seed=seed, gap=0.0, width=12)
        found.append(p_of(fit_direction(points, right, seed=seed, grid=(0.01, 1.0), permutations=19)))
    assert np.mean(np.array(found) <= 0.1) <= 0.1 + 3 * (0.09 / 50) ** 0.5
    assert np.mean(np.array(found) <= 0.5) > 0.25


def test_units_that_share_errors_are_no_evidence_of_a_direction() -> None:
    by_unit, by_row = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        units = np.repeat(np.arange(24), 5)
        points = (rng.normal(size=(24, 6)) + 0.1 * rng.normal(size=(5, 24, 6))).transpose(1, 0, 2).reshape(120, 6)
        right = np.repeat(rng.permutation(24) >= 8, 5)
        settings = {"seed": seed, "grid": (1.0,), "permutations": 19}
        by_unit.append(p_of(fit_direction(points, right, units, **settings)))
        by_row.append(p_of(fit_direction(points, right, **settings)))
    assert np.mean(np.array(by_unit) <= 0.1) <= 0.1 + 3 * (0.09 / 25) ** 0.5
    assert np.mean(np.array(by_row) <= 0.1) > 0.8  # what the units are for


def test_a_planted_direction_has_the_smallest_p_there_is() -> None:
    points, right = planted(120, seed=0)
    units = np.arange(120) // 2
    assert p_of(fit_direction(points, right, seed=0, permutations=99)) == 0.01
    assert p_of(fit_direction(points, right, units, seed=0, permutations=60)) == 1 / 61
    assert p_of(fit_direction(points, right, seed=0, permutations=20, most_kernel_rows=50)) == 1 / 21
