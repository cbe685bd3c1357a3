"""Guidance in a part of the steps: half the work in the others, and the pictures that diffusers draws with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe
from miniature_pipelines import stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl, stable_unclip

MakeRecipe = Callable[..., Recipe]
FULL = "generator.guidance_interval=[0, 1]"
STRONG = 20.0


def _samples(recipe: Recipe, count: int = 4) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return every[:: len(every) // count][:count]


@contextmanager
def _asked(pipeline: Any) -> Iterator[list[int]]:
    """How many pictures the UNet is asked about in each pass."""
    sizes: list[int] = []
    hook = pipeline.unet.register_forward_hook(lambda module, args, output: sizes.append(len(args[0])))
    try:
        yield sizes
    finally:
        hook.remove()


@pytest.fixture(scope="module", params=[stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl])
def miniature(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param.__name__)
    made = request.param()
    with torch.no_grad():
        for key, weights in made.unet.named_parameters():
            if ".attn2.to_" in key:
                weights *= 20  # at random, prompts would hardly change a picture, and guidance neither
    made.save_pretrained(folder)
    name = f"local-dir:{folder}"
    return name, load_pipeline(name, dtype="float32")


def _same(found: list[Any], expected: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("interval", "guided"),
    [
        ("[0, 1]", [1, 1, 1, 1, 1]),
        ("[0.2, 0.8]", [0, 1, 1, 1, 0]),
        ("[0.21, 0.81]", [0, 0, 1, 1, 1]),
        ("[0, 0.5]", [1, 1, 1, 0, 0]),
        ("[0.4, 1]", [0, 0, 1, 1, 1]),
    ],
)
def test_a_step_without_guidance_asks_about_each_picture_once(
    interval: str, guided: list[int], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe("generator.steps=5", f"generator.guidance_interval={interval}")
    with _asked(pipeline) as sizes:
        Renderer(pipeline, recipe).render(_samples(recipe, 3))
    assert sizes == [8 if each else 4 for each in guided], "padded to the batch of four, and doubled where guided"


def test_both_passes_of_a_step_of_second_order_are_of_one_kind(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("generator.steps=4", "generator.guidance_interval=[0.25, 0.75]")
    loaded = load_pipeline("lab:sd", scheduler="HeunDiscrete", dtype="float32")
    with _asked(loaded) as sizes:
        Renderer(loaded, recipe).render(_samples(recipe))
    assert sizes == [4, 4, 8, 8, 8, 8, 4]


def test_the_whole_interval_is_no_interval(miniature: tuple[str, Any], make_recipe: MakeRecipe) -> None:
    name, loaded = miniature
    plain = make_recipe("generator.steps=4", f"generator.model={name}")
    samples = _samples(plain)
    expected = Renderer(loaded, plain).render(samples)
    whole = make_recipe("generator.steps=4", f"generator.model={name}", FULL)
    assert _same(Renderer(loaded, whole).render(samples), expected)
    part = make_recipe("generator.steps=4", f"generator.model={name}", "generator.guidance_interval=[0.25, 0.75]")
    assert not _same(Renderer(loaded, part).render(samples), expected)


@pytest.mark.parametrize("interval", [(0.25, 0.75), (0.0, 0.5), (0.5, 1.0)])
def test_pictures_are_those_of_a_doubled_batch_that_is_led_nowhere(
    interval: tuple[float, float], miniature: tuple[str, Any], make_recipe: MakeRecipe
) -> None:
    """The slow way, which always asks about both: u + s (t - u), with s all but 1 where there is no guidance."""
    name, loaded = miniature
    begin, end = interval
    given = ("generator.steps=4", f"generator.guidance={STRONG}", f"generator.model={name}")
    recipe = make_recipe(*given, f"generator.guidance_interval=[{begin}, {end}]")
    samples = _samples(recipe)
    scales: list[float] = []

    def scale(step: int, steps: int) -> float:
        return STRONG if begin <= step / steps < end else 1 + 1e-6

    def slowly(pipe: Any, place: int, timestep: Any, held: dict[str, Any]) -> dict[str, Any]:
        scales.append(pipe._guidance_scale)
        pipe._guidance_scale = scale(place + 1, pipe.num_timesteps)
        return {}

    drawn = loaded(
        prompt=[sample.prompt for sample in samples],
        generator=[torch.Generator().manual_seed(sample.seed) for sample in samples],
        num_inference_steps=4, guidance_scale=scale(0, 4), callback_on_step_end=slowly, output_type="np",
        height=32, width=32,
    ).images  # fmt: skip
    assert STRONG in scales and len(set(scales)) == 2
    expected = (drawn * 255).round().astype(int)
    found = Renderer(loaded, recipe).render(samples)
    assert np.abs(np.stack([f for f in found if f is not None]).astype(int) - expected).max() <= 1
    whole = Renderer(loaded, make_recipe(*given, FULL)).render(samples)
    assert np.abs(np.stack([f for f in whole if f is not None]).astype(int) - expected).max() > 3


def test_neighbours_order_and_padding_change_no_bit(miniature: tuple[str, Any], make_recipe: MakeRecipe) -> None:
    name, loaded = miniature
    recipe = make_recipe("generator.steps=4", f"generator.model={name}", "generator.guidance_interval=[0.25, 0.75]")
    renderer = Renderer(loaded, recipe)
    samples = _samples(recipe, 6)
    assert len({sample.prompt for sample in samples}) == 6
    full = renderer.render(samples[:4])
    assert _same(renderer.render(samples[3::-1]), full[::-1])
    assert _same(renderer.render([samples[5], samples[2], samples[4]])[1:2], full[2:3])
    assert _same(renderer.render([samples[1]]), full[1:2])


def test_what_is_not_guided_by_two_passes_is_refused(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    torch.manual_seed(0)
    stable_unclip().save_pretrained(tmp_path / "unclip")
    other = load_pipeline(f"local-dir:{tmp_path / 'unclip'}", dtype="float32")
    with pytest.raises(UserError, match=r"guidance_interval.*guided in every step"):
        Renderer(other, make_recipe(FULL))
    distilled = load_pipeline("lab:sd", dtype="float32")
    distilled.unet.register_to_config(time_cond_proj_dim=8)
    with pytest.raises(UserError, match=r"guidance_interval.*distilled"):
        Renderer(distilled, make_recipe(FULL))
    assert Renderer(distilled, make_recipe())
    torch.manual_seed(0)
    stable_diffusion_xl().save_pretrained(tmp_path / "xl")
    larger = load_pipeline(f"local-dir:{tmp_path / 'xl'}", dtype="float32")
    with pytest.raises(UserError, match="found options negative_original_size"):
        Renderer(larger, make_recipe(FULL, "generator.options={negative_original_size: [8, 8]}"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["generator.guidance_interval=[0.5, 0.5]"], r"found \[0.5, 0.5\], expected two shares"),
        (["generator.guidance_interval=[0.8, 0.2]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[-0.1, 0.2]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[0, 1.1]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[0.2]"], "guidance_interval"),
        ([FULL, "generator.guidance=1"], "guidance 1, which is none"),
        ([FULL, "generator.adapter=lab:decoder"], "by an adapter are guided in every step"),
        (["generator.guidance_interval=[0.6, 0.7]", "generator.steps=2"], "none of the 2 steps begins"),
    ],
)
def test_intervals_of_nothing_are_refused(changes: list[str], said: str, make_recipe: MakeRecipe) -> None:
    with pytest.raises(UserError, match=said):
        make_recipe(*changes)


def test_an_interval_is_of_the_plan(make_recipe: MakeRecipe) -> None:
    none, null = make_recipe(), make_recipe("generator.guidance_interval=null")
    some, other = make_recipe(FULL), make_recipe("generator.guidance_interval=[0, 0.5]")
    assert none.plan_hash == null.plan_hash
    assert len({none.plan_hash, some.plan_hash, other.plan_hash}) == 3
    assert none.screen_hash == some.screen_hash
