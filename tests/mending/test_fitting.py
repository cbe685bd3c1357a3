"""Fitting reaches the minimum, balanced groups have equal numbers, and failures in common are
counted."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import optimize
from sklearn.linear_model import LogisticRegression

from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.fitting import FITS, Lesson, _Objective, balanced_lesson, fit_head
from counterfoil.mending.mend_models import failure_overlap, kept_gain
from counterfoil.models.classifiers.head import LinearHead

OUTPUTS = 4
WIDTH = 6


def lesson(
    rows: int, seed: int, outputs: int = OUTPUTS, width: int = WIDTH, weighted: bool = False
) -> Lesson:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0, 3, rows) if weighted else None
    return Lesson(
        rng.normal(size=(rows, width)).astype(np.float32), rng.integers(0, outputs, rows), weights
    )


def start(seed: int = 0, outputs: int = OUTPUTS, width: int = WIDTH) -> LinearHead:
    rng = np.random.default_rng(seed)
    return LinearHead(
        rng.normal(size=(outputs, width)).astype(np.float32),
        rng.normal(size=outputs).astype(np.float32),
    )


def torch_objective(
    weight: torch.Tensor, bias: torch.Tensor, lessons: list[tuple[Lesson, float]]
) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for lesson, factor in lessons:
        logits = torch.from_numpy(lesson.features).double() @ weight.T + bias
        losses = torch.nn.functional.cross_entropy(
            logits, torch.from_numpy(lesson.targets), reduction="none"
        )
        shares = (
            torch.ones_like(losses) if lesson.weights is None else torch.from_numpy(lesson.weights)
        )
        total = total + factor * (losses * shares).sum() / shares.sum()
    return total


def objective(lessons: list[tuple[Lesson, float]], decay: float = 5e-4) -> _Objective:
    return _Objective(
        [(lesson, factor * lesson.shares) for lesson, factor in lessons], (OUTPUTS, WIDTH), decay
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_finite_differences(weighted: bool) -> None:
    function = objective([(lesson(30, 1, weighted=weighted), 1.0), (lesson(9, 2), 0.7)])
    point = np.random.default_rng(3).normal(size=OUTPUTS * (WIDTH + 1))
    _, gradient = function(point)
    measured = np.asarray(optimize.approx_fprime(point, lambda x: function(x)[0], 1e-6))
    assert np.abs(gradient - measured).max() < 1e-5
    assert np.abs(gradient).max() > 1e-2


def test_the_objective_is_torchs_loss_plus_half_the_decay_of_weight_and_bias() -> None:
    lessons = [(lesson(5000, 1, weighted=True), 1.0), (lesson(9, 2), 0.7)]  # more rows than a block
    head = start(4)
    decay = 0.3
    value, _ = objective(lessons, decay)(
        np.concatenate([head.weight.ravel(), head.bias]).astype(np.float64)
    )
    weight = torch.from_numpy(head.weight).double()
    bias = torch.from_numpy(head.bias).double()
    wanted = torch_objective(weight, bias, lessons) + decay / 2 * (
        (weight**2).sum() + (bias**2).sum()
    )
    assert value == pytest.approx(float(wanted), rel=1e-12)


def test_scores_beyond_the_reach_of_exp_keep_a_finite_loss() -> None:
    near = lesson(20, 1)
    far = Lesson(near.features * 1e4, near.targets)
    value, gradient = objective([(far, 1.0)])(
        np.concatenate([start().weight.ravel(), start().bias]).astype(np.float64)
    )
    wanted = torch_objective(
        torch.from_numpy(start().weight).double(),
        torch.from_numpy(start().bias).double(),
        [(far, 1.0)],
    )
    assert np.isfinite(gradient).all()
    assert value == pytest.approx(float(wanted), rel=1e-3)


@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0])
def test_both_ways_reach_the_same_objective(lam: float) -> None:
    train = lesson(120, 1)
    debug = lesson(25, 2, weighted=True)
    # Weight decay of the paper leaves a valley that 1000 epochs do not cross to the last digit.
    fitted = {how: fit_head(start(), train, debug, lam, how, weight_decay=5e-3) for how in FITS}
    assert fitted["sgd"].loss == pytest.approx(fitted["lbfgs"].loss, rel=1e-7)
    assert np.abs(fitted["sgd"].head.weight - fitted["lbfgs"].head.weight).max() < 1e-3
    assert fitted["lbfgs"].settled and fitted["sgd"].settled


def test_descent_goes_step_by_step_as_torchs_does() -> None:
    train = lesson(40, 1)
    debug = lesson(8, 2)
    head = start(5)
    layer = torch.nn.Linear(WIDTH, OUTPUTS).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(head.weight))
        layer.bias.copy_(torch.from_numpy(head.bias))
    sgd = torch.optim.SGD(layer.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4)
    for _ in range(37):
        sgd.zero_grad()
        torch_objective(layer.weight, layer.bias, [(train, 1.0), (debug, 0.5)]).backward()
        sgd.step()
    fitted = fit_head(head, train, debug, 0.5, "sgd", epochs=37)
    assert np.abs(fitted.head.weight - layer.weight.detach().numpy()).max() < 1e-5
    assert np.abs(fitted.head.bias - layer.bias.detach().numpy()).max() < 1e-5


def test_the_minimum_is_that_of_scikit_learn() -> None:
    """Its penalty leaves the bias free, so that a column of ones stands for the bias, and is
    decayed as ours is."""
    train = lesson(200, 1, weighted=True)
    decay = 0.02
    assert train.weights is not None
    ones = np.concatenate([train.features, np.ones((200, 1))], axis=1).astype(np.float64)
    reference = LogisticRegression(
        C=1 / (decay * train.weights.sum()), fit_intercept=False, tol=1e-10, max_iter=5000
    )
    reference.fit(ones, train.targets, sample_weight=train.weights)
    fitted = fit_head(start(), train, None, 0.0, weight_decay=decay)
    coefficients = np.concatenate([fitted.head.weight, fitted.head.bias[:, None]], axis=1)
    assert np.abs(coefficients - reference.coef_).max() < 1e-4


def test_without_debug_images_and_at_zero_the_head_is_the_same() -> None:
    train = lesson(50, 1)
    debug = lesson(20, 2)
    without = fit_head(start(), train, None, 0.5)
    zero = fit_head(start(), train, debug, 0.0)
    assert np.array_equal(without.head.weight, zero.head.weight) and without.loss == zero.loss
    some = fit_head(start(), train, debug, 0.5)
    assert not np.array_equal(some.head.weight, zero.head.weight)


def test_a_heavier_lambda_learns_the_debug_images_better() -> None:
    train = lesson(60, 1)
    debug = lesson(30, 2)
    losses = []
    for lam in (0.0, 0.25, 1.0, 4.0):
        head = fit_head(start(), train, debug, lam).head
        logits = torch.from_numpy(head.logits(debug.features))
        losses.append(
            float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(debug.targets)))
        )
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1] + 0.05


def test_no_matrix_of_rows_and_outputs_is_held() -> None:
    rows = 20_000
    outputs = 500
    width = 8
    train = lesson(rows, 1, outputs, width)
    tracemalloc.start()
    fit_head(start(0, outputs, width), train, None, 0.0, "sgd", epochs=1)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < rows * outputs * 8 / 2


@pytest.mark.parametrize("length", [1e2, 1e30])
def test_long_features_that_make_descent_diverge_are_told(length: float) -> None:
    train = lesson(50, 1)
    long = Lesson(train.features.astype(np.float64) * length, train.targets)
    # Begun at the minimum, from which a rate that fits would go nowhere.
    begun = fit_head(start(), long, None, 0.0).head if length < 1e30 else start()
    with pytest.raises(RunFailure, match="diverges") as raised:
        fit_head(begun, long, None, 0.0, "sgd", epochs=50)
    assert "lbfgs" in str(raised.value.hint)


def test_a_descent_that_is_not_at_its_minimum_says_so() -> None:
    assert not fit_head(start(), lesson(50, 1), None, 0.0, "sgd", epochs=3).settled


def rows_drawn(
    sizes: dict[tuple[int, int], int], fewest: int = 5, seed: int = 0
) -> dict[tuple[int, int], int]:
    """Count the rows of each (class, group) in a balanced lesson; the features number the rows."""
    cells = np.array([cell for cell, size in sizes.items() for _ in range(size)])
    classes = cells[:, 0]
    groups = cells[:, 1]
    features = np.arange(len(cells), dtype=np.float32)[:, None]
    lesson = balanced_lesson(features, classes + 10, classes, groups, seed=seed, fewest=fewest)
    rows = lesson.features[:, 0].astype(int)
    assert len(set(rows.tolist())) == len(rows) and lesson.weights is None
    assert (lesson.targets == classes[rows] + 10).all()
    return {cell: int((cells[rows] == cell).all(axis=1).sum()) for cell in sizes}


def test_cells_bring_as_many_rows_as_the_smallest_that_is_not_tiny() -> None:
    counts = rows_drawn({(0, 0): 50, (0, 1): 7, (1, 0): 20, (1, 1): 90})
    assert set(counts.values()) == {7}
    assert rows_drawn({(0, 0): 50, (0, 1): 2, (1, 0): 9}) == {(0, 0): 9, (0, 1): 2, (1, 0): 9}
    with pytest.raises(UserError, match="none has 5 rows of one class"):
        rows_drawn({(0, 0): 3, (1, 0): 4})


def test_the_overlap_is_intersection_over_union() -> None:
    failed = np.random.default_rng(1).random((4, 200)) < 0.3
    overlap = failure_overlap(failed)
    for a in range(4):
        for b in range(4):
            assert overlap[a, b] == pytest.approx(
                (failed[a] & failed[b]).sum() / (failed[a] | failed[b]).sum()
            )
    never = failure_overlap(np.array([[False, False], [False, False], [True, False]]))
    assert np.isnan(never[0, 1]) and never[0, 2] == 0 and never[2, 2] == 1


def test_a_gain_is_kept_in_part_and_nothing_is_kept_of_none() -> None:
    assert kept_gain(0.2, 0.15) == pytest.approx(0.75)
    assert kept_gain(0.0, 0.1) is None and kept_gain(-0.1, 0.1) is None
