"""One audited classifier: its recipe as `mine` would load it, the pictures of its way, and the panel it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bugs_proof.answering import Panel
from bugs_proof.drawing import ProofDrawer, round_drawer
from bugs_proof.pictures import PictureStore
from bugs_proof.plan import PANELS, RECIPE, Asked, Way, slug, way_of
from counterfoil.mining.bugs.drawing import DrawnRound, RoundAsked
from counterfoil.mining.bugs.settings import BugsSettings
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.under_way import finish


@dataclass(frozen=True)
class Audit:
    """A target in a run: what it is asked about is shared with the other targets of its way."""

    target: str
    asked: Asked
    kept: Path

    @property
    def way(self) -> Way:
        return way_of(self.target)

    @property
    def recipe(self) -> Recipe:
        return _recipe(tuple(self.asked.changes(self.way, self.target)))

    @property
    def mine(self) -> Mine:
        assert self.recipe.mine is not None
        return self.recipe.mine

    @property
    def settings(self) -> BugsSettings:
        return BugsSettings.model_validate(self.mine.settings)

    @property
    def store(self) -> PictureStore:
        return way_store(self.way, self.kept)

    @property
    def panel(self) -> Panel:
        return _panel(self.way)

    @property
    def class_names(self) -> list[str]:
        return [cls.name for cls in self.recipe.classes]

    def drawer(self, arm: str) -> ProofDrawer:
        """A new one, whose rounds have a folder of their own."""
        folder = self.kept / "rounds" / slug(self.target) / arm
        drawer = round_drawer(self.recipe, RECIPE, self.asked.changes(self.way, self.target), folder)
        return ProofDrawer(drawer, self.store, self.panel)

    def baseline(self) -> tuple[ProofDrawer, DrawnRound]:
        """The first round of every run, as this target answers it."""
        drawer = self.drawer("baseline")
        labels = tuple(cls.label for cls in self.recipe.classes)
        return drawer, finish(drawer(RoundAsked(1, "baseline", self.settings.baseline, {}, labels)))


@cache
def _recipe(changes: tuple[str, ...]) -> Recipe:
    return load_recipe(RECIPE, list(changes))


@cache
def way_store(way: Way, kept: Path) -> PictureStore:
    """The pictures of a way of naming classes; settings of runs change none of them."""
    changes = Asked(0).changes(way, PANELS[way][0])
    return PictureStore(kept / way, load_recipe(RECIPE, changes))


@cache
def _panel(way: Way) -> Panel:
    return Panel(PANELS[way], load_recipe(RECIPE, Asked(0).changes(way, PANELS[way][0])))
