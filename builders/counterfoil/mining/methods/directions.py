"""Method `directions` (Jain 2023, sections 2 and A): one linear SVM per class separates right from
wrong images.

Captions put the direction of the SVM into words. A class gives two hypotheses: images near its
hardest caption fail, and images far from its easiest caption fail. The second hypothesis finds a
class that was trained in one context and fails outside this context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from counterfoil.arrays import AnyFloats, Floats, Floats32, Ints
from counterfoil.mining.captions import (
    ANY,
    CaptionGrammar,
    Gathered,
    gather_captions,
    words_of,
)
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
from counterfoil.mining.methods.svm import (
    Direction,
    DirectionFit,
    fit_directions,
    unit_rows,
    whiten,
)
from counterfoil.recipe.layering import bundled_folder
from counterfoil.recipe.schema_mine import DirectionsSettings, Mine

# Two scores of a caption c, which adds c - r to its reference r. `difference` is the score of the
# paper (section 2.2): the component of (c - r) / |c - r| along the direction. The direction is
# taken in the space of the embeddings, where it is weights / deviation, and is scaled to the length
# of the weights. `shifted` is the score of the public implementation: c - r is whitened and
# normalised like an image, and its decision value is the score. The correlation of the two scores
# is only about 0.8. The hard caption has the lowest score (appendix A of the paper prints argmax in
# error).
CaptionScore = Literal["difference", "shifted"]
# A dimension is ignored if its deviation is below this share of the largest deviation, because it
# is then constant except for rounding.
_LEAST_DEVIATION = 1e-9


def caption_scores(
    direction: Direction,
    reference: AnyFloats,
    candidates: AnyFloats,
    centre: AnyFloats,
    deviation: AnyFloats,
    how: CaptionScore = "difference",
) -> Floats:
    """Return the score of each candidate caption, (m,). A low score means a hard caption.

    reference: (width,), a unit vector. candidates: (m, width), unit vectors. centre, deviation:
    (width,), the mean and deviation that whiten images.
    """
    weights = np.asarray(direction.weights, dtype=np.float64)
    mean = np.asarray(centre, dtype=np.float64)
    deviation = np.asarray(deviation, dtype=np.float64)
    reference = np.asarray(reference, dtype=np.float64)
    differences = np.asarray(candidates, dtype=np.float64) - reference
    varied = deviation > _LEAST_DEVIATION * deviation.max(initial=0.0)
    inverse = np.zeros_like(deviation)
    np.divide(1.0, deviation, out=inverse, where=varied)
    if how == "shifted":
        return unit_rows((differences - mean) * inverse) @ weights + direction.intercept
    mapped = weights * inverse
    length = np.linalg.norm(mapped) or 1.0
    mapped *= np.linalg.norm(weights) / length
    return unit_rows(differences) @ mapped + direction.intercept


def extreme_captions(scores: AnyFloats, number: int) -> tuple[Ints, Ints]:
    """Return the rows of the hardest captions, hardest first, and of the easiest captions, easiest
    first. Captions with equal scores keep the order of their rows.
    """
    hard = np.argsort(scores, kind="stable")
    easy = np.argsort(-scores, kind="stable")
    return hard[:number], easy[:number]


_LEAST_SINE = 1e-6


def slerp(start: ArrayLike, end: ArrayLike, share: float) -> Floats:
    """Return the unit vector (width,) at `share` of the angle from `start` to `end`. Both may have
    any length."""
    first = _unit(start)
    last = _unit(end)
    # The angle is computed from distances, because arccos loses half of its digits if the vectors
    # are close.
    apart = np.linalg.norm(first - last)
    together = np.linalg.norm(first + last)
    angle = 2 * np.arctan2(apart, together)
    sine = np.sin(angle)
    if sine > _LEAST_SINE:
        of_first = np.sin((1 - share) * angle) * first
        of_last = np.sin(share * angle) * last
        return _unit((of_first + of_last) / sine)
    return _unit((1 - share) * first + share * last)


def direction_in_raw_space(weights: ArrayLike, deviation: ArrayLike) -> Floats:
    """Return the unit normal (width,) of a hyperplane in the space of the encoder. The normal is
    w/σ, because w·(x − μ)/σ equals (w/σ)·x plus a constant. deviation: (width,).
    """
    normal = np.asarray(weights, np.float64)
    deviations = np.asarray(deviation, np.float64)
    quotients = np.zeros_like(normal)
    np.divide(normal, deviations, out=quotients, where=deviations > 0)
    return _unit(quotients)


def decoded_vectors(
    reference: ArrayLike,
    weights: ArrayLike,
    alpha: float,
    norm: float,
    deviation: ArrayLike,
) -> tuple[Floats32, Floats32]:
    """Return embeddings (width,) of length `norm` for the hard and the easy side of a direction
    (Jain 2023, A.7)."""
    easy = direction_in_raw_space(weights, deviation)
    hard_vector = norm * slerp(reference, -easy, alpha)
    easy_vector = norm * slerp(reference, easy, alpha)
    return hard_vector.astype(np.float32), easy_vector.astype(np.float32)


def _unit(vector: ArrayLike) -> Floats:
    numbers = np.asarray(vector, np.float64)
    return numbers / np.linalg.norm(numbers)


_MOST_EVIDENCE = 50
_MOST_EASIEST = 12
_MOST_CAPTIONS = 5  # shown per class and side


def find_directions(
    half: DiscoverHalf,
    mine: Mine,
    settings: DirectionsSettings,
    workers: int | None,
) -> Found:
    """Return at most two hypotheses for each class and each category. Their sets fail more often
    than the rest on this half, by at least the margin.
    """
    points = whiten(half.features, half.centre, half.deviation)
    fit = DirectionFit(mine.seed, settings.permutations, settings.fewest_errors)
    classes = len(half.class_names)
    fitted = fit_directions(points, ~half.failed, half.labels, classes, half.units, fit, workers)
    pooled = categories_of(half) if settings.pool else {}
    stems = unique_slugs([*half.class_names, *pooled])
    of_direction = [field.name for field in fields(ClassDirection)]
    notes: list[ClassNote] = []
    sides: list[_Captioned] = []
    vectors: dict[str, AnyFloats] = {}
    decide: dict[int, Decide] = {}
    for label, direction in enumerate(fitted):
        if isinstance(direction, str):
            notes.append(ClassNote(reason=direction))
            continue
        name = half.class_names[label]
        captioned = _Captioned(
            half,
            settings,
            labels=(label,),
            name=name,
            stem=stems[label],
            direction=direction,
            points=points,
        )
        sides.append(captioned)
        hard, easy = captioned.extremes
        facts = {name: getattr(direction, name) for name in of_direction}
        note = ClassNote(
            direction=ClassDirection(**facts),
            hard=captioned.scored(hard),
            easy=captioned.scored(easy),
        )
        notes.append(note)
        weights = direction.weights
        vectors[f"{label}_weights"] = weights
        vectors[f"{label}_intercept"] = np.asarray([direction.intercept])
        decide[label] = lambda features, direction=direction: direction.decision(
            whiten(features, half.centre, half.deviation)
        )
        if weights.any():
            reference = half.captions.vectors[captioned.reference]
            hard, easy = decoded_vectors(
                reference,
                weights,
                settings.alpha,
                settings.vector_norm,
                half.deviation,
            )
            vectors[f"{label}_hard"] = hard
            vectors[f"{label}_easy"] = easy
    if pooled:
        within, fitted = _category_directions(half, points, pooled, fit, workers)
        of_categories = zip(pooled.items(), stems[classes:], fitted, strict=True)
        for (category, labels), stem, direction in of_categories:
            if isinstance(direction, Direction):
                vectors[f"category_{stem}_weights"] = direction.weights
                sides.append(_Captioned(half, settings, labels, category, stem, direction, within))
    # All hard sets are found first, because a far set is tested only on images outside the hard
    # sets.
    hard_sets = [captioned.hypothesis("hard", mine.margin) for captioned in sides]
    outside = [hypothesis for hypothesis in hard_sets if hypothesis is not None]
    hypotheses = []
    for captioned, hard_set in zip(sides, hard_sets, strict=True):
        far_set = captioned.hypothesis("far_from", mine.margin, outside)
        for side in (hard_set, far_set):
            if side is not None:
                hypotheses.append(side)
    return Found(tuple(hypotheses), tuple(notes), vectors, decide)


def _category_directions(
    half: DiscoverHalf,
    points: Floats,
    pooled: Mapping[str, tuple[int, ...]],
    fit: DirectionFit,
    workers: int | None,
) -> tuple[Floats, Sequence[Direction | str]]:
    """Return points (n, width) relative to the mean of their class, so that a direction separates
    contexts and not classes, and each category's direction, or why it has none."""
    categories = np.full(len(half.labels), -1, dtype=np.int64)
    within = points.copy()
    for category, labels in enumerate(pooled.values()):
        for label in labels:
            rows = np.flatnonzero(half.labels == label)
            categories[rows] = category
            within[rows] -= within[rows].mean(axis=0)
    within = unit_rows(within)
    rows = np.flatnonzero(categories >= 0)
    fitted = fit_directions(
        within[rows],
        ~half.failed[rows],
        categories[rows],
        len(pooled),
        half.units[rows],
        fit,
        workers,
    )
    return within, fitted


def grammar_captions(run: MiningRun) -> tuple[Gathered, tuple[str, ...]]:
    """Return captions from the grammar in the settings. If the settings name none, use the grammar
    for any class and add a note.
    """
    settings = run.settings
    named = settings.captions
    grammar = CaptionGrammar.load(ANY if named is None else named)
    captions = gather_captions(grammar, run.recipe.classes, settings.noun)
    if named is not None:
        return captions, ()
    files = (bundled_folder() / CaptionGrammar.kind).glob("*.yaml")
    others = ", ".join(sorted({path.stem for path in files} - {ANY}))
    note = (
        f"captions come from the grammar '{ANY}', which fits any class names; to use another, pass"
        f" --set mine.settings.captions= with {others} or your own file"
    )
    return captions, (note,)


DIRECTIONS = FindMethod(DirectionsSettings, find_directions, captions=grammar_captions)


@dataclass(frozen=True)
class _Captioned:
    """The direction of a class or category, fitted to `points` (n, width), and the scores of its
    candidate captions."""

    half: DiscoverHalf
    settings: DirectionsSettings
    labels: tuple[int, ...]
    name: str
    stem: str
    direction: Direction
    points: Floats

    @cached_property
    def reference(self) -> int:
        return self.half.captions.references[self.labels[0]]

    @cached_property
    def scores(self) -> Floats:
        half = self.half
        captions = half.captions
        candidates = captions.candidates[self.labels[0]]
        return caption_scores(
            self.direction,
            captions.vectors[self.reference],
            captions.vectors[candidates],
            half.centre,
            half.deviation,
            self.settings.score,
        )

    @cached_property
    def extremes(self) -> tuple[Ints, Ints]:
        return extreme_captions(self.scores, _MOST_CAPTIONS)

    def scored(self, columns: Ints) -> tuple[ScoredCaption, ...]:
        captions = self.half.captions
        rows = captions.candidates[self.labels[0]]
        scored = []
        for column in columns.tolist():
            text = captions.texts[rows[column]]
            score = float(self.scores[column])
            scored.append(ScoredCaption(text, score))
        return tuple(scored)

    def hypothesis(
        self,
        role: Role,
        margin: float,
        hard_sets: Sequence[Hypothesis] = (),
    ) -> Hypothesis | None:
        """Return the hypothesis of a role, tested outside `hard_sets`. Return None if its set does
        not fail more."""
        half = self.half
        captions = half.captions
        labels = self.labels
        is_far = role == "far_from"
        hardest, easiest = self.extremes
        best = easiest if is_far else hardest
        column = int(best[0])
        row = int(captions.candidates[labels[0]][column])
        score = float(self.scores[column])
        on_its_side = score > 0 if is_far else score < 0
        if not on_its_side:
            return None
        # A far set uses only what the caption adds to the reference. Images that are least similar
        # to a whole caption are unusual in any context, and on planted worlds of seeds 0 to 3 most
        # sets of such images failed for this.
        vector = captions.vectors[row]
        if is_far:
            added = vector.astype(np.float64)
            added -= captions.vectors[self.reference]
            length = np.linalg.norm(added) or 1.0
            vector = (added / length).astype(np.float32)
        rows = half.of_classes(labels)
        of_classes = half.chosen(rows)
        features = np.asarray(of_classes.features, dtype=np.float32)
        cosines = features @ vector
        cutoffs, members, (in_set, rest) = choose_cutoffs(of_classes, cosines, labels, role, margin)
        if not in_set.rows or not rest.rows:
            return None
        if in_set.rate - rest.rate <= margin:
            return None
        decisions = self.direction.decision(self.points[rows])
        easiest_rows = np.argsort(-decisions, kind="stable")[:_MOST_EASIEST]
        text = captions.texts[row]
        reference = captions.texts[self.reference]
        words = words_of(self.name, text, reference, role)
        outside = [other for other in hard_sets if set(other.labels) & set(labels)]
        hypothesis = Hypothesis(
            name=f"{self.stem}_{role}",
            labels=labels,
            role=role,
            words=words,
            caption=text,
            vector=vector,
            cutoffs=cutoffs,
            easiest=rows[easiest_rows],
            easiest_scores=decisions[easiest_rows],
            about={
                "caption_score": score,
                "strength": self.direction.strength,
                "strength_p": self.direction.p,
            },
            outside=tuple(outside),
        )
        tested = hypothesis.tested_on(of_classes.features, of_classes.labels)
        inside = np.flatnonzero(members & tested)
        lowest_first = np.argsort(decisions[inside], kind="stable")
        order = inside[lowest_first][:_MOST_EVIDENCE]
        return replace(hypothesis, evidence=rows[order], scores=-decisions[order])


def categories_of(half: DiscoverHalf) -> dict[str, tuple[int, ...]]:
    """Return the labels of each category that has several classes with the same reference
    caption."""
    present = set(half.labels.tolist())
    labels_of: dict[str, list[int]] = {}
    for label, category in enumerate(half.categories):
        if category is not None and label in present:
            labels_of.setdefault(category, []).append(label)
    references = half.captions.references
    pooled = {}
    for category, labels in sorted(labels_of.items()):
        of_category = {references[label] for label in labels}
        if len(labels) > 1 and len(of_category) == 1:
            pooled[category] = tuple(labels)
    return pooled
