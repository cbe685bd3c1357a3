"""From failures to words: clusters of what may have one cause, and the description that a captioner makes of each.

Wiles 2022, section 3, "Optional clustering failure cases": as few clusters as keep causes apart, by the wrong answer,
then by features. The number of parts of one answer's failures is chosen by the data: k-means splits any cloud, so its
silhouette for k parts counts by how far it is above that of Gaussian clouds with the same covariance, which have one
part. "Failure case captioning": captions of a cluster's images are cut into pieces, and each step adds the piece that
makes the whole caption most likely for them. A longer caption is less likely whatever it says, so likelihoods are per
token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.data import LabelledImages
from counterfoil.mining.methods.bugs.descriptions import CLASS, Description, Piece, pieces_of
from counterfoil.mining.methods.bugs.trials import base_prompt, filled_base
from counterfoil.models.captioners import Captioner, CaptionExample
from counterfoil.prediction.captioning import caption_images, likelihoods_of
from counterfoil.progress import report
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.store.layout import user_cache

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

    rows: (m,) int64, indices of what was clustered, most central first. answered: the answer that most of them got.
    """

    rows: NDArray[np.int64]
    answered: int


def cluster_failures(
    features: NDArray[np.floating], answers: NDArray[np.integer], *, most: int, least: int, seed: int
) -> list[Cluster]:
    """Return at most `most` clusters of `least` rows or more, largest first, of one class's n failures.

    features: (n, width) unit vectors. answers: (n,), what each was taken for. Rows of one answer are split by features;
    a part that is too small joins the nearest of that answer. Rows of answers with fewer than `least` rows are put
    together and split likewise, since a cause may lead to many answers; too few of these are dropped. ValueError for
    arrays that do not fit each other, features that are not finite, and numbers below 1.
    """
    features, answers = np.asarray(features, dtype=np.float64), np.asarray(answers)
    if features.ndim != 2 or answers.shape != features.shape[:1]:
        raise ValueError(f"expected one answer for each row of features, found {answers.shape} and {features.shape}")
    if not np.isfinite(features).all():
        raise ValueError("features are not all finite")
    if most < 1 or least < 1:
        raise ValueError("expected 1 cluster or more, and 1 row or more in each")
    values, of_answer, counts = np.unique(answers, return_inverse=True, return_counts=True)
    groups = [np.flatnonzero(of_answer == index) for index in range(len(values)) if counts[index] >= least]
    rare = np.flatnonzero(counts[of_answer] < least)
    groups += [rare] if len(rare) >= least else []
    clusters: list[Cluster] = []
    for rows in groups:
        for part in _split(features[rows], least, seed):
            row = rows[part]
            centrality = features[row] @ features[row].mean(axis=0)
            values, counts = np.unique(answers[row], return_counts=True)
            clusters.append(Cluster(row[np.argsort(-centrality, kind="stable")], int(values[counts.argmax()])))
    clusters.sort(key=lambda cluster: (-len(cluster.rows), cluster.answered, int(cluster.rows.min())))
    return clusters[:most]


def _split(features: _Floats, least: int, seed: int) -> list[NDArray[np.int64]]:
    """Return the rows of each part; all in one where no number of parts is good."""
    whole = np.arange(len(features), dtype=np.int64)
    # At most `PRINCIPAL` principal parts (n, k), and their standard deviations (k,).
    left, singular, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    rank = int((singular[:PRINCIPAL] > 1e-6 * np.sqrt(len(features))).sum())
    points = left[:, :rank] * singular[:rank]
    deviations = singular[:rank] / np.sqrt(max(len(features) - 1, 1))
    rng = np.random.default_rng(seed)
    # Rows that differ by rounding alone have no parts.
    if len(whole) < 2 * least or len(whole) < 3 or not deviations.size:
        return [whole]
    sampled = points[np.sort(rng.permutation(len(points))[:MOST_ROWS])]
    fewest = max(1, least * len(sampled) // len(points))
    distinct = len(np.unique(sampled.round(6), axis=0))
    best, parts = LEAST_ABOVE, 1
    # A silhouette needs fewer parts than rows.
    for number in range(2, min(MOST_PARTS, len(whole) // least, distinct, len(sampled) - 1) + 1):
        clouds = [rng.standard_normal(sampled.shape) * deviations for _ in range(REFERENCES)]
        reference = float(np.mean([_silhouette(cloud, number, fewest, seed) for cloud in clouds]))
        above = _silhouette(sampled, number, fewest, seed) - reference
        if above >= best:
            best, parts = above, number
    labels = _labels(points, parts, least, seed)
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _silhouette(points: _Floats, number: int, least: int, seed: int) -> float:
    """Return the silhouette of parts by `_labels`; 0 where one is left."""
    from sklearn.metrics import silhouette_score

    labels = _labels(points, number, least, seed)
    return float(silhouette_score(points, labels)) if len(np.unique(labels)) > 1 else 0.0


def _labels(points: _Floats, number: int, least: int, seed: int) -> NDArray[np.int64]:
    """Return (n,) the part of each row; a part with fewer than `least` rows joins the nearest, smallest first."""
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


_Score = Callable[[Sequence[Description]], ArrayLike]


def combine(pieces: Sequence[Piece], score: _Score, most: int) -> list[tuple[Description, float]]:
    """Join at most `most` of the pieces, each step the one that makes the description most likely for the images.

    score: maps k descriptions to (k, images), the log-likelihood under the captioner of each one's prompt for each
    image, divided by its tokens. A word or a phrase is tried in every place among those of its kind, since captioners
    have an order ("red striped"); a sentence comes last. It ends where no piece raises the mean over the images; the
    first piece is added in any case. Of equal ones the first is taken. ValueError where `most` is below 1, and where
    scores are not numbers, or not of that shape.
    """
    if most < 1:
        raise ValueError("expected 1 piece or more")
    reached = Description(())
    trace: list[tuple[Description, float]] = []
    for _ in range(most):
        tried = list(dict.fromkeys(longer for piece in pieces for longer in _with(reached, piece)))
        if not tried:
            break
        likelihoods = np.asarray(score(tried), dtype=np.float64)
        if likelihoods.ndim != 2 or len(likelihoods) != len(tried) or likelihoods.shape[1] == 0:
            raise ValueError(f"expected likelihoods of {len(tried)} descriptions, found the shape {likelihoods.shape}")
        if np.isnan(likelihoods).any() or (likelihoods == np.inf).any():
            raise ValueError("likelihoods are not all numbers")
        means = likelihoods.mean(axis=1)
        best = int(means.argmax())
        if trace and not means[best] > trace[-1][1]:
            break
        reached = tried[best]
        trace.append((reached, float(means[best])))
    return trace


def _with(description: Description, piece: Piece) -> Iterator[Description]:
    """Yield the description with one piece more, in every order that differs, if its place is free."""
    pieces = description.pieces
    if piece in pieces or (piece.rank < 2 and any(other.rank == piece.rank for other in pieces)):
        return
    positions = [at for at in range(len(pieces) + 1) if not piece.sentence or at == len(pieces)]
    for at in positions:
        yield Description((*pieces[:at], piece, *pieces[at:]))


@dataclass(frozen=True, slots=True)
class FailureCluster:
    """Failures of one class that were answered alike and look alike: keys, most central first; the answered output.

    right: keys of images of the class that were answered right.
    """

    label: int
    keys: tuple[str, ...]
    answered: int
    right: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A cluster's description, or why there is none."""

    description: Description | None
    reason: str | None = None
    captions: tuple[str, ...] = ()
    log_likelihood: float | None = None


# Pieces that the joining chooses among: those that most captions say.
_MOST_PIECES = 24


@dataclass(frozen=True)
class ClusterDescriber:
    """Describes clusters for one run. It is a `Describe`. images: those that the clusters' keys are of."""

    recipe: Recipe
    mine: Mine
    settings: BugsSettings
    captioner: Captioner
    examples: Sequence[CaptionExample]
    images: Mapping[str, LabelledImages]

    def __call__(self, clusters: Sequence[FailureCluster]) -> list[Described]:
        descriptions = []
        for index, cluster in enumerate(clusters):
            report("describing clusters", index, len(clusters))
            descriptions.append(self._described(cluster))
        report("describing clusters", len(clusters), len(clusters))
        return descriptions

    def _described(self, cluster: FailureCluster) -> Described:
        cls = self.recipe.classes[cluster.label]
        base = filled_base(base_prompt(self.recipe, self.settings), cls)
        keys = cluster.keys[: self.settings.described]
        # Completions of the whole base always contain the class name. Completions of its beginning can add words before
        # the class; they count only if they contain its name.
        captions: list[str] = []
        for prefix in (base.replace(CLASS, cls.name), base.partition(CLASS)[0].strip()):
            captions += self._captions(keys, prefix)
        often = pieces_said(captions, base, cls)
        if not often:
            examples = "says nothing about these images"
            if any(captions):
                examples = "says nothing about these images that a prompt could add to the base"
            return Described(None, f"{self.settings.captioner} {examples}", tuple(sorted(set(captions))[:8]))
        chosen = sorted(often, key=lambda piece: -often[piece])[:_MOST_PIECES]

        def score(descriptions: Sequence[Description]) -> NDArray[np.float64]:
            prompts = [description.prompt(base, cls.name) for description in descriptions]
            # A text too long for the captioner gets the lowest likelihood.
            fitting = [index for index, prompt in enumerate(prompts) if self.captioner.fits(prompt)]
            likely = np.full((len(prompts), len(keys)), -np.inf)
            if not fitting:
                return likely
            fitting_prompts = [prompts[index] for index in fitting]
            likely[fitting] = self._per_token(keys, fitting_prompts)
            if self.settings.rank == "contrast" and cluster.right:
                likely[fitting] -= self._per_token(cluster.right, fitting_prompts).mean(axis=1, keepdims=True)
            return likely

        best, likelihood = combine(chosen, score, self.settings.sentences)[-1]
        examples = tuple(sorted(set(captions), key=lambda text: (-captions.count(text), text))[:8])
        if not np.isfinite(likelihood):
            return Described(
                None,
                f"{self.settings.captioner} cannot score its own words about these images: they are too long",
                examples,
            )
        return Described(best, None, examples, likelihood)

    def _captions(self, keys: Sequence[str], prefix: str) -> list[str]:
        captions: list[str] = []
        for images, image_keys in self._by_images(keys):
            captioned = caption_images(
                images,
                self.captioner,
                user_cache() / "captions",
                keys=image_keys,
                prefix=prefix,
                number=self.settings.captions,
                seed=self.mine.seed,
                examples=self.examples,
            )
            captions += [text for texts in captioned.values() for text in texts or ()]
        return captions

    def _per_token(self, keys: Sequence[str], captions: Sequence[str]) -> NDArray[np.float64]:
        """Return (captions, images): log-likelihoods per token, of images that can be decoded."""
        parts = []
        for images, image_keys in self._by_images(keys):
            likely = likelihoods_of(
                images, captions, self.captioner, user_cache() / "captions", keys=image_keys, examples=self.examples
            )
            parts.append(likely.per_token)
        return np.concatenate(parts, axis=0).T

    def _by_images(self, keys: Sequence[str]) -> list[tuple[LabelledImages, list[str]]]:
        parts: list[tuple[LabelledImages, list[str]]] = []
        for start, images in self.images.items():
            image_keys = [key.removeprefix(start) for key in keys if key.startswith(start)]
            if image_keys:
                parts.append((images, image_keys))
        return parts


def pieces_said(captions: Sequence[str], base: str, cls: RecipeClass) -> dict[Piece, int]:
    """Count the captions that say each piece, in the order of the captions."""
    counts: dict[Piece, int] = {}
    for caption in captions:
        for piece in dict.fromkeys(pieces_of(caption, base, cls.name) or ()):
            counts[piece] = counts.get(piece, 0) + 1
    return counts
