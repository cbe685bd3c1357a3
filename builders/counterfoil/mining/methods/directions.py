"""Method `directions` (Jain 2023, sections 2 and A): a linear SVM a class, right against wrong, named by captions.

The caption that the SVM calls hardest is a hypothesis: the images most like it fail. So is the absence of the easiest
one: where a context came with a class in training, what fails is the class without it, and no caption says that.
But a class that fails in the snow also fails off the beach, since snow is no beach. So the absence is tested on rows
outside of the class's hard sets: what fails there has a cause of its own.

Where a class has too few rows for a direction of its own, classes of one category are pooled: their features are
centred by class first, so that a direction tells contexts apart and not classes.

Captions are scored along a direction as it stands in the whitened and normalised space; low is hard. What a caption c
says more than the reference r is c - r, and there are two ways to ask about it, which correlate by about 0.8 only, so
a finding records which was used:

* `difference`, the paper's (2.2): (c - r) / |c - r| along the direction. The paper writes the direction in the
  embeddings' own space; one that was found among whitened points maps back as weights / deviation, here scaled to the
  length that the weights have, since whitened points, too, meet them as unit vectors.
* `shifted`, the public implementation's: (c - r) is whitened and normalised as if it were an image, and gets its
  decision value. There c and r are the encoder's raw output; here they are unit vectors, as the images are.

The hard caption is the one with the lowest score. (The paper's appendix A prints argmax; its text and its code do not.)
A direction can be drawn without a caption too (A.7): encoders' vectors are compared by their angles and no pipeline
normalises what it is given, so the way from a caption's embedding to ±w runs along the unit sphere and its end is
scaled to the length that the encoder's vectors usually have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterfoil.mining.captions import ANY, Gathered, bundled_captions, gather, load_captions, words_of
from counterfoil.mining.findings import ClassDirection, ScoredCaption
from counterfoil.mining.findings_layer import slugs
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
from counterfoil.mining.methods.svm import Direction, fit_directions, whiten
from counterfoil.recipe.schema_mine import MOST_ALPHA, DirectionsSettings, Mine

CaptionScore = Literal["difference", "shifted"]
# Against the largest deviation: a dimension that is constant but for rounding tells nothing, and divides by nothing.
_LEAST_DEVIATION = 1e-9


def caption_scores(
    direction: Direction,
    reference: NDArray[np.floating],
    candidates: NDArray[np.floating],
    centre: NDArray[np.floating],
    deviation: NDArray[np.floating],
    how: CaptionScore = "difference",
) -> NDArray[np.float64]:
    """(m,) score of each candidate caption.

    reference: (width,) and candidates: (m, width), unit vectors of CLIP's text encoder. centre, deviation: (width,), by
    which images are whitened. By `difference` a candidate equal to the reference scores the intercept. ValueError for
    other shapes, for numbers that are not finite and for another `how`.
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
    """Rows of the `number` hardest captions, hardest first, and of the easiest, easiest first.

    There are fewer where there are fewer captions. Of equal scores the earlier row comes first: equal inputs name
    equal captions.
    """
    scores = np.asarray(scores, dtype=np.float64)
    hard, easy = np.argsort(scores, kind="stable"), np.argsort(-scores, kind="stable")
    return hard[:number].astype(np.int64), easy[:number].astype(np.int64)


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


_LEAST_SINE = 1e-6


def slerp(start: ArrayLike, end: ArrayLike, share: float) -> NDArray[np.float64]:
    """The unit vector (width,) that lies `share` of the angle from `start` to `end`, whatever their lengths.

    ValueError for a share outside 0 to 1, other widths, vectors without a direction, and opposite ones, between which
    no way is the shortest.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}, expected 0 to 1")
    first, last = _unit(start), _unit(end)
    if first.shape != last.shape:
        raise ValueError(f"widths {len(first)} and {len(last)}, expected equal ones")
    # By the distances, not by arccos: that loses half of its digits where the two are near.
    angle = 2 * np.arctan2(np.linalg.norm(first - last), np.linalg.norm(first + last))
    sine = np.sin(angle)
    if sine > _LEAST_SINE:
        return _unit((np.sin((1 - share) * angle) * first + np.sin(share * angle) * last) / sine)
    if first @ last < 0:
        raise ValueError("the vectors are opposite, so no way between them is the shortest")
    return _unit((1 - share) * first + share * last)


def direction_in_raw_space(weights: ArrayLike, deviation: ArrayLike | None = None) -> NDArray[np.float64]:
    """A hyperplane's unit normal (width,) in the encoder's own space.

    weights: (width,), found there, or in the space whitened by `deviation` (width,), which maps back as w/σ: the
    decision w·(x − μ)/σ is (w/σ)·x but for a constant. A dimension of no deviation says nothing and gets 0. ValueError
    as `slerp`.
    """
    normal = np.asarray(weights, np.float64)
    if deviation is not None:
        own = np.asarray(deviation, np.float64)
        if own.shape != normal.shape or not (own >= 0).all():
            raise ValueError(f"spread {own.shape}, expected {normal.shape} finite numbers of at least 0")
        normal = np.divide(normal, own, out=np.zeros_like(normal), where=own > 0)
    return _unit(normal)


def decoded_vectors(
    reference: ArrayLike, weights: ArrayLike, alpha: float, norm: float, deviation: ArrayLike | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What to draw for the hard and for the easy side of a direction: two vectors (width,) of length `norm`.

    reference: (width,), the reference caption's embedding. weights, deviation: as `direction_in_raw_space` takes;
    positive decisions are easy, so the hard one lies towards −w. alpha: how far, 0 to 0.3 of the angle. norm: the usual
    length of the encoder's vectors. ValueError for another alpha or norm, and as `slerp`.
    """
    if not 0 <= alpha <= MOST_ALPHA:
        raise ValueError(f"alpha is {alpha}, expected 0 to {MOST_ALPHA}")
    if not (np.isfinite(norm) and norm > 0):
        raise ValueError(f"norm is {norm}, expected a length above 0")
    easy = direction_in_raw_space(weights, deviation)
    hard_vector, easy_vector = (norm * slerp(reference, side, alpha) for side in (-easy, easy))
    return hard_vector.astype(np.float32), easy_vector.astype(np.float32)


def _unit(vector: ArrayLike) -> NDArray[np.float64]:
    own = np.asarray(vector, np.float64)
    length = np.linalg.norm(own)
    if own.ndim != 1 or not np.isfinite(length) or length == 0:
        raise ValueError(f"a vector {own.shape} of length {length}, expected one row of finite numbers, not all 0")
    return own / length


_MOST_EVIDENCE = 50
_MOST_EASIEST = 12
_MOST_CAPTIONS = 5  # shown a class and side


def find_directions(half: DiscoverHalf, mine: Mine, settings: DirectionsSettings, workers: int | None) -> Found:
    """Up to two hypotheses a class and a category: its hardest caption, and far from its easiest one.

    Carried are those whose set fails more than `mine.margin` above the rest on the discover half.
    """
    points = whiten(half.features, half.centre, half.deviation)
    fitted = fit_directions(
        points,
        ~half.failed,
        half.labels,
        len(half.class_names),
        half.units,
        seed=mine.seed,
        workers=workers,
        permutations=settings.permutations,
        fewest_errors=settings.fewest_errors,
    )
    pooled = categories_of(half) if settings.pool else {}
    stems = slugs([*half.class_names, *pooled])
    notes: list[ClassNote] = []
    named_sets: list[Callable[[Role, Sequence[Hypothesis]], Hypothesis | None]] = []
    vectors: dict[str, NDArray[np.floating]] = {}
    decide: dict[int, Decide] = {}
    for label, direction in enumerate(fitted):
        if isinstance(direction, str):
            notes.append(ClassNote(reason=direction))
            continue
        named = _Named.of(direction, half, label, settings.score)
        notes.append(ClassNote(direction=noted(direction), hard=named.shown(named.hard), easy=named.shown(named.easy)))
        vectors |= {f"{label}_weights": direction.weights, f"{label}_intercept": np.asarray([direction.intercept])}
        decide[label] = partial(_decision, direction, half.centre, half.deviation)
        reference = half.captions.vectors[half.captions.references[label]]
        if direction.weights.any():
            decoded = decoded_vectors(
                reference, direction.weights, settings.alpha, settings.vector_norm, half.deviation
            )
            vectors |= dict(zip((f"{label}_hard", f"{label}_easy"), decoded, strict=True))
        named_sets.append(
            partial(_carried, half, (label,), half.class_names[label], stems[label], named, direction, points, mine)
        )
    if pooled:
        groups, within = _pooled(points, half.labels, pooled)
        rows = np.flatnonzero(groups >= 0)
        fitted = fit_directions(
            within[rows],
            ~half.failed[rows],
            groups[rows],
            len(pooled),
            half.units[rows],
            seed=mine.seed,
            workers=workers,
            permutations=settings.permutations,
            fewest_errors=settings.fewest_errors,
        )
        for (category, labels), direction in zip(pooled.items(), fitted, strict=True):
            if isinstance(direction, Direction):
                named = _Named.of(direction, half, labels[0], settings.score)
                stem = stems[len(half.class_names) + list(pooled).index(category)]
                vectors[f"category_{stem}_weights"] = direction.weights
                named_sets.append(partial(_carried, half, labels, category, stem, named, direction, within, mine))
    # All hard sets are there before the first absence is looked at.
    hard = [one("hard", ()) for one in named_sets]
    found = [one for one in hard if one is not None]
    pairs = zip(hard, [one("far_from", found) for one in named_sets], strict=True)
    return Found(tuple(one for pair in pairs for one in pair if one is not None), tuple(notes), vectors, decide)


def grammar_captions(run: MiningRun) -> tuple[Gathered, tuple[str, ...]]:
    """The candidate captions of the grammar that the settings name, else of the one for any classes, which is noted."""
    recipe, settings = run.recipe, run.settings
    if settings.captions is not None:
        return gather(load_captions(settings.captions), recipe.classes, settings.noun), ()
    others = ", ".join(one for one in bundled_captions() if one != ANY)
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


class _Named:
    """The candidate captions of a class, scored by its direction: low is hard."""

    def __init__(self, reference: int, candidates: NDArray[np.int64], scores: NDArray[np.floating], half: DiscoverHalf):
        self.reference, self.half = reference, half
        self.rows, self.scores = candidates, scores
        self.hard, self.easy = extreme_captions(scores, _MOST_CAPTIONS)

    @classmethod
    def of(cls, direction: Direction, half: DiscoverHalf, label: int, how: Literal["difference", "shifted"]) -> _Named:
        captions = half.captions
        reference, candidates = captions.references[label], captions.candidates[label]
        scores = caption_scores(
            direction, captions.vectors[reference], captions.vectors[candidates], half.centre, half.deviation, how
        )
        return cls(reference, candidates, scores, half)

    def shown(self, places: NDArray[np.int64]) -> tuple[ScoredCaption, ...]:
        texts = self.half.captions.texts
        return tuple(
            ScoredCaption(texts[int(self.rows[place])], float(self.scores[place])) for place in places.tolist()
        )

    def of_role(self, role: Role) -> tuple[int, float]:
        """The caption whose set has this role: the hardest, or the easiest, which the set is far from."""
        place = int((self.hard if role == "hard" else self.easy)[0])
        return int(self.rows[place]), float(self.scores[place])


def _carried(
    half: DiscoverHalf,
    labels: tuple[int, ...],
    name: str,
    stem: str,
    named: _Named,
    direction: Direction,
    points: NDArray[np.float64],
    mine: Mine,
    role: Role,
    hard: Sequence[Hypothesis],
) -> Hypothesis | None:
    """The hypothesis of some classes and a role; None where its set does not fail more on the discover half.

    hard: those whose sets the absence of a caption is tested outside of, where they share a class with it.
    """
    caption, score = named.of_role(role)
    if not (score < 0 if role == "hard" else score > 0):
        return None
    rows = np.flatnonzero(np.isin(half.labels, labels))
    decisions = direction.decision(points[rows])
    vector = _set_vector(half.captions.vectors[caption], half.captions.vectors[named.reference], role)
    cosines = np.asarray(half.features[rows], dtype=np.float32) @ vector
    cutoffs, members, (in_set, rest) = choose_cutoffs(
        cosines, half.labels[rows], half.failed[rows], half.units[rows], labels, role, mine.margin
    )
    if not (in_set.rows and rest.rows) or in_set.rate - rest.rate <= mine.margin:
        return None
    easiest = np.argsort(-decisions, kind="stable")[:_MOST_EASIEST]
    text, reference = half.captions.texts[caption], half.captions.texts[named.reference]
    found = Hypothesis(
        name=f"{stem}_{role}",
        labels=labels,
        role=role,
        words=words_of(name, text, reference, role),
        caption=text,
        vector=vector,
        cutoffs=cutoffs,
        evidence=rows[:0],
        scores=decisions[:0],
        easiest=rows[easiest],
        easiest_scores=decisions[easiest],
        about={"caption_score": score, "strength": direction.strength, "strength_p": direction.p},
        outside=tuple(one for one in hard if set(one.labels) & set(labels)),
    )
    inside = np.flatnonzero(members & found.tested_on(half.features[rows], half.labels[rows]))
    order = inside[np.argsort(decisions[inside], kind="stable")][:_MOST_EVIDENCE]
    return replace(found, evidence=rows[order], scores=-decisions[order])


def _set_vector(caption: NDArray[np.float32], reference: NDArray[np.float32], role: Role) -> NDArray[np.float32]:
    """(width,) the unit vector whose cosine with an image makes the set.

    Near: the caption's. Far: what it says beyond the reference, for the images least like a whole caption are the odd
    ones of the class, whatever their context (on planted worlds of seeds 0 to 3 most such sets failed for oddness).
    """
    if role == "hard":
        return caption
    added = caption.astype(np.float64) - reference
    return (added / (np.linalg.norm(added) or 1.0)).astype(np.float32)


def categories_of(half: DiscoverHalf) -> dict[str, tuple[int, ...]]:
    """Category → labels, where it has several classes and they share their captions, so that one can speak for all."""
    found: dict[str, list[int]] = {}
    for label, category in enumerate(half.categories):
        if category is not None and (half.labels == label).any():
            found.setdefault(category, []).append(label)
    references = half.captions.references
    return {
        category: tuple(labels)
        for category, labels in sorted(found.items())
        if len(labels) > 1 and len({references[label] for label in labels}) == 1
    }


def _pooled(
    points: NDArray[np.float64], labels: NDArray[np.int64], pooled: dict[str, tuple[int, ...]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The category of each row (-1 for none), and its point less the mean of its class, of unit length."""
    groups = np.full(len(labels), -1, dtype=np.int64)
    within = points.copy()
    for place, members in enumerate(pooled.values()):
        for label in members:
            rows = np.flatnonzero(labels == label)
            groups[rows] = place
            if len(rows):
                within[rows] -= within[rows].mean(axis=0)
    lengths = np.linalg.norm(within, axis=1, keepdims=True)
    return groups, within / np.where(lengths > 0, lengths, 1)


def noted(direction: Direction) -> ClassDirection:
    """A direction as the findings tell it."""
    return ClassDirection(
        strength=direction.strength,
        interval=direction.interval,
        p=direction.p,
        C=direction.C,
        rows=direction.rows,
        errors=direction.errors,
        solver=direction.solver,
    )
