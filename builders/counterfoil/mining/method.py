"""The two kinds of mining methods: one finds hypotheses among existing images, the other renders
its own images."""

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
class FindMethod:
    """A way to find failures among existing images, as a function of arrays that loads and renders
    nothing.

    settings: the form of `mine.settings`. find: a function from a half, the recipe's section, its
    settings and a number of workers to hypotheses. Equal input gives equal hypotheses in equal
    order. captions: a function that returns candidate captions and notes about them. It is None for
    a method without words, which needs no CLIP. layer: a function that writes the method's recipe,
    if this is not the recipe of `layer_of`. notes: a function that returns notes about the result.
    pooled: the classifiers whose failures the method uses beside the target's failures.
    """

    settings: type[MethodSection]
    find: Callable[[DiscoverHalf, Mine, Any, int | None], Found]
    captions: Callable[[MiningRun], tuple[Gathered, tuple[str, ...]]] | None = None
    layer: Callable[[Findings, MiningRun], str | None] | None = None
    notes: Callable[[Found, MiningRun], tuple[str, ...]] = lambda outcome, run: ()
    pooled: Callable[[Any], tuple[str, ...]] = lambda settings: ()


@dataclass(frozen=True, slots=True)
class SearchMethod:
    """A way to find failures in images that it renders; `search` writes the run's folder, and
    resumes there."""

    settings: type[MethodSection]
    search: Callable[[MiningRun], MineResult]
