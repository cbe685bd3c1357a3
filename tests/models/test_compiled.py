"""Compiled blocks: the same pictures but for rounding, each still its own, and a stack of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.config as inductor

from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.devices import compiler_of, stack_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe
from miniature_pipelines import kandinsky


def _compiler() -> str | None:
    try:
        return compiler_of("cpu")
    except UserError:
        return None


compiles = pytest.mark.skipif(_compiler() is None, reason="no C++ compiler here")


def _recipe(*changes: str) -> Recipe:
    generator = "generator={model: lab:sd, steps: 2, guidance: 3.0, batch_size: 4, dtype: float32}"
    return load_recipe("wardrobe-mini", [generator, "tokens=null", "samples.candidates=1", *changes])


def _samples(recipe: Recipe, count: int) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return every[:: len(every) // count][:count]


@pytest.fixture(scope="module")
def compiled() -> Iterator[Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_pipeline("lab:sd", dtype="float32", compiled=True)
    torch.set_num_threads(threads)


@pytest.mark.whole
@compiles
def test_pictures_are_those_of_the_model_and_neighbours_change_no_bit(compiled: Any) -> None:
    recipe = _recipe("generator.guidance_interval=[0, 0.5]")  # batches of two sizes
    samples = _samples(recipe, 6)
    renderer = Renderer(compiled, recipe)
    drawn = renderer.render(samples[:4])
    assert [part for part in compiled.unet.modules() if part._compiled_call_impl is not None], "something is compiled"
    plain = Renderer(load_pipeline("lab:sd", dtype="float32"), recipe).render(samples[:4])
    for one, other in zip(drawn, plain, strict=True):
        assert one is not None and other is not None
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1
    for places in ([3, 2, 1, 0], [4, 1, 5], [2]):
        again = renderer.render([samples[place] for place in places])
        for place, image in zip(places, again, strict=True):
            if place < 4:
                np.testing.assert_array_equal(image, drawn[place])


@compiles
def test_only_a_recipe_that_compiles_has_a_compiler_in_its_stack() -> None:
    plain, other = stack_of("cpu", "float32", 4), stack_of("cpu", "float32", 4, compiled=True)
    assert "compiled" not in plain
    assert other == plain | {"compiled": _compiler()}
    assert _recipe().plan_hash == _recipe("generator.compile=true").plan_hash


def test_a_machine_without_a_compiler_is_told_before_anything_loads() -> None:
    with inductor.patch({"cpp.cxx": ("no-such-compiler",)}):
        for ask in (
            lambda: stack_of("cpu", "float32", 4, compiled=True),
            lambda: load_pipeline("lab:sd", dtype="float32", compiled=True),
        ):
            with pytest.raises(UserError, match=r"generator\.compile: torch compiles for cpu by a C\+\+ compiler"):
                ask()
        assert stack_of("cpu", "float32", 4)


@compiles
def test_a_model_without_blocks_that_repeat_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kandinsky().save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="UNet2DConditionModel without blocks that repeat"):
        load_pipeline(f"local-dir:{tmp_path / 'model'}", dtype="float32", compiled=True)


def test_layers_that_are_brought_one_by_one_are_not_compiled() -> None:
    with pytest.raises(UserError, match="compile is true and offload sequential"):
        _recipe("generator.compile=true", "generator.offload=sequential")
