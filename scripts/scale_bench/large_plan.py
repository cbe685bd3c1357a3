"""The plan that is simulated: ImageNet* with some of its shifts, 500 candidates a cell, 1,000 rows a shard.

Twenty shifts, the base among them, are ten million samples in ten thousand shards. Nothing of it is loaded: inputs are
pins without a model behind them, and every threshold is a number of the recipe.
"""

from __future__ import annotations

from counterfoil.building.inputs import Inputs
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.screen import resolve_thresholds

CANDIDATES, ROWS = 500, 1000
_PINS = {
    "models": {
        "generator": {"name": "simulated", "revision": None, "sha256": "00" * 32},
        "screen": {"name": "simulated", "revision": None, "sha256": "11" * 32},
    },
    "source": {"dataset": "simulated", "revision": None, "content": None},
    "tokens": None,
    "thresholds": None,
}


def large_recipe(shifts: int) -> Recipe:
    """The recipe with so many shifts, the base among them."""
    named = [shift.name for shift in load_recipe("imagenet-star").all_shifts()[1:]]
    if not 1 <= shifts <= len(named) + 1:
        raise SystemExit(f"--shifts: found {shifts}, expected 1 to {len(named) + 1}")
    return load_recipe(
        "imagenet-star",
        [
            "tokens=null",
            "screen.judge=null",
            "screen.object_threshold=0.25",
            f"samples.candidates={CANDIDATES}",
            f"output.rows_per_shard={ROWS}",
            *(f"prompts.shifts.{name}=null" for name in named[shifts - 1 :]),
        ],
    )


def inputs_of(recipe: Recipe) -> Inputs:
    return Inputs(dict(_PINS), resolve_thresholds(recipe, None), None)
