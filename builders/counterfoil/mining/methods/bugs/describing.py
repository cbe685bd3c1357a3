"""Cluster failures that may have one cause, and describe each cluster with a captioner's words
(Wiles 2022, section 3).

k-means splits any cloud of points. Therefore the silhouette of the clusters is compared with the
silhouette of Gaussian clouds that have the same covariance, and the number of clusters with the
largest difference is taken. Descriptions are compared by their likelihood per token, because a
longer caption is always less likely in total. The paper compares the products of whole likelihoods,
of captions with equally many sentences: the rank `product`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.arrays import AnyFloats, Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.mining.audited import parts_with
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.descriptions import CLASS, Description, Piece, pieces_of
from counterfoil.mining.methods.bugs.trials import filled_base
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.prediction.captioning import caption_images, likelihoods_of
from counterfoil.progress import report_progress
from counterfoil.recipe import RecipeClass

MOST_PARTS = 6
# The number of principal components that are clustered. With more components, noise hides the
# clusters.
PRINCIPAL = 16
# Failures are split only if the silhouette of their clusters is at least this much above the mean
# silhouette of the Gaussian clouds. In features of the lab's CLIP, the difference is about .08 for
# sandals on three grounds, and .14 for 10 sandals on snow among 60 on a beach. None of 40 Gaussian
# clouds of 80 rows was split.
LEAST_ABOVE = 0.06
REFERENCES = 5
STARTS = 3
# At most this many rows are used to choose the number of clusters, because the cost of a silhouette
# is quadratic.
MOST_ROWS = 500


def cluster_failures(
    features: AnyFloats,
    answers: NDArray[np.integer],
    *,
    most: int,
    least: int,
    seed: int,
) -> list[tuple[Ints, int]]:
    """Cluster the failures of one class. Return at most `most` clusters of `least` or more rows,
    largest first.

    Each cluster is its rows, the most central row first, and its most frequent answer. Rows with
    the same answer are clustered by their features. Answers with fewer than `least` rows are
    clustered together.

    features: (n, width) unit vectors. answers: (n,), the target's outputs.
    """
    features = np.asarray(features, dtype=np.float64)
    values, of_answer, counts = np.unique(answers, return_inverse=True, return_counts=True)
    groups = []
    for index, count in enumerate(counts):
        if count >= least:
            groups.append(np.flatnonzero(of_answer == index))
    rare = np.flatnonzero(counts[of_answer] < least)
    if len(rare) >= least:
        groups.append(rare)
    clusters: list[tuple[Ints, int]] = []
    for rows in groups:
        for part in _split(features[rows], least, seed):
            part_rows = rows[part]
            vectors = features[part_rows]
            centrality = vectors @ vectors.mean(axis=0)
            order = np.argsort(-centrality, kind="stable")
            by_centrality = part_rows[order]
            often = np.bincount(of_answer[part_rows])
            most_frequent = int(values[often.argmax()])
            clusters.append((by_centrality, most_frequent))

    def rank(cluster: tuple[Ints, int]) -> tuple[int, int, int]:
        cluster_rows, answer = cluster
        return -len(cluster_rows), answer, int(cluster_rows.min())

    clusters.sort(key=rank)
    return clusters[:most]


def _split(
    features: Floats,
    least: int,
    seed: int,
) -> list[Ints]:
    """Return the rows of each cluster. All rows are one cluster if no other number of clusters is
    clearly better."""
    count = len(features)
    # Principal components (n, k), k ≤ `PRINCIPAL`, and their standard deviations (k,).
    centred = features - features.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    varied = singular[:PRINCIPAL] > 1e-6 * np.sqrt(count)
    rank = int(varied.sum())
    # Rows that differ only by rounding are one cluster.
    if count < max(2 * least, 3) or not rank:
        return [np.arange(count, dtype=np.int64)]
    singular = singular[:rank]
    points = left[:, :rank] * singular
    deviations = singular / np.sqrt(count - 1)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(count)[:MOST_ROWS]
    sampled = points[np.sort(chosen)]
    fewest = max(1, least * len(sampled) // count)
    rounded = sampled.round(6)
    distinct = len(np.unique(rounded, axis=0))
    best = LEAST_ABOVE
    parts = 1
    # A silhouette is defined only for fewer clusters than rows.
    most = min(
        MOST_PARTS,
        count // least,
        distinct,
        len(sampled) - 1,
    )
    for number in range(2, most + 1):
        references = []
        for _ in range(REFERENCES):
            cloud = rng.standard_normal(sampled.shape) * deviations
            references.append(_silhouette(cloud, number, fewest, seed))
        above = _silhouette(sampled, number, fewest, seed)
        above -= float(np.mean(references))
        if above >= best:
            best = above
            parts = number
    labels = _labels(points, parts, least, seed)
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _silhouette(
    points: Floats,
    number: int,
    least: int,
    seed: int,
) -> float:
    """Return the silhouette of the clusters that `_labels` gives, or 0 for a single cluster."""
    from sklearn.metrics import silhouette_score

    labels = _labels(points, number, least, seed)
    if len(np.unique(labels)) == 1:
        return 0.0
    return float(silhouette_score(points, labels))


def _labels(
    points: Floats,
    number: int,
    least: int,
    seed: int,
) -> Ints:
    """Return the cluster of each row, (n,). A cluster with fewer than `least` rows joins the
    cluster with the nearest centre; the smallest cluster is joined first.
    """
    if number == 1:
        return np.zeros(len(points), dtype=np.int64)
    from sklearn import config_context
    from sklearn.cluster import KMeans

    # hundreds of small fits
    with config_context(assume_finite=True, skip_parameter_validation=True):
        starts: Any = STARTS
        fit = KMeans(number, n_init=starts, random_state=seed)
        labels = fit.fit_predict(points).astype(np.int64)
    while True:
        values, counts = np.unique(labels, return_counts=True)
        if counts.min() >= least or len(values) == 1:
            return labels
        small = counts.argmin()
        means = [points[labels == value].mean(axis=0) for value in values]
        centres = np.stack(means)
        apart = np.linalg.norm(centres - centres[small], axis=1)
        apart[small] = np.inf
        labels[labels == values[small]] = values[apart.argmin()]


_Score = Callable[[Sequence[Description]], ArrayLike]


def combine(
    pieces: Sequence[Piece],
    score: _Score,
    most: int,
    *,
    rising: bool = True,
) -> list[tuple[Description, float]]:
    """Join at most `most` pieces to a description, one piece a step. Each step takes the piece that
    gives the largest mean score over the images. Words and phrases are tried in every order,
    because captioners prefer some orders ("red striped"). Return the description and its mean after
    each step.

    score: a function from k descriptions to log-likelihoods, (k, images). rising: whether joining
    ends when the mean does not rise.
    """
    reached = Description(())
    trace: list[tuple[Description, float]] = []
    least = -np.inf
    for _ in range(most):
        longer: dict[Description, None] = {}
        for piece in pieces:
            longer |= dict.fromkeys(_with(reached, piece))
        if not longer:
            break
        tried = list(longer)
        scores = np.asarray(score(tried), dtype=np.float64)
        means = scores.mean(axis=1)
        best = int(means.argmax())
        mean = float(means[best])
        if trace and not mean > least:
            break
        reached = tried[best]
        trace.append((reached, mean))
        if rising:
            least = mean
    return trace


def _with(description: Description, piece: Piece) -> Iterator[Description]:
    """Yield the description with one more piece, once for each position that the piece can take."""
    pieces = description.pieces
    if piece in pieces:
        return
    taken = [other.rank for other in pieces]
    if piece.rank < 2 and piece.rank in taken:
        return
    first = len(pieces) if piece.sentence else 0
    for at in range(first, len(pieces) + 1):
        yield Description((*pieces[:at], piece, *pieces[at:]))


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """Similar failures of one class."""

    label: int
    keys: tuple[str, ...]
    """The images, the most central first."""
    answered: int
    """Their most frequent answer."""
    right: tuple[str, ...] = ()
    """Keys of images of the class that the target answers right."""


@dataclass(frozen=True, slots=True)
class Described:
    """A cluster's description, or why there is none."""

    description: Description | None
    reason: str | None = None
    captions: tuple[str, ...] = ()
    log_likelihood: float | None = None


# `combine` tries this many pieces at most, the most frequent ones.
_MOST_PIECES = 24


@dataclass(frozen=True)
class ClusterDescriber:
    """Describes clusters of failures with a captioner; it is a `Describe`."""

    run: MiningRun
    captioner: Captioner
    examples: Sequence[CaptionExample]
    images: Mapping[str, LabelledImages]
    """The images of the clusters, by key prefix."""
    scored: list[tuple[str, str, int, float, float]] = field(default_factory=list)
    """The compared descriptions: cluster, text, number of pieces, and mean log-likelihood on the
    cluster's images and on those that are right."""

    def __call__(self, clusters: Sequence[FailureCluster]) -> list[Described]:
        descriptions = []
        for index, cluster in enumerate(clusters):
            report_progress("describing clusters", index, len(clusters))
            descriptions.append(self._described(cluster, index))
        report_progress("describing clusters", len(clusters), len(clusters))
        return descriptions

    def _described(self, cluster: FailureCluster, index: int) -> Described:
        settings = self.run.settings
        cls = self.run.recipe.classes[cluster.label]
        base = filled_base(self.run, cls)
        keys = cluster.keys[: settings.described]
        # The captioner continues two texts: the whole base prompt, which names the class, and the
        # part of the base before the class, which leaves room for words before the class.
        before_class, _, _ = base.partition(CLASS)
        whole = base.replace(CLASS, cls.name)
        captions = self._captions(keys, whole)
        captions += self._captions(keys, before_class)
        often = pieces_said(captions, base, cls)
        if not often:
            reason = f"{settings.captioner} says nothing about these images"
            if any(captions):
                reason += " that a prompt could add to the base"
            distinct = sorted(set(captions))
            return Described(None, reason, tuple(distinct[:8]))
        in_order = sorted(often, key=lambda piece: -often[piece])
        chosen = in_order[:_MOST_PIECES]

        def score(descriptions: Sequence[Description]) -> Floats:
            prompts = [description.prompt(base, cls.name) for description in descriptions]
            # A prompt that is too long for the captioner gets the lowest likelihood.
            shape = (len(prompts), len(keys))
            likely = np.full(shape, -np.inf)
            fitting = [at for at, prompt in enumerate(prompts) if self.captioner.fits(prompt)]
            if not fitting:
                return likely
            texts = [prompts[at] for at in fitting]
            likely[fitting] = self._log_likelihoods(keys, texts)
            beside = np.zeros(len(prompts))
            if settings.rank == "contrast" and cluster.right:
                right = self._log_likelihoods(cluster.right, texts)
                beside[fitting] = right.mean(axis=1)
            for at in fitting:
                size = len(descriptions[at].pieces)
                mean = float(likely[at].mean())
                of_right = float(beside[at])
                row = (f"{cls.id}_{index}", prompts[at], size, mean, of_right)
                self.scored.append(row)
            return likely - beside[:, None]

        rising = settings.rank != "product"
        steps = combine(chosen, score, settings.sentences, rising=rising)
        best, likelihood = steps[-1]
        distinct = sorted(set(captions))
        by_count = sorted(distinct, key=captions.count, reverse=True)
        examples = tuple(by_count[:8])
        if not np.isfinite(likelihood):
            reason = (
                f"{settings.captioner} cannot score its own words about these images: they are"
                " too long"
            )
            return Described(None, reason, examples)
        return Described(best, None, examples, likelihood)

    def _captions(self, keys: Sequence[str], prefix: str) -> list[str]:
        captions: list[str] = []
        for _, images, image_keys in parts_with(keys, self.images.items()):
            captioned = caption_images(
                images,
                self.captioner,
                keys=image_keys,
                prefix=prefix,
                number=self.run.settings.captions,
                seed=self.run.mine.seed,
                examples=self.examples,
            )
            for texts in captioned.values():
                captions += texts or ()
        return captions

    def _log_likelihoods(self, keys: Sequence[str], captions: Sequence[str]) -> Floats:
        """Return the log-likelihoods, (captions, images): per token, unless the rank is their
        product."""
        is_product = self.run.settings.rank == "product"
        parts = []
        for _, images, image_keys in parts_with(keys, self.images.items()):
            likely = likelihoods_of(
                images,
                captions,
                self.captioner,
                keys=image_keys,
                examples=self.examples,
            )
            parts.append(likely.sums if is_product else likely.per_token)
        return np.concatenate(parts, axis=0).T


def pieces_said(
    captions: Sequence[str],
    base: str,
    cls: RecipeClass,
) -> dict[Piece, int]:
    """Return how many captions contain each piece. The pieces are in the order in which the
    captions name them."""
    counts: Counter[Piece] = Counter()
    for caption in captions:
        pieces = pieces_of(caption, base, cls.name) or ()
        counts.update(dict.fromkeys(pieces, 1))
    return counts
