"""Draw the rounds of a search: render each as a dataset of its own, and collect the target's
answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.mining.findings_layer import seed_for
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.trials import (
    BugHypothesis,
    DrawnRound,
    RoundAsked,
    base_prompt,
    nothing_drawn,
)
from counterfoil.mining.rounds import LAYER, answered_round, paired_layer

GROUP = "descriptions"
# A worker renders whole shards. Shards of this size let several workers share a round of a few
# hundred images.
_ROWS_PER_SHARD = 64


@dataclass(frozen=True)
class RoundDrawer:
    """Draws rounds for a run and collects the target's answers; it is a `Draw`."""

    run: MiningRun
    past_others: bool = False
    """If another round has the asked number, take the next free number. By default, a taken number
    is an error."""
    images: dict[str, LabelledImages] = field(default_factory=dict)
    """The images of all drawn rounds by key prefix, so that they can be embedded later."""

    def __call__(self, round_asked: RoundAsked) -> DrawnRound:
        name = round_asked.name
        seed = self.seed(round_asked)
        layer = self.layer(round_asked, seed)
        file = self.run.folder / name / LAYER
        taken = self.past_others and file.exists()
        if taken and file.read_bytes() != layer.encode():
            return self(replace(round_asked, number=round_asked.number + 1))
        answered = answered_round(self.run, name, layer)
        if answered is None:
            return nothing_drawn(round_asked, seed)
        self.images[f"{name}/"] = answered.images
        opened = answered.opened
        predictions = answered.predictions
        rows = np.flatnonzero(predictions.readable)
        names = [shift.name for shift in opened.recipe.all_shifts()]
        keys = [f"{name}/{opened.keys[row]}" for row in rows.tolist()]
        return DrawnRound(
            asked=round_asked,
            seed=seed,
            shift_names=tuple(names),
            shifts=opened.shifts[rows],
            labels=opened.labels[rows],
            indices=opened.indices[rows],
            failed=answered.failed[rows],
            answers=predictions.prediction[rows].astype(np.int64),
            keys=tuple(keys),
            images=answered.images,
        )

    def seed(self, round_asked: RoundAsked) -> int:
        """Return the seed of the round's noise. The seed does not depend on the target, so two
        targets get the same noise.
        """
        purpose = f"bugs {round_asked.purpose} {round_asked.number}"
        mine = self.run.mine
        recipe_seed = self.run.recipe.samples.seed
        return seed_for(recipe_seed, purpose, mine.method, "", mine.seed)

    def layer(self, round_asked: RoundAsked, seed: int) -> str:
        """Return the round's recipe."""
        run = self.run
        ids = [run.recipe.classes[label].id for label in round_asked.labels]
        base: dict[str, Any] = {"classes": ids}
        if run.settings.base is not None:
            base["prompt"] = run.settings.base
        of_base = round_asked.of_base
        shifts = {}
        for name, cell in round_asked.cells.items():
            shifts[name] = self.shift(cell)
            if of_base != round_asked.candidates:
                shifts[name]["samples"] = {"candidates": round_asked.candidates}
        purpose = f"{round_asked.purpose}-{round_asked.number}"
        return paired_layer(
            round_asked.name,
            purpose,
            shifts,
            run,
            seed,
            of_base,
            prompts={"base": base},
            output={"rows_per_shard": _ROWS_PER_SHARD},
        )

    def shift(self, cell: BugHypothesis) -> dict[str, Any]:
        """Return a description as a shift. The screen checks only the object, because the recipe
        has no threshold for a captioner's words.
        """
        recipe = self.run.recipe
        shift: dict[str, Any] = {
            "kind": "mined",
            "group": GROUP,
            "classes": [recipe.classes[cell.label].id],
            "prompt": cell.description.prompt(base_prompt(self.run)),
        }
        # An oil painting is no photo of its object, so the screen compares it with the object
        # caption for styles.
        if cell.description.styled:
            shift["style"] = True
        else:
            shift["object_caption"] = recipe.all_shifts()[0].object_caption
        return shift
