"""One audited classifier: its recipe as `mine` would load it, its pictures, and the panel that it
answers with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bugs_proof.answering import Panel
from bugs_proof.drawing import ProofDrawer, round_drawer
from bugs_proof.pictures import PictureStore
from bugs_proof.plan import LAB, PANELS, RECIPE, Asked, Group, group_of, slug
from counterfoil.mining.methods.bugs.trials import DrawnRound, RoundAsked
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine


@dataclass(frozen=True)
class Audit:
    """A target in a run: what it is asked about is shared with all others."""

    target: str
    asked: Asked
    kept: Path

    @property
    def group(self) -> Group:
        return group_of(self.target)

    @property
    def recipe(self) -> Recipe:
        return _recipe(tuple(self.asked.changes(self.target)))

    @property
    def mine(self) -> Mine:
        assert self.recipe.mine is not None
        return self.recipe.mine

    @property
    def settings(self) -> BugsSettings:
        return BugsSettings.model_validate(self.mine.settings)

    @property
    def store(self) -> PictureStore:
        return _pictures(self.kept, self.asked.overrides)

    @property
    def panel(self) -> Panel:
        return _panel(self.group)

    @property
    def class_names(self) -> list[str]:
        return [cls.name for cls in self.recipe.classes]

    def drawer(self, arm: str) -> ProofDrawer:
        """Return a new drawer, whose rounds have a folder of their own."""
        folder = self.kept / "rounds" / slug(self.target) / arm
        drawer = round_drawer(self.recipe, RECIPE, self.asked.changes(self.target), folder)
        return ProofDrawer(drawer, self.store, self.panel)

    def baseline(self) -> tuple[ProofDrawer, DrawnRound]:
        """Return the first round of every run, with this target's answers."""
        drawer = self.drawer("baseline")
        labels = tuple(cls.label for cls in self.recipe.classes)
        return drawer, drawer(RoundAsked(1, "baseline", self.settings.baseline, {}, labels))


@cache
def _recipe(changes: tuple[str, ...]) -> Recipe:
    return load_recipe(RECIPE, list(changes))


@cache
def _pictures(kept: Path, overrides: tuple[str, ...]) -> PictureStore:
    return PictureStore(kept, _recipe(tuple(Asked(0, overrides).changes(LAB[0]))))


@cache
def _panel(group: Group) -> Panel:
    return Panel(PANELS[group], _recipe(tuple(Asked(0).changes(PANELS[group][0]))))
