"""Domino's slicer: it finds a planted cluster of errors, no step lowers the likelihood, a plain
mixture agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from counterfoil.mending.domino import AS_JAIN_SET, DominoSettings, _log_gaussian, fit_domino
from directions_proof.slices import judged


def planted(seed: int, rows: int = 600, width: int = 12) -> tuple[np.ndarray, ...]:
    """Return features, labels, predictions and members: a fifth of label 1, set apart and mostly
    called 0."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, rows)
    members = (labels == 1) & (rng.random(rows) < 0.2)
    features = rng.standard_normal((rows, width)) + labels[:, None] * 0.5
    features[members, :3] += 3
    wrong = np.where(members, rng.random(rows) < 0.8, rng.random(rows) < 0.05)
    answers = np.where(wrong, 1 - labels, labels)
    share = np.clip(0.9 + 0.05 * rng.standard_normal(rows), 0.55, 0.99)
    predictions = np.where(np.eye(2, dtype=bool)[answers], share[:, None], 1 - share[:, None])
    return features, labels, predictions, members


@pytest.mark.parametrize("settings", [DominoSettings(), AS_JAIN_SET], ids=["default", "jain"])
def test_a_planted_cluster_of_errors_is_found_on_rows_that_it_was_not_fitted_on(
    settings: DominoSettings,
) -> None:
    features, labels, predictions, members = planted(0)
    slices = fit_domino(
        features,
        labels,
        predictions,
        settings,
        seed=0,
    )
    other = planted(1)
    scores = slices.scores(*other[:3])
    assert scores.shape == (len(other[0]), settings.slices)
    inside = labels == 1
    test_inside = other[1] == 1
    validation = slices.scores(features, labels, predictions)
    _, measures = judged(
        validation[inside], members[inside], scores[test_inside], other[3][test_inside]
    )
    chance = other[3][test_inside].mean()
    assert chance < 0.3
    assert measures.average_precision > 2 * chance
    assert measures.at_10 > 2 * chance


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weight", [0.0, 1.0, 10.0])
def test_no_step_lowers_the_log_likelihood_of_hard_predictions(seed: int, weight: float) -> None:
    features, labels, predictions, _ = planted(seed)
    hard = np.eye(2)[predictions.argmax(1)]
    settings = DominoSettings(
        components=7, label_weight=weight, prediction_weight=weight, tolerance=0.0, steps=60
    )
    steps = np.diff(fit_domino(features, labels, hard, settings, seed=seed).log_likelihoods)
    assert len(steps) == 59
    # The floor under the variances and the epsilons under the logarithms are no part of the
    # likelihood.
    assert steps.min() > -1e-5
    assert steps.sum() > 0.1


def test_without_labels_and_predictions_it_is_scikit_learns_mixture() -> None:
    features, labels, predictions, _ = planted(3, rows=300, width=5)
    plain = DominoSettings(
        components=4, label_weight=0, prediction_weight=0, principal=5, tolerance=0.0, steps=12
    )
    ours = fit_domino(
        features,
        labels,
        predictions,
        plain,
        seed=0,
    )
    start = fit_domino(features, labels, predictions, replace(plain, steps=0), seed=0).mixture
    reference = GaussianMixture(
        4, covariance_type="diag", tol=0.0, max_iter=12, reg_covar=plain.minimum,
        weights_init=start.shares, means_init=start.means, precisions_init=1 / start.variances,
    )  # fmt: skip
    points = (features - ours.centre) @ ours.axes.T
    with pytest.warns(UserWarning):  # it stops before it converges
        reference.fit(points)
    responsible = np.exp(ours.mixture.joint(points, np.eye(2)[labels], predictions, plain))
    responsible /= responsible.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(responsible, reference.predict_proba(points), atol=1e-6)
    assert not np.allclose(responsible, 0.25, atol=0.05)


def test_the_density_is_scipys() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((9, 4))
    means = rng.standard_normal((3, 4))
    variances = rng.random((3, 4)) + 0.1
    wanted = [
        multivariate_normal(mean, cov=np.diag(variance)).logpdf(points)
        for mean, variance in zip(means, variances, strict=True)
    ]
    np.testing.assert_allclose(
        _log_gaussian(points, means, variances), np.stack(wanted, axis=1), rtol=1e-10
    )


def test_the_same_rows_and_seed_give_the_same_slices() -> None:
    features, labels, predictions, _ = planted(5)
    first, second = (
        fit_domino(features, labels, predictions, DominoSettings(), seed=7) for _ in range(2)
    )
    assert np.array_equal(
        first.scores(features, labels, predictions), second.scores(features, labels, predictions)
    )


def test_slices_are_ordered_by_how_wrong_they_are() -> None:
    features, labels, predictions, _ = planted(2)
    slices = fit_domino(
        features,
        labels,
        predictions,
        DominoSettings(),
        seed=0,
    )
    excess = (slices.mixture.predictions - slices.mixture.labels).max(1)
    assert np.all(np.diff(excess[slices.kept]) <= 0)
    assert excess[slices.kept[-1]] >= np.delete(excess, slices.kept).max()
