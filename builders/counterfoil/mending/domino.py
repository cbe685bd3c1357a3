"""Domino's slicer (Eyuboglu 2022): a mixture over embedding, label and prediction whose errors make
its slices.

A component has a diagonal Gaussian over the embedding's principal parts, a share of each label and
a share of each prediction. The logarithms of the last two are multiplied by a weight, so that
components are pure in the kind of error. It starts from the confusion matrix: each component from
one cell of it. Slices are the components where the classifier predicts a class most beyond its
share among the labels.

The released code plugs probabilities of classes, where a prediction is soft, into both steps of the
fit as they are (its notes call that naive), and so does this file. With hard predictions each step
is exact: the log-likelihood never falls. It differs in one thing: rows are scored by the log-odds
of a slice, which order them as its probability does and still tell rows apart whose probability
rounds to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from counterfoil.arrays import AnyFloats, Floats, Ints

# As the released code has it, so that no component's share of rows or of a class is nothing.
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class DominoSettings:
    """Defaults are those of the paper and of the released code."""

    components: int = 25
    slices: int = 5
    label_weight: float = 1.0
    prediction_weight: float = 1.0
    principal: int = 128
    """Parts of the embedding that are kept."""
    steps: int = 100
    tolerance: float = 1e-3
    """Of the mean log-likelihood a row, where the fit ends."""
    minimum: float = 1e-6
    """Added to every variance."""
    noise: float = 1e-3
    """Of the start, so that components of one cell part ways."""


# Jain 2023, B.1.5
AS_JAIN_SET = DominoSettings(slices=2, label_weight=10.0, prediction_weight=10.0)


@dataclass(frozen=True, slots=True)
class Mixture:
    """k components over d parts and c classes. shares: (k,). means, variances: (k, d). labels,
    predictions: (k, c)."""

    shares: Floats
    means: Floats
    variances: Floats
    labels: Floats
    predictions: Floats

    def joint(
        self, points: Floats, labels: Floats, predictions: Floats, settings: DominoSettings
    ) -> Floats:
        """Return the (n, k) log-probability of each row and component together, with the settings'
        weights."""
        logs = _log_gaussian(points, self.means, self.variances)
        logs += np.log(self.shares)
        of_labels = labels @ self.labels.T + _EPSILON
        logs += settings.label_weight * np.log(of_labels)
        of_predictions = predictions @ self.predictions.T + _EPSILON
        logs += settings.prediction_weight * np.log(of_predictions)
        return logs


@dataclass(frozen=True, slots=True)
class DominoSlices:
    """A fitted slicer. kept: components, most wrong first. log_likelihoods: a row's mean before
    each step."""

    settings: DominoSettings
    centre: Floats
    axes: Floats
    mixture: Mixture
    kept: Ints
    log_likelihoods: tuple[float, ...]

    def scores(self, features: AnyFloats, labels: Ints, predictions: Floats) -> Floats:
        """Return the (n, slices) log-odds that a row is in each slice; arguments as `fit_domino`
        takes them."""
        points = (np.asarray(features, np.float64) - self.centre) @ self.axes.T
        labels_as_rows = np.eye(predictions.shape[1])[labels]
        joint = self.mixture.joint(points, labels_as_rows, predictions, self.settings)
        odds = np.empty((len(joint), len(self.kept)))
        for index, component in enumerate(self.kept):
            others = np.delete(joint, component, axis=1)
            odds[:, index] = joint[:, component] - logsumexp(others, axis=1)
        return odds


def fit_domino(
    features: AnyFloats,
    labels: Ints,
    predictions: AnyFloats,
    settings: DominoSettings,
    *,
    seed: int,
) -> DominoSlices:
    """Fit the slicer to n rows: features (n, width), labels (n,) in 0…c-1, predictions (n, c),
    shares of classes.

    There are at least as many components as cells of the confusion matrix (c·c), from which they
    start.
    """
    from sklearn.decomposition import PCA

    points = np.asarray(features, np.float64)
    given = np.asarray(predictions, np.float64)
    labels_as_rows = np.eye(given.shape[1])[labels]
    parts = min(settings.principal, *points.shape)
    principal = PCA(parts, random_state=seed).fit(points)
    centre = np.asarray(principal.mean_, np.float64)
    axes = np.asarray(principal.components_, np.float64)
    projected = (points - centre) @ axes.T
    # Components take the cells of the confusion matrix in turn.
    cells = labels_as_rows[:, :, None] * given[:, None, :]
    cells = cells.reshape(len(labels), -1)
    cell_of = np.arange(settings.components) % cells.shape[1]
    start = cells[:, cell_of]
    start = start / start.sum(axis=1, keepdims=True)
    noise = np.random.default_rng(seed).random(start.shape)
    start += settings.noise * noise
    start = start / start.sum(axis=1, keepdims=True)
    mixture = _maximised(projected, labels_as_rows, given, start, settings.minimum)
    likelihoods = [-np.inf]
    for _ in range(settings.steps):
        joint = mixture.joint(projected, labels_as_rows, given, settings)
        each = np.asarray(logsumexp(joint, axis=1))
        likelihoods.append(float(each.mean()))
        if abs(likelihoods[-1] - likelihoods[-2]) < settings.tolerance:
            break
        responsible = np.exp(joint - each[:, None])
        mixture = _maximised(projected, labels_as_rows, given, responsible, settings.minimum)
    # As the released code orders them: by the class that is predicted most beyond its share.
    excess = (mixture.predictions - mixture.labels).max(axis=1)
    order = np.argsort(-np.abs(excess), kind="stable")
    kept = order[: settings.slices].astype(np.int64)
    return DominoSlices(settings, centre, axes, mixture, kept, tuple(likelihoods[1:]))


def _maximised(
    points: Floats, labels: Floats, predictions: Floats, responsible: Floats, minimum: float
) -> Mixture:
    rows = responsible.sum(axis=0) + 10 * _EPSILON
    means = responsible.T @ points / rows[:, None]
    squares = responsible.T @ points**2 / rows[:, None]
    return Mixture(
        shares=rows / len(points),
        means=means,
        variances=np.maximum(squares - means**2, 0.0) + minimum,
        labels=responsible.T @ labels / rows[:, None],
        predictions=responsible.T @ predictions / rows[:, None],
    )


def _log_gaussian(points: Floats, means: Floats, variances: Floats) -> Floats:
    """Return the (n, k) log-density under Gaussians of diagonal covariance."""
    precisions = 1 / variances
    squares = points**2 @ precisions.T
    squares -= 2 * points @ (means * precisions).T
    squares += (means**2 * precisions).sum(axis=1)
    volumes = points.shape[1] * np.log(2 * np.pi) + np.log(variances).sum(axis=1)
    return -0.5 * (volumes + squares)
