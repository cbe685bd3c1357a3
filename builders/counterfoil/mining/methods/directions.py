"""Method `directions` (Jain 2023, sections 2 and A): one linear SVM per class, right against wrong, named by captions.

Each class gives two hypotheses. The first: images nearest to the caption with the lowest SVM score fail. The second:
images without the content of the highest-scoring caption fail. It covers a class that appeared with one context in
training and fails without it, which no caption can say. A class that fails in snow also fails away from the beach, so
the second hypothesis is tested only on rows outside the class's hard sets.

Classes of one category are also pooled, for classes with too few rows for their own direction. Features are centred by
class first, so that the direction separates contexts and not classes.

Captions are scored along the direction in the whitened and normalised space; low is hard. A caption c adds c - r to the
reference r. Two scores of c - r exist. They correlate by only about 0.8, so a finding records which was used:

* `difference`, the paper's (2.2): (c - r) / |c - r| along the direction. The paper writes the direction in the
  embeddings' own space. A direction fitted to whitened points maps back as weights / deviation. It is scaled to the
  length of the weights, because whitened points are unit vectors too.
* `shifted`, the public implementation's: (c - r) is whitened and normalised like an image; its decision value is
  the score. There, c and r are the encoder's raw output; here, they are unit vectors like the images.

The hard caption is the one with the lowest score. (The paper's appendix A prints argmax; its text and code do not.)
A direction can also be rendered without a caption (A.7). Embeddings are compared by angle, so the path from a caption's
embedding to ±w follows the unit sphere. Pipelines do not normalise embeddings, so the end point is scaled to the usual
length of the encoder's vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.mining.captions import ANY, Gathered, bundled_captions, gather, load_captions, words_of
from counterfoil.mining.findings import ClassDirection, ScoredCaption
from counterfoil.mining.findings_layer import unique_slugs
from counterfoil.mining.hypotheses import (
    ClassNote,
    Decide,
    DiscoverHalf,
    Found,
    Hypothesis,
    MiningRun,
    Role,
    choose_cutoffs,
)
from counterfoil.mining.method import FindMethod
from counterfoil.mining.methods.svm import Direction, DirectionFit, fit_directions, whiten
from counterfoil.recipe.schema_mine import MOST_ALPHA, DirectionsSettings, Mine

CaptionScore = Literal["difference", "shifted"]
# As a share of the largest deviation: below this, a dimension is constant except for rounding and is ignored.
_LEAST_DEVIATION = 1e-9


def caption_scores(
    direction: Direction,
    reference: NDArray[np.floating],
    candidates: NDArray[np.floating],
    centre: NDArray[np.floating],
    deviation: NDArray[np.floating],
    how: CaptionScore = "difference",
) -> NDArray[np.float64]:
    """Return (m,) the score of each candidate caption.

    reference: (width,) and candidates: (m, width), unit vectors of CLIP's text encoder. centre, deviation:
    (width,), which whiten images. With `difference`, a candidate equal to the reference scores the intercept. Raise
    ValueError for other shapes, numbers that are not finite and an unknown `how`.
    """
    weights, r, c, mu, deviation = (
        np.asarray(array, dtype=np.float64) for array in (direction.weights, reference, candidates, centre, deviation)
    )
    if c.ndim != 2 or not (weights.shape == r.shape == mu.shape == deviation.shape == c.shape[1:]):
        shapes = ", ".join(str(array.shape) for array in (weights, r, c, mu, deviation))
        raise ValueError(f"shapes of weights, reference, candidates, centre and spread do not fit: {shapes}")
    if not all(np.isfinite(array).all() for array in (weights, r, c, mu, deviation)):
        raise ValueError("found numbers that are not finite among weights, captions, centre and spread")
    differences = c - r
    tells = deviation > _LEAST_DEVIATION * deviation.max(initial=0.0)
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=tells)
    match how:
        case "difference":
            mapped = weights * inverse
            mapped *= np.linalg.norm(weights) / (np.linalg.norm(mapped) or 1.0)
            return _units(differences) @ mapped + direction.intercept
        case "shifted":
            whitened = (differences - mu) * inverse
            return _units(whitened) @ weights + direction.intercept
    raise ValueError(f"found how={how!r}, expected 'difference' or 'shifted'")


def extreme_captions(scores: NDArray[np.floating], number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of the `number` hardest captions, hardest first, and of the easiest, easiest first.

    If scores are equal, the earlier row comes first.
    """
    scores = np.asarray(scores, dtype=np.float64)
    hard, easy = np.argsort(scores, kind="stable"), np.argsort(-scores, kind="stable")
    return hard[:number].astype(np.int64), easy[:number].astype(np.int64)


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows scaled to length 1; a row of zeros is unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


_LEAST_SINE = 1e-6


def slerp(start: ArrayLike, end: ArrayLike, share: float) -> NDArray[np.float64]:
    """Return the unit vector (width,) at `share` of the angle from `start` to `end`, which may have any length.

    Raise ValueError for a share outside 0 to 1, unequal widths, zero or non-finite vectors, and opposite vectors, which
    have no shortest path.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected 0 to 1")
    first, last = _unit(start), _unit(end)
    if first.shape != last.shape:
        raise ValueError(f"widths {len(first)} and {len(last)}, expected equal ones")
    # From the distances: arccos loses half of its digits for near vectors.
    angle = 2 * np.arctan2(np.linalg.norm(first - last), np.linalg.norm(first + last))
    sine = np.sin(angle)
    if sine > _LEAST_SINE:
        return _unit((np.sin((1 - share) * angle) * first + np.sin(share * angle) * last) / sine)
    if first @ last < 0:
        raise ValueError("the vectors are opposite, so no way between them is the shortest")
    return _unit((1 - share) * first + share * last)


def direction_in_raw_space(weights: ArrayLike, deviation: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return a hyperplane's unit normal (width,) in the encoder's own space.

    weights: (width,), in that space or, if `deviation` (width,) is given, in the space whitened by it. Then the normal
    is w/σ, because w·(x − μ)/σ equals (w/σ)·x plus a constant. A dimension with deviation 0 gets 0. Raise ValueError as
    `slerp` does.
    """
    normal = np.asarray(weights, np.float64)
    if deviation is not None:
        deviations = np.asarray(deviation, np.float64)
        if deviations.shape != normal.shape or not (deviations >= 0).all():
            raise ValueError(f"spread {deviations.shape}, expected {normal.shape} finite numbers of at least 0")
        normal = np.divide(normal, deviations, out=np.zeros_like(normal), where=deviations > 0)
    return _unit(normal)


def decoded_vectors(
    reference: ArrayLike, weights: ArrayLike, alpha: float, norm: float, deviation: ArrayLike | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return embeddings to render for the hard and the easy side of a direction: two vectors (width,) of length `norm`.

    reference: (width,), the reference caption's embedding. Positive decisions are easy, so the hard vector is towards
    −w. alpha: share of the angle, 0 to 0.3. norm: the usual length of the encoder's vectors. Raise ValueError for
    another alpha or norm, and as `slerp` does.
    """
    if not 0 <= alpha <= MOST_ALPHA:
        raise ValueError(f"alpha is {alpha}, expected 0 to {MOST_ALPHA}")
    if not (np.isfinite(norm) and norm > 0):
        raise ValueError(f"norm is {norm}, expected a length above 0")
    easy = direction_in_raw_space(weights, deviation)
    hard_vector, easy_vector = (norm * slerp(reference, side, alpha) for side in (-easy, easy))
    return hard_vector.astype(np.float32), easy_vector.astype(np.float32)


def _unit(vector: ArrayLike) -> NDArray[np.float64]:
    numbers = np.asarray(vector, np.float64)
    length = np.linalg.norm(numbers)
    if numbers.ndim != 1 or not np.isfinite(length) or length == 0:
        raise ValueError(f"a vector {numbers.shape} of length {length}, expected one row of finite numbers, not all 0")
    return numbers / length


_MOST_EVIDENCE = 50
_MOST_EASIEST = 12
_MOST_CAPTIONS = 5  # shown per class and side


def find_directions(half: DiscoverHalf, mine: Mine, settings: DirectionsSettings, workers: int | None) -> Found:
    """Return up to two hypotheses per class and category: near its hardest caption, and far from its easiest one.

    Keep a hypothesis if its set's failure rate on the discover half exceeds the rest's by more than `mine.margin`.
    """
    points = whiten(half.features, half.centre, half.deviation)
    fit = DirectionFit(mine.seed, settings.permutations, settings.fewest_errors)
    fitted = fit_directions(points, ~half.failed, half.labels, len(half.class_names), half.units, fit, workers)
    pooled = categories_of(half) if settings.pool else {}
    stems = unique_slugs([*half.class_names, *pooled])
    notes: list[ClassNote] = []
    sides: list[_Captioned] = []
    vectors: dict[str, NDArray[np.floating]] = {}
    decide: dict[int, Decide] = {}
    for label, direction in enumerate(fitted):
        if isinstance(direction, str):
            notes.append(ClassNote(reason=direction))
            continue
        captioned = _Captioned(half, settings, (label,), half.class_names[label], stems[label], direction, points)
        hard, easy = captioned.extremes
        shown = ClassDirection(**{field.name: getattr(direction, field.name) for field in fields(ClassDirection)})
        notes.append(ClassNote(direction=shown, hard=captioned.scored(hard), easy=captioned.scored(easy)))
        vectors |= {f"{label}_weights": direction.weights, f"{label}_intercept": np.asarray([direction.intercept])}
        decide[label] = partial(_decision, direction, half.centre, half.deviation)
        reference = half.captions.vectors[half.captions.references[label]]
        if direction.weights.any():
            decoded = decoded_vectors(
                reference, direction.weights, settings.alpha, settings.vector_norm, half.deviation
            )
            vectors |= dict(zip((f"{label}_hard", f"{label}_easy"), decoded, strict=True))
        sides.append(captioned)
    if pooled:
        # For each row: its category (-1: none), and its point minus the mean of its class, of unit length.
        groups, within = np.full(len(half.labels), -1, dtype=np.int64), points.copy()
        for group, labels in enumerate(pooled.values()):
            for label in labels:
                rows = np.flatnonzero(half.labels == label)
                groups[rows] = group
                if len(rows):
                    within[rows] -= within[rows].mean(axis=0)
        lengths = np.linalg.norm(within, axis=1, keepdims=True)
        within /= np.where(lengths > 0, lengths, 1)
        rows = np.flatnonzero(groups >= 0)
        fitted = fit_directions(
            within[rows], ~half.failed[rows], groups[rows], len(pooled), half.units[rows], fit, workers
        )
        for (category, labels), stem, direction in zip(
            pooled.items(), stems[len(half.class_names) :], fitted, strict=True
        ):
            if isinstance(direction, Direction):
                vectors[f"category_{stem}_weights"] = direction.weights
                sides.append(_Captioned(half, settings, labels, category, stem, direction, within))
    # Find all hard sets first: the far sets are tested outside them.
    hard_sets = [captioned.hypothesis("hard", mine.margin) for captioned in sides]
    outside = [hypothesis for hypothesis in hard_sets if hypothesis is not None]
    hypotheses = []
    for captioned, hard_set in zip(sides, hard_sets, strict=True):
        both = (hard_set, captioned.hypothesis("far_from", mine.margin, outside))
        hypotheses += [hypothesis for hypothesis in both if hypothesis is not None]
    return Found(tuple(hypotheses), tuple(notes), vectors, decide)


def grammar_captions(run: MiningRun) -> tuple[Gathered, tuple[str, ...]]:
    """Return captions from the grammar in the settings; without one, from the grammar for any class, with a note."""
    recipe, settings = run.recipe, run.settings
    if settings.captions is not None:
        return gather(load_captions(settings.captions), recipe.classes, settings.noun), ()
    others = ", ".join(name for name in bundled_captions() if name != ANY)
    note = (
        f"captions come from the grammar '{ANY}', which fits any class names; to use another, pass --set"
        f" mine.settings.captions= with {others} or your own file"
    )
    return gather(load_captions(ANY), recipe.classes, settings.noun), (note,)


DIRECTIONS = FindMethod(DirectionsSettings, find_directions, captions=grammar_captions)


def _decision(
    direction: Direction, centre: NDArray[np.float64], deviation: NDArray[np.float64], features: NDArray[np.floating]
) -> NDArray[np.float64]:
    return direction.decision(whiten(features, centre, deviation))


@dataclass(frozen=True)
class _Captioned:
    """The direction of a class or of a category, and its scores of their candidate captions: low is hard.

    points: (n, width), the points that the direction was fitted to. stem: prefix of its hypotheses' names.
    """

    half: DiscoverHalf
    settings: DirectionsSettings
    labels: tuple[int, ...]
    name: str
    stem: str
    direction: Direction
    points: NDArray[np.float64]

    @cached_property
    def reference(self) -> int:
        return self.half.captions.references[self.labels[0]]

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        half, vectors = self.half, self.half.captions.vectors
        candidates = vectors[half.captions.candidates[self.labels[0]]]
        reference, how = vectors[self.reference], self.settings.score
        return caption_scores(self.direction, reference, candidates, half.centre, half.deviation, how)

    @cached_property
    def extremes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return extreme_captions(self.scores, _MOST_CAPTIONS)

    def scored(self, columns: NDArray[np.int64]) -> tuple[ScoredCaption, ...]:
        texts, rows = self.half.captions.texts, self.half.captions.candidates[self.labels[0]]
        return tuple(ScoredCaption(texts[int(rows[column])], float(self.scores[column])) for column in columns.tolist())

    def hypothesis(self, role: Role, margin: float, hard_sets: Sequence[Hypothesis] = ()) -> Hypothesis | None:
        """Return the hypothesis of a role, or None if its set does not fail more on the discover half.

        hard_sets: hypotheses whose sets are left out of the test if they share a class with this one.
        """
        half, captions, labels = self.half, self.half.captions, self.labels
        hardest, easiest = self.extremes
        column = int((hardest if role == "hard" else easiest)[0])
        row, score = int(captions.candidates[labels[0]][column]), float(self.scores[column])
        if not (score < 0 if role == "hard" else score > 0):
            return None
        # Near: the caption's own vector. Far: only what the caption adds to the reference. Images least similar to a
        # whole caption are unusual images of the class in any context (on planted worlds of seeds 0 to 3, most such
        # sets failed because they were unusual).
        vector = captions.vectors[row]
        if role == "far_from":
            added = vector.astype(np.float64) - captions.vectors[self.reference]
            vector = (added / (np.linalg.norm(added) or 1.0)).astype(np.float32)
        rows = np.flatnonzero(np.isin(half.labels, labels))
        cosines = np.asarray(half.features[rows], dtype=np.float32) @ vector
        cutoffs, members, (in_set, rest) = choose_cutoffs(
            cosines, half.labels[rows], half.failed[rows], half.units[rows], labels, role, margin
        )
        if not (in_set.rows and rest.rows) or in_set.rate - rest.rate <= margin:
            return None
        decisions = self.direction.decision(self.points[rows])
        easiest_rows = np.argsort(-decisions, kind="stable")[:_MOST_EASIEST]
        text = captions.texts[row]
        hypothesis = Hypothesis(
            name=f"{self.stem}_{role}",
            labels=labels,
            role=role,
            words=words_of(self.name, text, captions.texts[self.reference], role),
            caption=text,
            vector=vector,
            cutoffs=cutoffs,
            evidence=rows[:0],
            scores=decisions[:0],
            easiest=rows[easiest_rows],
            easiest_scores=decisions[easiest_rows],
            about={"caption_score": score, "strength": self.direction.strength, "strength_p": self.direction.p},
            outside=tuple(other for other in hard_sets if set(other.labels) & set(labels)),
        )
        inside = np.flatnonzero(members & hypothesis.tested_on(half.features[rows], half.labels[rows]))
        order = inside[np.argsort(decisions[inside], kind="stable")][:_MOST_EVIDENCE]
        return replace(hypothesis, evidence=rows[order], scores=-decisions[order])


def categories_of(half: DiscoverHalf) -> dict[str, tuple[int, ...]]:
    """Return category → labels, for categories of several classes that share their reference caption."""
    labels_of: dict[str, list[int]] = {}
    for label, category in enumerate(half.categories):
        if category is not None and (half.labels == label).any():
            labels_of.setdefault(category, []).append(label)
    references = half.captions.references
    return {
        category: tuple(labels)
        for category, labels in sorted(labels_of.items())
        if len(labels) > 1 and len({references[label] for label in labels}) == 1
    }
