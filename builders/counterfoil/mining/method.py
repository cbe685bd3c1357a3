"""What a method of mining is: a function from arrays and settings to hypotheses; it loads and renders nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from counterfoil.mining.captions.gathering import Gathered
from counterfoil.mining.cutoffs import Role, cut
from counterfoil.mining.findings import ClassContext, ClassDirection, Findings, ScoredCaption
from counterfoil.mining.mined_files import MineResult
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.section import Section

Decide = Callable[[NDArray[np.floating]], NDArray[np.float64]]


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


@dataclass(frozen=True, slots=True)
class DiscoverHalf:
    """The n rows that hypotheses are found on; what is found is tested on the other half.

    features: (n, width), CLIP's unit vectors. labels: (n,), positions in the recipe's classes. failed: (n,) bool,
    whether the failure rule calls the target's answer wrong. answers: (n, k), the target's outputs, most probable
    first. pooled: (n,) by name, failures of further classifiers, where a method asks for them. units: (n,), equal where
    rows share a unit. centre, spread: (width,), mean and standard deviation (ddof 1) of
    the train split's features. categories: by label, None where the recipe tells none.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    answers: NDArray[np.int32]
    units: NDArray[np.int64]
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    captions: CandidateCaptions
    class_names: tuple[str, ...]
    categories: tuple[str | None, ...]
    pooled: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Classes and words of which a method says that they fail together, and the set of images that it means.

    name: unique in a run. labels: one class, or those of a category. words: for people. caption: what names it.
    vector: (width,), made of the caption, whose cosine with an image decides: at least the cut-off of the image's class
    where the role is `hard`, at most where it is `far_from`. cutoffs: by place in `labels`. evidence: rows of the
    discover half, best first; scores: what they are ordered by. easiest: rows there that the method expects the target
    to get right above all others of the classes, easiest first, and its own scores of them. about: the method's own
    numbers, as JSON takes them.
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
    rivals: NDArray[np.float32] | None = None
    outside: tuple[Hypothesis, ...] = ()

    def tested_on(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which rows are of its classes, and in no set that it is tested outside of."""
        rows = np.isin(labels, self.labels)
        for other in self.outside:
            rows &= ~other.members(features, labels)
        return rows

    def members(self, features: NDArray[np.floating], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) which rows are in the set: features (n, width), labels (n,)."""
        cosines = self.cosines(features)
        members = cut(cosines, labels, self.labels, self.cutoffs, self.role)
        if self.rivals is None or not len(self.rivals):
            return members
        return members & (cosines > (np.asarray(features, dtype=np.float32) @ self.rivals.T).max(axis=1))

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


class CandidateTexts(Protocol):
    """Where a method's candidate captions come from: texts, references and candidates as `CandidateCaptions` has them.

    `folder` is where mining leaves its files, and where what was asked of a model is remembered. With what is odd about
    them, for people.
    """

    def __call__(
        self, recipe: Recipe, settings: Any, folder: Path, device: str
    ) -> tuple[Gathered, tuple[str, ...]]: ...


class Layer(Protocol):
    """The text of the recipe that a method leaves in `folder`; None where there is nothing to build."""

    def __call__(
        self, findings: Findings, recipe: Recipe, source: str | Path, overrides: Sequence[str], folder: Path
    ) -> str | None: ...


class Find(Protocol):
    """How hypotheses are found. The same half, settings and seed give the same hypotheses, in the same order."""

    def __call__(self, half: DiscoverHalf, mine: Mine, settings: Any, workers: int | None) -> Found: ...


class Search(Protocol):
    """How a method looks that draws images of its own, from nothing to the files in `folder`.

    recipe: as it is mined, with `overrides`; source: how its person named it. It goes on with what lies in the folder.
    """

    def __call__(
        self,
        recipe: Recipe,
        mine: Mine,
        settings: Any,
        source: str | Path,
        overrides: Sequence[str],
        folder: Path,
        device: str,
        workers: int | None,
    ) -> MineResult: ...


@dataclass(frozen=True, slots=True)
class Method:
    """A way to find failures: the form of `mine.settings`, and how hypotheses are found on labelled images among which
    captions, or how a search of its own draws what it looks at. One of the two. `layer`: how its recipe is written,
    where that is not as findings usually are. `notes`: what is odd about that recipe, of findings, the mined
    recipe and `settings`. `pooled`: classifiers of `settings` whose failures it wants beside the target's."""

    settings: type[Section]
    find: Find | None = None
    captions: CandidateTexts | None = None
    layer: Layer | None = None
    notes: Callable[[Any, Recipe, Any], tuple[str, ...]] = lambda findings, recipe, settings: ()
    pooled: Callable[[Any], tuple[str, ...]] = lambda settings: ()
    search: Search | None = None
