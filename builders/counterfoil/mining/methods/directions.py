"""Method `directions` (Jain 2023, sections 2 and A): a linear SVM a class, right against wrong, named by captions.

The caption that the SVM calls hardest is a hypothesis: the images most like it fail. So is the absence of the easiest
one: where a context came with a class in training, what fails is the class without it, and no caption says that.
But a class that fails in the snow also fails off the beach, since snow is no beach. So the absence is tested on rows
outside of the class's hard sets: what fails there has a cause of its own.

Where a class has too few rows for a direction of its own, classes of one category are pooled: their features are
centred by class first, so that a direction tells contexts apart and not classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.captions import (
    ANY,
    Gathered,
    bundled_captions,
    caption_scores,
    extreme_captions,
    gather,
    load_captions,
    words_of,
)
from counterfoil.mining.cutoffs import Role, choose_cutoffs
from counterfoil.mining.decoding import decoded_vectors
from counterfoil.mining.directions.fitting import Direction, NoDirection, fit_directions, whiten
from counterfoil.mining.findings import ClassDirection, ScoredCaption
from counterfoil.mining.method import ClassNote, Decide, DiscoverHalf, Found, Hypothesis, Method
from counterfoil.mining.shift_names import slugs
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import DirectionsSettings, MethodSettings, Mine

_MOST_EVIDENCE = 50
_MOST_EASIEST = 12
_MOST_CAPTIONS = 5  # shown a class and side


def find_directions(half: DiscoverHalf, mine: Mine, settings: DirectionsSettings, workers: int | None) -> Found:
    """Up to two hypotheses a class and a category: its hardest caption, and far from its easiest one.

    Carried are those whose set fails more than `mine.margin` above the rest on the discover half.
    """
    points = whiten(half.features, half.centre, half.spread)
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
        if isinstance(direction, NoDirection):
            notes.append(ClassNote(reason=direction.reason))
            continue
        named = _Named.of(direction, half, label, settings.score)
        notes.append(ClassNote(direction=noted(direction), hard=named.shown(named.hard), easy=named.shown(named.easy)))
        vectors |= {f"{label}_weights": direction.weights, f"{label}_intercept": np.asarray([direction.intercept])}
        decide[label] = partial(_decision, direction, half.centre, half.spread)
        reference = half.captions.vectors[half.captions.references[label]]
        if direction.weights.any():
            decoded = decoded_vectors(reference, direction.weights, settings.alpha, settings.vector_norm, half.spread)
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


def grammar_captions(
    recipe: Recipe, settings: MethodSettings, folder: Path, device: str
) -> tuple[Gathered, tuple[str, ...]]:
    """The candidate captions of the grammar that `settings` names, else of the one for any classes, which is told."""
    if settings.captions is not None:
        return gather(load_captions(settings.captions), recipe.classes, settings.noun), ()
    others = ", ".join(one for one in bundled_captions() if one != ANY)
    told = (
        f"captions are those of the grammar '{ANY}', which fits classes of any names; to name another: --set"
        f" mine.settings.captions=, with {others} or a file of yours"
    )
    return gather(load_captions(ANY), recipe.classes, settings.noun), (told,)


DIRECTIONS = Method(DirectionsSettings, find_directions, captions=grammar_captions)


def _decision(
    direction: Direction, centre: NDArray[np.float64], spread: NDArray[np.float64], features: NDArray[np.floating]
) -> NDArray[np.float64]:
    return direction.decision(whiten(features, centre, spread))


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
            direction, captions.vectors[reference], captions.vectors[candidates], half.centre, half.spread, how
        )
        return cls(reference, candidates, scores, half)

    def shown(self, places: NDArray[np.int64]) -> tuple[ScoredCaption, ...]:
        return tuple(self._told(places))

    def _told(self, places: NDArray[np.int64]) -> Iterator[ScoredCaption]:
        for place in places.tolist():
            yield ScoredCaption(self.half.captions.texts[int(self.rows[place])], float(self.scores[place]))

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
