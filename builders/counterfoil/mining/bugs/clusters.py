"""Failures of one class in clusters that may have one cause each: by the wrong answer, then by features.

Wiles 2022, section 3, "Optional clustering failure cases": as few clusters as keep causes apart. The number of parts
of one answer's failures is chosen by the data: k-means splits any cloud, so its silhouette for k parts counts by how
far it is above that of Gaussian clouds with the same covariance, which have one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_PARTS = 6
# Features of which parts are made, the principal ones: in more, noise hides what parts there are.
PRINCIPAL = 16
# How far a silhouette has to be above its references. In the lab's CLIP, sandals on three grounds are about .08 above
# them, 10 on snow among 60 on a beach .14; of Gaussian clouds of 80 rows, none of 40 was split.
LEAST_ABOVE = 0.06
REFERENCES = 5
STARTS = 3
# The number of parts is chosen on no more rows than these: silhouettes take their square.
MOST_ROWS = 500
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Failures that may have one cause.

    rows: (m,) int64, places in what was clustered, most central first. answered: the answer that most of them got; all
    of them, but where the answer of each was too rare to be a cluster of its own.
    """

    rows: NDArray[np.int64]
    answered: int


def cluster_failures(
    features: NDArray[np.floating], answers: NDArray[np.integer], *, most: int, least: int, seed: int
) -> list[Cluster]:
    """At most `most` clusters of `least` rows or more, largest first, of one class's n failures.

    features: (n, width) unit vectors. answers: (n,), what each was taken for. Rows of one answer are split by features;
    a part that is too small joins the nearest of that answer. Rows of answers with fewer than `least` rows are put
    together and split likewise, since a cause may lead to many answers; where even they are too few, they are dropped.
    Equal arguments give equal clusters. ValueError for arrays that do not fit each other, features that are not finite,
    and numbers below 1.
    """
    features, answers = np.asarray(features, dtype=np.float64), np.asarray(answers)
    if features.ndim != 2 or answers.shape != features.shape[:1]:
        raise ValueError(f"expected one answer for each row of features, found {answers.shape} and {features.shape}")
    if not np.isfinite(features).all():
        raise ValueError("features are not all finite")
    if most < 1 or least < 1:
        raise ValueError("expected 1 cluster or more, and 1 row or more in each")
    found: list[Cluster] = []
    for rows in _by_answer(answers, least):
        for part in _split(features[rows], least, seed):
            found.append(_cluster(rows[part], features, answers))
    found.sort(key=lambda cluster: (-len(cluster.rows), cluster.answered, int(cluster.rows.min())))
    return found[:most]


def _by_answer(answers: NDArray[np.integer], least: int) -> Iterator[NDArray[np.int64]]:
    """Rows of each answer that has enough of them, then those of all others, if these are enough."""
    values, places, counts = np.unique(answers, return_inverse=True, return_counts=True)
    for place in range(len(values)):
        if counts[place] >= least:
            yield np.flatnonzero(places == place)
    rare = np.flatnonzero(counts[places] < least)
    if len(rare) >= least:
        yield rare


def _cluster(rows: NDArray[np.int64], features: _Floats, answers: NDArray[np.integer]) -> Cluster:
    centrality = features[rows] @ features[rows].mean(axis=0)
    values, counts = np.unique(answers[rows], return_counts=True)
    return Cluster(rows[np.argsort(-centrality, kind="stable")], int(values[counts.argmax()]))


def _split(features: _Floats, least: int, seed: int) -> list[NDArray[np.int64]]:
    """Places of each part; all in one where no number of parts is good."""
    whole = np.arange(len(features), dtype=np.int64)
    points, spread = _principal(features)
    rng = np.random.default_rng(seed)
    # Rows that differ by rounding alone have no parts.
    if len(whole) < 2 * least or len(whole) < 3 or not spread.size:
        return [whole]
    sampled = points[np.sort(rng.permutation(len(points))[:MOST_ROWS])]
    fewest = max(1, least * len(sampled) // len(points))
    distinct = len(np.unique(sampled.round(6), axis=0))
    best, parts = LEAST_ABOVE, 1
    # A silhouette needs fewer parts than rows.
    for number in range(2, min(MOST_PARTS, len(whole) // least, distinct, len(sampled) - 1) + 1):
        clouds = [rng.standard_normal(sampled.shape) * spread for _ in range(REFERENCES)]
        reference = float(np.mean([_silhouette(cloud, number, fewest, seed) for cloud in clouds]))
        above = _silhouette(sampled, number, fewest, seed) - reference
        if above >= best:
            best, parts = above, number
    labels = _labels(points, parts, least, seed)
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _principal(features: _Floats) -> tuple[_Floats, _Floats]:
    """(n, k) principal parts, k at most `PRINCIPAL`, and (k,) their standard deviations."""
    centred = features - features.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    kept = int((singular[:PRINCIPAL] > 1e-6 * np.sqrt(len(features))).sum())
    return left[:, :kept] * singular[:kept], singular[:kept] / np.sqrt(max(len(features) - 1, 1))


def _silhouette(points: _Floats, number: int, least: int, seed: int) -> float:
    """The silhouette of parts as `_labels` has them; 0 where one is left."""
    from sklearn.metrics import silhouette_score

    labels = _labels(points, number, least, seed)
    return float(silhouette_score(points, labels)) if len(np.unique(labels)) > 1 else 0.0


def _labels(points: _Floats, number: int, least: int, seed: int) -> NDArray[np.int64]:
    """(n,) which part each row is in; a part with fewer than `least` rows joins the nearest, smallest first."""
    if number == 1:
        return np.zeros(len(points), dtype=np.int64)
    from sklearn import config_context
    from sklearn.cluster import KMeans

    with config_context(assume_finite=True, skip_parameter_validation=True):  # hundreds of small fits
        starts: Any = STARTS
        labels = KMeans(number, n_init=starts, random_state=seed).fit_predict(points).astype(np.int64)
    while True:
        values, counts = np.unique(labels, return_counts=True)
        if counts.min() >= least or len(values) == 1:
            return labels
        small = values[counts.argmin()]
        centres = np.stack([points[labels == value].mean(axis=0) for value in values])
        apart = np.linalg.norm(centres - points[labels == small].mean(axis=0), axis=1)
        apart[counts.argmin()] = np.inf
        labels[labels == small] = values[apart.argmin()]
