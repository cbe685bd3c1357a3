"""What a method is given, half of the images as arrays; and what it gives: hypotheses, each with its set of images.

A set ends at a cosine with its caption: a share of each class's rows, chosen on the discover half and then fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.findings import ClassContext, ClassDirection, ScoredCaption
from counterfoil.mining.image_measures import ImageMeasure
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import FailureCount, count_failures, score_test

# Which side of a caption a set lies on: the images nearest to it, or those with the least of what it adds.
Role = Literal["hard", "far_from"]
# Shares of a class that a set may be. Below a tenth few rows are left to test; above a half the rest is the exception.
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def choose_cutoffs(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    failed: NDArray[np.bool_],
    units: NDArray[np.int64],
    classes: Sequence[int],
    role: Role,
    margin: float,
) -> tuple[tuple[float, ...], NDArray[np.bool_], tuple[FailureCount, FailureCount]]:
    """The cut-off of each class, the set (n,), and its and the rest's failures, for n rows of `classes`.

    cosines: (n,) with the caption. The same share of every class, so that a set is no choice among classes: the one
    whose set is least likely to fail as seldom as the rest and the margin allow; of equal ones the largest.
    """
    tried = []
    for share in SHARES:
        cutoffs = cutoffs_at(cosines, labels, classes, role, share)
        members = cut(cosines, labels, classes, cutoffs, role)
        counts = count_failures(failed, units, members)
        tried.append((score_test(*counts, margin), (cutoffs, members, counts)))
    return min(reversed(tried), key=lambda one: one[0])[1]


def cutoffs_at(
    cosines: NDArray[np.floating], labels: NDArray[np.int64], classes: Sequence[int], role: Role, share: float
) -> tuple[float, ...]:
    """The cosine that `share` of each class's rows reach (hard) or stay under (far_from)."""
    level = 1 - share if role == "hard" else share
    return tuple(float(np.quantile(cosines[labels == label], level)) for label in classes)


def cut(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    classes: Sequence[int],
    cutoffs: Sequence[float],
    role: Role,
) -> NDArray[np.bool_]:
    """(n,) which rows are in the set."""
    limits = np.full(int(labels.max(initial=-1)) + 1, np.nan)
    for label, cutoff in zip(classes, cutoffs, strict=True):
        if label < len(limits):
            limits[label] = cutoff
    with np.errstate(invalid="ignore"):  # rows of other classes have no limit, and are in no set
        return cosines >= limits[labels] if role == "hard" else cosines <= limits[labels]


Decide = Callable[[NDArray[np.floating]], NDArray[np.float64]]
_OF_NO_IMAGE = ("mine", "evaluate", "publish")


@dataclass(frozen=True)
class MiningRun:
    """What a run of mining was asked, and where it works.

    recipe: as it is mined, with `overrides`; source: how its person named it. settings: `mine.settings`, read by the
    method. folder: where mining leaves its files, and where what was asked of a model is remembered.
    """

    recipe: Recipe
    mine: Mine
    settings: Any
    source: str | Path
    overrides: Sequence[str]
    folder: Path
    device: str = "cpu"
    workers: int | None = None

    def in_round(self, place: Path) -> MiningRun:
        """The same for a round in `place`: overrides that change no image are left out, so that the round serves
        another margin as well."""
        kept = [one for one in self.overrides if one.partition("=")[0].strip().split(".")[0] not in _OF_NO_IMAGE]
        return replace(self, overrides=kept, folder=place)


@dataclass(frozen=True, slots=True)
class CandidateCaptions:
    """Candidate captions and what CLIP makes of them, each once.

    texts: all, references included. vectors: (len(texts), width), unit vectors. references: by label, the row of the
    caption that says the class alone. candidates: by label, rows of those that say more.
    """

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    references: tuple[int, ...]
    candidates: tuple[NDArray[np.int64], ...]


NO_CAPTIONS = CandidateCaptions((), np.zeros((0, 0), np.float32), (), ())


@dataclass(frozen=True, slots=True)
class SliceColumns:
    """What the columns of some rows' features are, where these are no CLIP's: measures, then shifts, then own features.

    measures: those that vary, a column each. shifts: names, a column each, 1 where a row is of it. The last `width`
    columns are unit vectors of the classifier's own features.
    """

    measures: tuple[ImageMeasure, ...] = ()
    shifts: tuple[str, ...] = ()
    width: int = 0


NO_COLUMNS = SliceColumns()


@dataclass(frozen=True, slots=True)
class DiscoverHalf:
    """The n rows that hypotheses are found on; what is found is tested on the other half.

    features: (n, width), CLIP's unit vectors, or what `columns` says. labels: (n,), positions in the recipe's classes.
    failed: (n,) bool, whether the failure rule calls the target's answer wrong. taken_for: (n,), the class that the
    target answers, -1 for none of these. pooled: (n,) by name, failures of further classifiers, where a method asks for
    them. units: (n,), equal where rows share a unit. centre, deviation: (width,), mean and standard deviation (ddof 1)
    of the train split's features. categories: by label, None where the recipe tells none.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    taken_for: NDArray[np.int64]
    units: NDArray[np.int64]
    centre: NDArray[np.float64]
    deviation: NDArray[np.float64]
    captions: CandidateCaptions
    class_names: tuple[str, ...]
    categories: tuple[str | None, ...]
    pooled: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    columns: SliceColumns = NO_COLUMNS


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Classes and words of which a method says that they fail together, and the set of images that it means.

    name: unique in a run. labels: one class, or those of a category. words: for people. caption: what names it.
    vector: (width,), made of the caption, whose cosine with an image decides: at least the cut-off of the image's class
    where the role is `hard`, at most where it is `far_from`. cutoffs: by place in `labels`. evidence: rows of the
    discover half, best first; scores: what they are ordered by. easiest: rows there that the method expects the target
    to get right above all others of the classes, easiest first, and its own scores of them. about: the method's own
    numbers, as JSON takes them. against: further labels whose rows are in the rest. answered: a class whose answers are
    counted in place of failures.
    """

    name: str
    labels: tuple[int, ...]
    role: Role
    words: str
    caption: str
    vector: NDArray[np.float32]
    cutoffs: tuple[float, ...]
    evidence: NDArray[np.int64]
    scores: NDArray[np.float64]
    about: Mapping[str, Any] = field(default_factory=dict)
    easiest: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    easiest_scores: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    alternatives: NDArray[np.float32] | None = None
    outside: tuple[Hypothesis, ...] = ()
    against: tuple[int, ...] = ()
    answered: int | None = None

    def counted(self, failed: NDArray[np.bool_], taken_for: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which rows its rates count: failures, or answers of one class."""
        return failed if self.answered is None else taken_for == self.answered

    def tested_on(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which rows are of its classes or of those in its rest, and in no set that it is tested outside of."""
        rows = np.isin(labels, (*self.labels, *self.against))
        for other in self.outside:
            rows &= ~other.members(features, labels)
        return rows

    def members(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which rows are in the set: features (n, width), labels (n,)."""
        cosines = self.cosines(features)
        members = cut(cosines, labels, self.labels, self.cutoffs, self.role)
        if self.alternatives is None or not len(self.alternatives):
            return members
        return members & (cosines > (np.asarray(features, dtype=np.float32) @ self.alternatives.T).max(axis=1))

    def cosines(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n,) with the vector."""
        return np.asarray(features, dtype=np.float32) @ self.vector


@dataclass(frozen=True, slots=True)
class ClassNote:
    """What a method has to say of one class: its direction, or why it has none; captions, most extreme first; and its
    contexts, those that were chosen first."""

    direction: ClassDirection | None = None
    reason: str | None = None
    hard: tuple[ScoredCaption, ...] = ()
    easy: tuple[ScoredCaption, ...] = ()
    contexts: tuple[ClassContext, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a method found: hypotheses to be tested, a note a class (by label), and arrays worth keeping, by name.

    decide: by label, for classes that have a direction, how features (n, width) become decision values (n,): below 0
    where the target is expected to fail. Pure; features are finite.
    """

    hypotheses: tuple[Hypothesis, ...]
    notes: tuple[ClassNote, ...]
    vectors: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    decide: Mapping[int, Decide] = field(default_factory=dict)
