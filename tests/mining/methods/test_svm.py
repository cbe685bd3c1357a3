"""Directions by SVM equal those of scikit-learn; their strength, its interval and its p."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score

from counterfoil.errors import UserError
from counterfoil.mining.methods.svm import (
    GRID,
    Direction,
    DirectionFit,
    Fold,
    KernelSolver,
    LinearSolver,
    balanced_accuracy,
    deal_folds,
    fit_direction,
    fit_directions,
    permuted_labels,
    reaches_score,
    whiten,
)
from counterfoil.progress import Stage, listening

Planted = tuple[NDArray[np.float64], NDArray[np.bool_]]


def planted(
    rows: int,
    *,
    seed: int,
    gap: float = 2.0,
    errors: float = 0.25,
    width: int = 32,
    decay: float = 0.3,
) -> Planted:
    """Return unit points (rows, width) and which are right. Right and wrong ones are 2 · gap apart
    on the first axis.

    Further axes are narrower by the power `decay`, as in embeddings.
    """
    rng = np.random.default_rng(seed)
    right = rng.permutation(rows) >= round(rows * errors)
    points = rng.normal(size=(rows, width)) * np.arange(1, width + 1) ** -decay
    points[:, 0] += np.where(right, gap, -gap)
    return points / np.linalg.norm(points, axis=1, keepdims=True), right


def plain(
    points: NDArray[np.float64],
    right: NDArray[np.bool_],
    grid: Sequence[float],
    seed: int,
    units: NDArray[np.int64] | None = None,
) -> tuple[float, float, Any]:
    """Return C, cross-validated balanced accuracy and the refitted model by scikit-learn alone."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_score
    from sklearn.svm import SVC

    kind = StratifiedKFold if units is None else StratifiedGroupKFold
    folds = kind(2, shuffle=True, random_state=seed)
    models = [SVC(kernel="linear", class_weight="balanced", C=C) for C in grid]
    scores = [
        cross_val_score(
            model, points, right, groups=units, cv=folds, scoring="balanced_accuracy"
        ).mean()
        for model in models
    ]
    best = int(np.argmax(np.round(scores, 9)))
    return grid[best], scores[best], models[best].fit(points, right)


def direction(fit: Direction | str) -> Direction:
    assert isinstance(fit, Direction), fit
    return fit


@pytest.mark.parametrize(("rows", "gap"), [(50, 0.0), (140, 1.5), (300, 0.3)])
def test_c_strength_and_decisions_are_those_of_plain_scikit_learn(rows: int, gap: float) -> None:
    points, right = planted(rows, seed=rows, gap=gap)
    fit = direction(fit_direction(points, right, seed=3, permutations=0))
    C, strength, model = plain(points, right, GRID, 3)
    assert (fit.C, fit.solver) == (C, "kernel")
    assert fit.strength == pytest.approx(strength, abs=1e-12)
    np.testing.assert_allclose(fit.decision(points), model.decision_function(points), atol=1e-4)
    assert (fit.rows, fit.errors) == (rows, (~right).sum())


def test_ties_between_rows_are_broken_as_plain_scikit_learn_breaks_them() -> None:
    # If squared lengths are rounded otherwise, decisions differ by .0005 here, within libsvm's
    # tolerance.
    points, right = planted(300, seed=10, gap=0.3, width=64)
    fit = direction(fit_direction(points, right, seed=0, grid=(1.0,), permutations=0))
    _, _, model = plain(points, right, (1.0,), 0)
    np.testing.assert_allclose(fit.decision(points), model.decision_function(points), atol=1e-4)


def test_units_stay_in_one_fold_as_plain_scikit_learn_has_it() -> None:
    points, right = planted(240, seed=1, gap=1.0)
    units = np.random.default_rng(0).integers(0, 60, 240)
    fit = direction(fit_direction(points, right, units, seed=5, permutations=0))
    C, strength, _ = plain(points, right, GRID, 5, units)
    assert fit.C == C
    assert fit.strength == pytest.approx(strength, abs=1e-12)
    folds = deal_folds(right, units, 2, 5)
    assert not isinstance(folds, str)
    assert not set(units[folds[0].test]) & set(units[folds[1].test])


def test_ties_go_to_the_smallest_c_in_whatever_order_the_grid_is_given() -> None:
    points, right = planted(80, seed=4, gap=20.0)
    fit = direction(fit_direction(points, right, seed=0, grid=(8.0, 2.0, 4.0), permutations=0))
    assert (fit.C, fit.strength) == (2.0, 1.0)


def test_the_linear_solver_finds_the_kernels_direction() -> None:
    points, right = planted(700, seed=7, gap=0.5, width=64)
    for C in (1e-4, 0.1, 1.0):
        settings = {"seed": 0, "grid": (C,), "permutations": 0}
        kernel = direction(fit_direction(points, right, most_kernel_rows=700, **settings))
        linear = direction(fit_direction(points, right, most_kernel_rows=699, **settings))
        assert (kernel.solver, linear.solver) == ("kernel", "linear")
        lengths = np.linalg.norm(kernel.weights) * np.linalg.norm(linear.weights)
        assert kernel.weights @ linear.weights / lengths > 0.99


def rights(rows: int, errors: int) -> NDArray[np.bool_]:
    return np.arange(rows) >= errors


@pytest.mark.parametrize(
    ("right", "units", "reason"),
    [
        (rights(0, 0), None, "no rows"),
        (rights(30, 0), None, "no errors"),
        (rights(30, 30), None, "all wrong"),
        (rights(30, 6), None, "6 errors, at least 10 are needed"),
        (rights(30, 1), None, "1 error, at least 10 are needed"),
        (rights(30, 22), None, "8 right rows, at least 10 are needed"),
        (
            rights(30, 12),
            np.zeros(30, int),
            "all rows are of 1 unit, and a unit is not split between 2 folds",
        ),
        (
            rights(30, 12),
            np.maximum(np.arange(30), 11),
            "all errors are of 1 unit, and a unit is not split between 2 folds",
        ),
    ],
)
def test_a_class_without_a_direction_says_why(
    right: NDArray[np.bool_], units: NDArray[np.int64] | None, reason: str
) -> None:
    if units is not None and "all errors" in reason:
        units = np.where(right, units, 0)
    points = np.random.default_rng(0).normal(size=(len(right), 4))
    result = fit_direction(points, right, units, seed=0)
    assert result == reason


def test_fewer_errors_than_folds_are_told_whatever_is_asked_for() -> None:
    points, right = planted(30, seed=0, errors=1 / 30)
    assert fit_direction(points, right, seed=0, fewest_errors=1) == "1 error, at least 2 are needed"
    points, right = planted(30, seed=0, errors=2 / 30)
    assert isinstance(
        fit_direction(points, right, seed=0, fewest_errors=1, permutations=9), Direction
    )


def test_a_fold_without_errors_is_told() -> None:
    # The two units with errors come to one fold: the first has as many right rows as both.
    units = np.repeat([0, 1, 2], [12, 7, 13])
    right = np.concatenate([rights(12, 0), rights(7, 1), rights(13, 7)])
    points = np.random.default_rng(0).normal(size=(32, 4))
    for seed in range(3):
        result = fit_direction(points, right, units, seed=seed, fewest_errors=3)
        reason = "its units are so unequal that one of 2 folds has no errors or only errors"
        assert result == reason


def test_points_that_are_all_alike_have_a_direction_of_no_strength() -> None:
    right = rights(40, 15)
    fit = direction(fit_direction(np.ones((40, 3)) / 3**0.5, right, seed=0))
    assert fit.strength == 0.5
    assert fit.p > 0.5


def test_whitening_is_by_the_given_numbers_and_to_unit_length() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(3, [1, 5, 0.1, 2], size=(50, 4)).astype(np.float32)
    centre = rng.normal(size=4)
    deviation = rng.uniform(0.5, 2, 4)
    points = whiten(features, centre, deviation)
    expected = (features.astype(np.float64) - centre) / deviation
    np.testing.assert_allclose(
        points, expected / np.linalg.norm(expected, axis=1)[:, None], rtol=1e-12
    )
    deviation[1] = 0
    points = whiten(features, centre, deviation)
    assert (points[:, 1] == 0).all()
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    assert (whiten(centre[None], centre, deviation) == 0).all()


def test_what_cannot_be_fitted_is_refused() -> None:
    points, right = planted(40, seed=0)
    labels = np.zeros(40, int)
    with pytest.raises(UserError, match="found 0, expected 1 or more"):
        fit_directions(points, right, labels, 2, None, DirectionFit(0), 0)


def as_bytes(fit: Direction | str) -> object:
    if isinstance(fit, str):
        return fit
    return fit.weights.tobytes(), fit.intercept, fit.C, fit.strength, fit.interval, fit.p, fit.rows


def test_classes_come_in_order_and_the_same_by_any_number_of_workers() -> None:
    sizes = [60, 0, 90, 40, 75]
    shares = [0.3, 0.3, 0.3, 0.1, 0.3]
    parts = [
        planted(rows, seed=rows, gap=0.4, errors=share)
        for rows, share in zip(sizes, shares, strict=True)
    ]
    points = np.concatenate([part[0] for part in parts])
    right = np.concatenate([part[1] for part in parts])
    labels = np.repeat(np.arange(5), sizes)
    units = np.arange(sum(sizes)) // 2
    order = np.random.default_rng(0).permutation(len(labels))
    arrays = points[order], right[order], labels[order], 5, units[order]
    stages: list[Stage] = []
    with listening(stages.append):
        alone = fit_directions(*arrays, DirectionFit(1, permutations=9), 1)
    assert [(stage.done, stage.total) for stage in stages] == [(done, 5) for done in range(1, 6)]
    together = fit_directions(*arrays, DirectionFit(1, permutations=9), 2)
    assert [as_bytes(fit) for fit in alone] == [as_bytes(fit) for fit in together]
    assert [fit.rows for fit in alone if isinstance(fit, Direction)] == [60, 90, 75]
    assert alone[1] == "no rows"
    assert alone[3] == "4 errors, at least 10 are needed"
    rows = arrays[2] == 4
    single = fit_direction(
        arrays[0][rows], arrays[1][rows], arrays[4][rows], seed=1, permutations=9
    )
    assert direction(single).p == direction(alone[4]).p
    np.testing.assert_allclose(direction(single).weights, direction(alone[4]).weights, rtol=1e-9)


def p_of(fit: object) -> float:
    assert isinstance(fit, Direction), fit
    return fit.p


def dealt(right: np.ndarray, units: np.ndarray | None = None) -> tuple[Fold, ...]:
    folds = deal_folds(right, units, 2, 0)
    assert not isinstance(folds, str)
    return folds


def test_labels_are_permuted_within_folds() -> None:
    _, right = planted(100, seed=0)
    folds = dealt(right)
    seen = list(islice(permuted_labels(right, None, folds, 0), 50))
    assert all(
        labels[fold.test].sum() == right[fold.test].sum() for labels in seen for fold in folds
    )
    assert len({labels.tobytes() for labels in seen}) > 40
    # Every row is wrong about as often as its fold is.
    assert abs(np.mean(seen, axis=0)[~right].mean() - 0.75) < 0.05
    again = list(islice(permuted_labels(right, None, folds, 0), 50))
    assert all((labels == other).all() for labels, other in zip(seen, again, strict=True))


def test_labels_of_a_unit_move_together_between_units_of_its_size() -> None:
    sizes = np.array([1] * 10 + [2] * 10 + [3] * 10 + [7])
    units = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(0).permutation(len(units))
    units = units[order]
    right = np.random.default_rng(1).random(len(units)) > 0.4
    folds = dealt(right, units)

    def vectors(labels: np.ndarray, fold: Fold) -> list[tuple[bool, ...]]:
        rows = fold.test
        return sorted(
            tuple(labels[rows[units[rows] == unit]].tolist()) for unit in np.unique(units[rows])
        )

    alone = units == 30  # the only unit of seven rows
    seen = list(islice(permuted_labels(right, units, folds, 3), 20))
    for labels in seen:
        assert all(vectors(labels, fold) == vectors(right, fold) for fold in folds)
        assert (labels[alone] == right[alone]).all()
    assert len({labels.tobytes() for labels in seen}) == 20


@pytest.mark.parametrize("gap", [0.0, 1.5])
def test_shortcuts_leave_out_no_fit_that_matters(gap: float) -> None:
    points, right = planted(80, seed=int(gap * 10), gap=gap)
    folds = dealt(right)

    def best(solver: KernelSolver | LinearSolver, labels: np.ndarray) -> float:
        def score(fold: int, C: float) -> float:
            return balanced_accuracy(labels[folds[fold].test], solver.predicted(fold, labels, C))

        return max((score(0, C) + score(1, C)) / 2 for C in GRID)

    for solver in (KernelSolver(points, folds), LinearSolver(points, folds, 0)):
        for labels in (right, *islice(permuted_labels(right, None, folds, 0), 3)):
            score = best(solver, labels)
            for threshold in (0.5, 0.55, 0.6, 0.7, score - 0.01, score, score + 1e-6):
                assert reaches_score(solver, labels, GRID, threshold) is (score >= threshold - 1e-9)


@pytest.mark.release(of="statistics")
def test_noise_is_called_a_direction_no_more_often_than_it_says() -> None:
    p_values = []
    for seed in range(50):
        points, right = planted(60, seed=seed, gap=0.0, width=12)
        p_values.append(
            p_of(fit_direction(points, right, seed=seed, grid=(0.01, 1.0), permutations=19))
        )
    assert np.mean(np.array(p_values) <= 0.1) <= 0.1 + 3 * (0.09 / 50) ** 0.5
    assert np.mean(np.array(p_values) <= 0.5) > 0.25


@pytest.mark.release(of="statistics")
def test_units_that_share_errors_are_no_evidence_of_a_direction() -> None:
    by_unit = []
    by_row = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        units = np.repeat(np.arange(24), 5)
        points = (
            (rng.normal(size=(24, 6)) + 0.1 * rng.normal(size=(5, 24, 6)))
            .transpose(1, 0, 2)
            .reshape(120, 6)
        )
        right = np.repeat(rng.permutation(24) >= 8, 5)
        settings = {"seed": seed, "grid": (1.0,), "permutations": 19}
        by_unit.append(p_of(fit_direction(points, right, units, **settings)))
        by_row.append(p_of(fit_direction(points, right, **settings)))
    assert np.mean(np.array(by_unit) <= 0.1) <= 0.1 + 3 * (0.09 / 25) ** 0.5
    # without units, shared errors look like a direction
    assert np.mean(np.array(by_row) <= 0.1) > 0.8


def test_a_planted_direction_has_the_smallest_p_there_is() -> None:
    points, right = planted(120, seed=0)
    units = np.arange(120) // 2
    assert p_of(fit_direction(points, right, seed=0, permutations=99)) == 0.01
    assert p_of(fit_direction(points, right, units, seed=0, permutations=60)) == 1 / 61
    assert (
        p_of(fit_direction(points, right, seed=0, permutations=20, most_kernel_rows=50)) == 1 / 21
    )


def test_balanced_accuracy_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        right = rng.random(31) > 0.3
        predicted = rng.random(31) > 0.4
        assert balanced_accuracy(right, predicted) == balanced_accuracy_score(right, predicted)
