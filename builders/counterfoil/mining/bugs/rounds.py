"""Rounds as datasets: a layer over the mined recipe in `rounds/NN`, its build, and the target's answers as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.mining.bugs.drawing import DescribedCell, DrawnRound, RoundAsked
from counterfoil.mining.findings_layer import seed_for, shifts_layer
from counterfoil.mining.round_dataset import LAYER, answered, built_round, carried_overrides, keep_layer
from counterfoil.prediction.failures import failures
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.names import derived_name
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sources import LabelledImages

GROUP = "descriptions"
# A shard is the least that a worker takes: enough of them for several, in rounds of a few hundred images.
_ROWS_PER_SHARD = 64


@dataclass(frozen=True)
class RoundDrawer:
    """Draws rounds for one run of mining in `folder`, and lets its target answer them. It is a `Draw`.

    recipe: as it was mined, with `overrides`; source: how its person named it. past_others: a round of whose number
    another one stands there takes the next number, where a search, whose rounds follow from each other, refuses it.
    """

    recipe: Recipe
    mine: Mine
    settings: BugsSettings
    source: str | Path
    overrides: Sequence[str]
    folder: Path
    device: str
    workers: int | None
    past_others: bool = False

    def __call__(self, asked: RoundAsked) -> DrawnRound:
        place, seed = self.folder / asked.name, self.seed(asked)
        layer = self.layer(asked, seed, place)
        if self.past_others and (place / LAYER).exists() and (place / LAYER).read_bytes() != layer.encode():
            return self(replace(asked, number=asked.number + 1))
        keep_layer(place / LAYER, layer)
        opened = built_round(place, asked.name, self.device, self.workers)
        if opened is None:
            return nothing_drawn(asked, seed)
        images, audited = answered(opened, asked.name, self.mine.target or "", self.recipe, self.device)
        answers = audited.predictions
        # A round's recipe has the mined one's classes, so that labels are the same numbers.
        failed = failures(self.mine.failure, answers, images.labels, self.recipe.classes, audited.class_map)
        rows = np.flatnonzero(answers.readable)
        return DrawnRound(
            asked=asked,
            seed=seed,
            shift_names=tuple(shift.name for shift in opened.recipe.all_shifts()),
            shifts=opened.shifts[rows],
            labels=opened.labels[rows],
            indices=opened.indices[rows],
            failed=failed[rows],
            answers=answers.prediction[rows].astype(np.int64),
            keys=tuple(f"{asked.name}/{opened.keys[row]}" for row in rows.tolist()),
            images=images,
        )

    def seed(self, asked: RoundAsked) -> int:
        """Noise that no other round has. The target is not of it: two targets' rounds of one purpose look alike."""
        purpose = f"bugs {asked.purpose} {asked.number}"
        return seed_for(self.recipe.samples.seed, purpose, self.mine.method, "", self.mine.seed)

    def layer(self, asked: RoundAsked, seed: int, place: Path) -> str:
        """The text of the round's recipe: every candidate is drawn, and no rule but the screen's thresholds picks."""
        ids = [self.recipe.classes[label].id for label in asked.labels]
        base: dict[str, Any] = {"classes": ids}
        if self.settings.base is not None:
            base["prompt"] = self.settings.base
        changes = {
            "name": derived_name(self.recipe.name, f"{asked.purpose}-{asked.number}"),
            "prompts": {"base": base},
            "samples": {
                "seed": seed, "candidates": asked.of_base, "noise": "paired", "accepted": None, "at_most": None,
            },
            "screen": {"keep": ["thresholds"]},
            "output": {"rows_per_shard": _ROWS_PER_SHARD},
        }  # fmt: skip
        own = {} if asked.of_base == asked.candidates else {"samples": {"candidates": asked.candidates}}
        shifts = {name: self.shift(cell) | own for name, cell in asked.cells.items()}
        return shifts_layer(shifts, changes, self.recipe, self.source, carried_overrides(self.overrides), place)

    def shift(self, cell: DescribedCell) -> dict[str, Any]:
        """A description as a shift: screened for its object alone, since words of a captioner have no threshold."""
        cls = self.recipe.classes[cell.label]
        # An oil painting is screened by the caption of styles: it is no photo of its object.
        screened = {"style": True} if cell.description.styled else {"object_caption": self.object_caption}
        return {
            "kind": "mined",
            "group": GROUP,
            "classes": [cls.id],
            "prompt": cell.description.prompt(self.base),
            **screened,
        }

    @property
    def base(self) -> str:
        """The base prompt, with `{class}`."""
        return base_prompt(self.recipe, self.settings)

    @property
    def object_caption(self) -> str:
        return self.recipe.all_shifts()[0].object_caption


def base_prompt(recipe: Recipe, settings: BugsSettings) -> str:
    """The open prompt that descriptions are added to. ValueError where the recipe draws its base from no prompt."""
    prompt = settings.base if settings.base is not None else recipe.prompts.base.prompt
    if prompt is None:
        raise ValueError("the base is drawn from no prompt")
    return prompt


def nothing_drawn(asked: RoundAsked, seed: int) -> DrawnRound:
    """A round of which the screen accepted no base image, so that it has no pair either."""
    none = np.zeros(0, dtype=np.int64)
    images = LabelledImages(asked.name, "", (), none, none, (BASE,), lambda keys: iter(()))
    names = (BASE, *asked.cells)
    return DrawnRound(asked, seed, names, none, none, none, none.astype(bool), none, (), images)


def spoken_base(base: str, cls: RecipeClass) -> str:
    """The base prompt of one class with everything but its name filled in, as captions are compared with it."""
    return cls.text(base, "{class}")
