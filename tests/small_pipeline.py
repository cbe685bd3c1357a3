"""The lab's generator, loaded once, and the tiny recipes that it renders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe

MakeRecipe = Callable[..., Recipe]


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pipeline() -> Any:
    return load_pipeline("lab:sd", dtype="float32")


@pytest.fixture(scope="session")
def make_recipe() -> MakeRecipe:
    """Return wardrobe-mini at two steps and one candidate, in batches of four, by class name, with
    changes."""

    def make(*changes: str) -> Recipe:
        generator = (
            "generator={model: lab:sd, steps: 2, guidance: 3.0, batch_size: 4, dtype: float32}"
        )
        return load_recipe(
            "wardrobe-mini", [generator, "tokens=null", "samples.candidates=1", *changes]
        )

    return make


def spread_samples(recipe: Recipe, count: int = 4) -> list[Sample]:
    """Return samples of different classes and shifts, spread over the plan."""
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return every[:: len(every) // count][:count]
