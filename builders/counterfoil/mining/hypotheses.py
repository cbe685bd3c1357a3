"""What a method gets, half of the images as arrays, and what it returns: hypotheses, each with its set of images.

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
    """Return the cut-off of each class, the set (n,), and its and the rest's failures, for n rows of `classes`.

    cosines: (n,) with the caption. The same share of every class, so that a set is no choice among classes: the one
    whose set is least likely to fail as seldom as the rest and the margin allow; of equal ones the largest.
    """
    tried = []
    for share in SHARES:
        cutoffs = cutoffs_at(cosines, labels, classes, role, share)
        members = members_within(cosines, labels, classes, cutoffs, role)
        counts = count_failures(failed, units, members)
        tried.append((score_test(*counts, margin), (cutoffs, members, counts)))
    return min(reversed(tried), key=lambda one: one[0])[1]


def cutoffs_at(
    cosines: NDArray[np.floating], labels: NDArray[np.int64], classes: Sequence[int], role: Role, share: float
) -> tuple[float, ...]:
    """Return the cosine that `share` of each class's rows reach (hard) or stay under (far_from)."""
    level = 1 - share if role == "hard" else share
    return tuple(float(np.quantile(cosines[labels == label], level)) for label in classes)


def members_within(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    classes: Sequence[int],
    cutoffs: Sequence[float],
    role: Role,
) -> NDArray[np.bool_]:
    """Return (n,) which rows are in the set."""
    limits = np.full(int(labels.max(initial=-1)) + 1, np.nan)
    for label, cutoff in zip(classes, cutoffs, strict=True):
        if label < len(limits):
            limits[label] = cutoff
    with np.errstate(invalid="ignore"):  # rows of other classes have no limit, and are in no set
        return cosines >= limits[labels] if role == "hard" else cosines <= limits[labels]


Decide = Callable[[NDArray[np.floating]], NDArray[np.float64]]
_SECTIONS_WITHOUT_EFFECT_ON_IMAGES = ("mine", "evaluate", "publish")


@dataclass(frozen=True)
class MiningRun:
    """A run of mining. recipe: with `overrides`. source: the recipe as it was named. settings: `mine.settings`."""

    recipe: Recipe
    mine: Mine
    settings: Any
    source: str | Path
    overrides: Sequence[str]
    folder: Path
    device: str = "cpu"
    workers: int | None = None

    def in_round(self, folder: Path) -> MiningRun:
        """Return the run for a round in `folder`, without overrides that change no image."""
        sections = [override.partition("=")[0].strip().split(".")[0] for override in self.overrides]
        kept = [
            override
            for override, section in zip(self.overrides, sections, strict=True)
            if section not in _SECTIONS_WITHOUT_EFFECT_ON_IMAGES
        ]
        return replace(self, overrides=kept, folder=folder)


@dataclass(frozen=True, slots=True)
class CandidateCaptions:
    """Candidate captions and CLIP's vectors of them, each once.

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
    """The columns of features that are no CLIP's: measures that vary, then shifts (1 where a row is of it), then own
    features.

    The last `width` columns are unit vectors of the classifier's own features.
    """

    measures: tuple[ImageMeasure, ...] = ()
    shifts: tuple[str, ...] = ()
    width: int = 0


NO_COLUMNS = SliceColumns()


@dataclass(frozen=True, slots=True)
class DiscoverHalf:
    """The n rows that hypotheses are found on.

    features: (n, width), CLIP's unit vectors, or as `columns` says. labels: (n,), indices of the recipe's classes.
    failed: (n,) bool. taken_for: (n,), the class that the target answers, -1 for none. units: (n,), equal where rows
    share a unit. centre, deviation: (width,), mean and standard deviation (ddof 1) of the train split's features.
    categories: by label. pooled: (n,) by name, failures of further classifiers.
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

    name: unique in a run. labels: one class, or those of a category. vector: (width,), whose cosine with an image
    decides: at least the cut-off of the image's class where the role is `hard`, at most where it is `far_from`.
    cutoffs: by index in `labels`. evidence: rows of the discover half, best first; scores: what they are ordered by.
    easiest: rows there that the method expects the target to get right, easiest first, with scores. about: the method's
    own numbers, as JSON. alternatives: vectors that a member is less like. against: further labels whose rows are in
    the rest. answered: a class whose answers are counted in place of failures.
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
        """Return (n,) which rows its rates count: failures, or answers of one class."""
        return failed if self.answered is None else taken_for == self.answered

    def tested_on(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (n,) which rows are of its classes or of `against`, and in no set that it is tested outside of."""
        rows = np.isin(labels, (*self.labels, *self.against))
        for other in self.outside:
            rows &= ~other.members(features, labels)
        return rows

    def members(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (n,) which rows are in the set: features (n, width), labels (n,)."""
        cosines = self.cosines(features)
        members = members_within(cosines, labels, self.labels, self.cutoffs, self.role)
        if self.alternatives is None or not len(self.alternatives):
            return members
        return members & (cosines > (np.asarray(features, dtype=np.float32) @ self.alternatives.T).max(axis=1))

    def cosines(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        return np.asarray(features, dtype=np.float32) @ self.vector


@dataclass(frozen=True, slots=True)
class ClassNote:
    """A method's result for one class: its direction, or why it has none; captions, most extreme first; contexts."""

    direction: ClassDirection | None = None
    reason: str | None = None
    hard: tuple[ScoredCaption, ...] = ()
    easy: tuple[ScoredCaption, ...] = ()
    contexts: tuple[ClassContext, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Hypotheses to be tested, a note for each class (by label), and arrays worth keeping, by name.

    decide: by label, for classes that have a direction, maps finite features (n, width) to decision values (n,): below
    0 where the target is expected to fail.
    """

    hypotheses: tuple[Hypothesis, ...]
    notes: tuple[ClassNote, ...]
    vectors: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    decide: Mapping[int, Decide] = field(default_factory=dict)
