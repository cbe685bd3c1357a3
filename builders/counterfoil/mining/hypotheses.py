"""Input and output of a mining method: rows of the discover half, and hypotheses with their sets of
images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Floats32, Ints
from counterfoil.mining.findings import ClassContext, ClassDirection, ScoredCaption
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.stats import FailureCount, count_failures, score_test

if TYPE_CHECKING:
    from counterfoil.mining.slice_columns import ImageMeasure

# hard: the images nearest to a caption. far_from: the images with the least of what the caption
# adds to the class.
Role = Literal["hard", "far_from"]
# Shares of a class that a set may take. Below 0.1, few rows are left to test; above 0.5, the set is
# the normal case.
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
# The failures in a set and in the rest of its classes.
SetAndRest = tuple[FailureCount, FailureCount]


def choose_cutoffs(
    rows: LabelledRows,
    cosines: AnyFloats,
    classes: Sequence[int],
    role: Role,
    margin: float,
) -> tuple[tuple[float, ...], Bools, SetAndRest]:
    """Return the cut-off of each class, the set (n,), and the failures inside and outside the set.

    The set takes the same share of the rows of every class. It is the share with the smallest
    p-value, and on a tie the largest such share. cosines: (n,), the cosine of each row of `classes`
    with the caption.
    """
    tried = []
    for share in reversed(SHARES):
        cutoffs = cutoffs_at(cosines, rows.labels, classes, role, share)
        members = members_within(cosines, rows.labels, classes, cutoffs, role)
        counts = count_failures(rows.failed, rows.units, members)
        p = score_test(*counts, margin)
        tried.append((p, (cutoffs, members, counts)))
    _, best = min(tried, key=lambda scored: scored[0])
    return best


def cutoffs_at(
    cosines: AnyFloats,
    labels: Ints,
    classes: Sequence[int],
    role: Role,
    share: float,
) -> tuple[float, ...]:
    """Return, for each class, the cosine that `share` of its rows reach (hard) or stay below
    (far_from)."""
    below = share
    if role == "hard":
        below = 1 - share
    cutoffs = []
    for label in classes:
        cutoff = np.quantile(cosines[labels == label], below)
        cutoffs.append(float(cutoff))
    return tuple(cutoffs)


def members_within(
    cosines: AnyFloats,
    labels: Ints,
    classes: Sequence[int],
    cutoffs: Sequence[float],
    role: Role,
) -> Bools:
    highest_label = int(labels.max(initial=-1))
    limits = np.full(highest_label + 1, np.nan)
    for label, cutoff in zip(classes, cutoffs, strict=True):
        if label <= highest_label:
            limits[label] = cutoff
    of_rows = limits[labels]
    # rows of other classes have the limit NaN, so they are outside
    with np.errstate(invalid="ignore"):
        if role == "hard":
            return cosines >= of_rows
        return cosines <= of_rows


Decide = Callable[[AnyFloats], Floats]
_SECTIONS_WITHOUT_EFFECT_ON_IMAGES = ("mine", "evaluate", "publish")


@dataclass(frozen=True)
class MiningRun:
    """A mining run."""

    recipe: Recipe
    """With `overrides` applied."""
    mine: Mine
    settings: Any
    """`mine.settings`."""
    source: str | Path
    """The recipe's name or path."""
    overrides: Sequence[str]
    folder: Path
    devices: tuple[str, ...] = ("cpu",)
    """Those that render; all else runs on the first."""
    workers: int | None = None

    @property
    def device(self) -> str:
        return self.devices[0]

    @property
    def target(self) -> str:
        """The name of the audited classifier, or empty text without one."""
        return self.mine.target or ""

    def in_round(self, folder: Path) -> MiningRun:
        """Return this run for a round in `folder`, with only the overrides that can change an
        image."""
        overrides = []
        for override in self.overrides:
            key, _, _ = override.partition("=")
            section, _, _ = key.strip().partition(".")
            if section not in _SECTIONS_WITHOUT_EFFECT_ON_IMAGES:
                overrides.append(override)
        return replace(self, overrides=overrides, folder=folder)


@dataclass(frozen=True, slots=True)
class CandidateCaptions:
    """Distinct captions with their vectors."""

    texts: tuple[str, ...]
    vectors: Floats32
    """(texts, width), of unit length."""
    references: tuple[int, ...]
    """For each label, the row of the caption that only names the class."""
    candidates: tuple[Ints, ...]
    """For each label, the rows of captions that say more than the reference."""


NO_CAPTIONS = CandidateCaptions((), np.zeros((0, 0), np.float32), (), ())


@dataclass(frozen=True, slots=True)
class SliceColumns:
    """Columns of slices' features."""

    measures: tuple[ImageMeasure, ...] = ()
    shifts: tuple[str, ...] = ()
    """Columns with 1 for rows of the shift."""
    width: int = 0
    """The number of columns of unit vectors."""


NO_COLUMNS = SliceColumns()


def _no_rows() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _no_scores() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """n rows of one half. Arrays without a shape are (n,)."""

    features: AnyFloats
    """(n, width)."""
    labels: Ints
    failed: Bools
    units: Ints
    """Equal for rows of one unit."""
    taken_for: Ints
    """The label that the target answers, or -1 if its answer is no class."""

    def chosen(self, rows: Ints) -> LabelledRows:
        return LabelledRows(
            self.features[rows],
            self.labels[rows],
            self.failed[rows],
            self.units[rows],
            self.taken_for[rows],
        )

    def of_classes(self, labels: Sequence[int]) -> Ints:
        return np.flatnonzero(np.isin(self.labels, labels))


@dataclass(frozen=True, slots=True)
class DiscoverHalf(LabelledRows):
    """The rows of the discover half. Their features are CLIP's unit vectors or the `columns`."""

    centre: Floats
    deviation: Floats
    """(width,), the mean and deviation of the train split."""
    captions: CandidateCaptions
    class_names: tuple[str, ...]
    categories: tuple[str | None, ...]
    """The category of each label."""
    pooled: Mapping[str, Bools] = field(default_factory=dict)
    """The failures (n,) of further classifiers, by name."""
    columns: SliceColumns = NO_COLUMNS


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A set of images that a method expects to fail more often than the rest of its classes, with
    words for it.

    The set holds the images whose cosine with `vector` is at least (`hard`) or at most (`far_from`)
    the cut-off of their class.
    """

    name: str
    """Unique in a run."""
    labels: tuple[int, ...]
    """One class, or the classes of a category."""
    role: Role
    words: str
    caption: str
    vector: Floats32
    """(width,)."""
    cutoffs: tuple[float, ...]
    """In the order of `labels`."""
    evidence: Ints = field(default_factory=_no_rows)
    """Rows of the discover half, the best row first, with their `scores`."""
    scores: Floats = field(default_factory=_no_scores)
    about: Mapping[str, Any] = field(default_factory=dict)
    """The method's own numbers, as JSON."""
    easiest: Ints = field(default_factory=_no_rows)
    """Rows that the method expects to be right, the easiest row first, with their `easiest_scores`.
    """
    easiest_scores: Floats = field(default_factory=_no_scores)
    alternatives: Floats32 | None = None
    """Other vectors; each member of the set is more similar to `vector` than to any of them."""
    outside: tuple[Hypothesis, ...] = ()
    """Hypotheses whose sets are left out of the test."""
    against: tuple[int, ...] = ()
    """Labels whose rows join the rest."""
    answered: int | None = None
    """The class whose answers are counted instead of failures."""

    def counted(self, failed: Bools, taken_for: Ints) -> Bools:
        """Return which rows the rates count, (n,) bool: failures, or answers of the class
        `answered`."""
        if self.answered is None:
            return failed
        return taken_for == self.answered

    def tested_on(self, features: AnyFloats, labels: Ints) -> Bools:
        """Return the tested rows, (n,) bool: rows of its classes and of `against` that are in no
        set of `outside`."""
        compared = (*self.labels, *self.against)
        rows = np.isin(labels, compared)
        for other in self.outside:
            rows &= ~other.members(features, labels)
        return rows

    def members(self, features: AnyFloats, labels: Ints) -> Bools:
        """Return the rows in the set, (n,) bool."""
        cosines = self.cosines(features)
        members = members_within(cosines, labels, self.labels, self.cutoffs, self.role)
        if self.alternatives is None or not len(self.alternatives):
            return members
        of_alternatives = np.asarray(features, dtype=np.float32) @ self.alternatives.T
        return members & (cosines > of_alternatives.max(axis=1))

    def tested_members(self, features: AnyFloats, labels: Ints) -> Bools:
        """Return the tested rows that are in the set, (n,) bool."""
        return self.members(features, labels) & self.tested_on(features, labels)

    def count(self, rows: LabelledRows) -> SetAndRest:
        """Count failures in the set, and in the rest of its classes, among the tested rows."""
        is_tested = self.tested_on(rows.features, rows.labels)
        tested = rows.chosen(np.flatnonzero(is_tested))
        members = self.members(tested.features, tested.labels)
        counted = self.counted(tested.failed, tested.taken_for)
        return count_failures(counted, tested.units, members)

    def cosines(self, features: AnyFloats) -> Floats32:
        return np.asarray(features, dtype=np.float32) @ self.vector

    def closeness(self, features: AnyFloats) -> Floats32:
        """Return how clearly each row is in the set, (n,)."""
        cosines = self.cosines(features)
        return cosines if self.role == "hard" else -cosines


@dataclass(frozen=True, slots=True)
class ClassNote:
    """A method's result for one class."""

    direction: ClassDirection | None = None
    reason: str | None = None
    """Why it has no direction."""
    hard: tuple[ScoredCaption, ...] = ()
    """The hardest captions first."""
    easy: tuple[ScoredCaption, ...] = ()
    """The easiest captions first."""
    contexts: tuple[ClassContext, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A method's result."""

    hypotheses: tuple[Hypothesis, ...]
    notes: tuple[ClassNote, ...]
    """By label."""
    vectors: Mapping[str, AnyFloats] = field(default_factory=dict)
    """Arrays to store."""
    decide: Mapping[int, Decide] = field(default_factory=dict)
    """For each label, a function from features (n, width) to decision values (n,). A value below 0
    predicts a failure."""
