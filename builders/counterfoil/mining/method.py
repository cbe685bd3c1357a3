"""What a method of mining is: a function from arrays and settings to hypotheses; it loads and renders nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from counterfoil.mining.captions import Gathered
from counterfoil.mining.findings import Findings
from counterfoil.mining.hypotheses import DiscoverHalf, Found, MiningRun
from counterfoil.mining.mined_files import MineResult
from counterfoil.recipe.schema_mine import MethodSection, Mine


@dataclass(frozen=True, slots=True)
class Method:
    """A way to find failures: the form of `mine.settings`, and either `captions` and `find`, or `search`.

    captions: candidate captions as `CandidateCaptions` has them (texts, references, candidates), and what is odd about
    them, for people. find: hypotheses of a half, the recipe's section, its settings, and a number of workers: the same
    half, settings and seed give the same hypotheses, in the same order. search: how a method looks that draws images of
    its own, from nothing to the files in the run's folder; it resumes from what lies there.
    layer: the text of the recipe that it leaves, where that is not as findings usually are; None where there is nothing
    to build. notes: what is odd about that recipe. pooled: classifiers of `settings` whose failures it wants beside the
    target's.
    """

    settings: type[MethodSection]
    find: Callable[[DiscoverHalf, Mine, Any, int | None], Found] | None = None
    captions: Callable[[MiningRun], tuple[Gathered, tuple[str, ...]]] | None = None
    layer: Callable[[Findings, MiningRun], str | None] | None = None
    notes: Callable[[Findings, MiningRun], tuple[str, ...]] = lambda findings, run: ()
    pooled: Callable[[Any], tuple[str, ...]] = lambda settings: ()
    search: Callable[[MiningRun], MineResult] | None = None
