"""Pictures of pipelines that nobody here knows do not depend on torch's global random state, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import diffusers
import numpy as np
import pytest
import torch

from counterfoil.generate import Renderer
from counterfoil.generate.render import own_randomness
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe

CPU = torch.device("cpu")


class Lumina2Pipeline:  # by this name a family of its own drives it
    """Writes on from a prompt, as language models do: by chance, and the picture shows it."""

    components: ClassVar[dict[str, Any]] = {}
    _execution_device = CPU

    def __init__(self, seeds: bool = False) -> None:
        self.seeds = seeds

    def __call__(
        self,
        prompt: str,
        height: int,
        width: int,
        num_inference_steps: int,
        guidance_scale: float,
        generator: Any,
        output_type: str,
        use_resolution_binning: bool = False,
        **more: Any,
    ) -> Any:
        if self.seeds:
            torch.manual_seed(len(prompt))
        noise = torch.rand(1, height, width, 3, generator=generator)
        return diffusers.ImagePipelineOutput(images=((noise + torch.rand(1, height, width, 3)) / 2).numpy())


def samples_of(recipe: Recipe) -> list[Sample]:
    plan = make_plan(recipe)
    return [sample for shard in plan.shards for sample in shard.samples(plan)][:3]


@pytest.mark.parametrize("seeds", [False, True])
def test_what_was_drawn_before_changes_no_picture(seeds: bool, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe("generator.size=32")
    renderer, samples = Renderer(Lumina2Pipeline(seeds), recipe), samples_of(recipe)
    torch.manual_seed(1)
    first: list[Any] = renderer.render(samples)
    torch.manual_seed(2)
    torch.rand(7)
    again = renderer.render(samples[::-1])[::-1]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    reseeded: list[Any] = renderer.render([replace(samples[0], seed=samples[0].seed + 1)])
    assert not np.array_equal(reseeded[0], first[0])


@pytest.mark.parametrize("seeds", [False, True])
def test_the_global_state_is_left_as_it_was(seeds: bool, make_recipe: Callable[..., Recipe]) -> None:
    recipe = make_recipe("generator.size=32")
    before = torch.get_rng_state()
    Renderer(Lumina2Pipeline(seeds), recipe).render(samples_of(recipe))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError), own_randomness(1, CPU):
        torch.rand(3)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before), "also after an error"
