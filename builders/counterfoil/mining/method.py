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

    Equal input gives equal hypotheses in equal order.
    """

    settings: type[MethodSection]
    """The form of `mine.settings`."""
    find: Callable[[DiscoverHalf, Mine, Any, int | None], Found]
    """Returns hypotheses, by a half, the recipe's section, its settings and a number of workers."""
    captions: Callable[[MiningRun], tuple[Gathered, tuple[str, ...]]] | None = None
    """Returns candidate captions and notes about them. None: the method has no words and needs no
    CLIP."""
    layer: Callable[[Findings, MiningRun], str | None] | None = None
    """Writes the method's recipe, if this is not the recipe of `layer_of`."""
    notes: Callable[[Found, MiningRun], tuple[str, ...]] = lambda outcome, run: ()
    """Returns notes about the result."""
    pooled: Callable[[Any], tuple[str, ...]] = lambda settings: ()
    """Returns the classifiers whose failures the method uses beside the target's failures."""


@dataclass(frozen=True, slots=True)
class SearchMethod:
    """A way to find failures in images that it renders; `search` writes the run's folder, and
    resumes there."""

    settings: type[MethodSection]
    search: Callable[[MiningRun], MineResult]
