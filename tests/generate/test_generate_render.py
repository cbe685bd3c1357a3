"""Rendering is diffusers' own pipeline: the same pixels, with each prompt encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate import Renderer
from counterfoil.models import LAB_WEIGHTS
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe
from counterfoil.tokens.conditioning import TextSide

MakeRecipe = Callable[..., Recipe]


def _samples(recipe: Recipe, count: int = 4) -> list[Sample]:
    """Samples of different classes and shifts, spread over the plan."""
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return every[:: len(every) // count][:count]


def _plain(samples: list[Sample], scheduler: str | None = None, **options: Any) -> np.ndarray:
    """What a user of diffusers draws for the same prompts and seeds."""
    pipeline: Any = diffusers.StableDiffusionPipeline.from_pretrained(
        str(LAB_WEIGHTS / "sd"), torch_dtype=torch.float32
    )
    if scheduler is not None:
        pipeline.scheduler = getattr(diffusers, scheduler).from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(
        prompt=[sample.prompt for sample in samples],
        generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
        num_inference_steps=2,
        output_type="np",
        **{"guidance_scale": 3.0} | options,
    )
    return (drawn.images * 255).round().astype(np.uint8)


def _difference(found: list[np.ndarray | None], expected: np.ndarray) -> int:
    return int(np.abs(np.stack([f for f in found if f is not None]).astype(int) - expected).max())


def test_pixels_are_those_of_a_plain_call(pipeline: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe()
    samples = _samples(recipe)
    assert len({sample.prompt for sample in samples}) == 4
    found = Renderer(pipeline, recipe).render(samples)
    assert all(image is not None and image.shape == (64, 64, 3) and image.dtype == np.uint8 for image in found)
    assert _difference(found, _plain(samples)) <= 1


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("generator.negative_prompt=a photo in the snow", {"negative_prompt": ["a photo in the snow"] * 4}),
        ("generator.guidance=1", {"guidance_scale": 1.0}),
        ("generator.size=96", {"height": 96, "width": 96}),
    ],
    ids=["negative prompt", "no guidance", "size"],
)
def test_settings_reach_the_pipeline(
    change: str, options: dict[str, Any], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(change)
    samples = _samples(recipe)
    found = Renderer(pipeline, recipe).render(samples)
    assert _difference(found, _plain(samples, **options)) <= 1
    if "size" not in change:
        assert _difference(found, _plain(samples)) > 3, "the setting changes the picture"


@pytest.mark.parametrize("scheduler", ["DDIM", "EulerDiscrete"])
def test_another_scheduler_draws_as_it_does_in_diffusers(scheduler: str, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(f"generator.scheduler={scheduler}")
    pipeline = load_pipeline("lab:sd", scheduler=recipe.generator.scheduler, dtype="float32")
    samples = _samples(recipe)
    found = Renderer(pipeline, recipe).render(samples)
    assert _difference(found, _plain(samples, f"{scheduler}Scheduler")) <= 1
    assert _difference(found, _plain(samples)) > 3


def test_each_prompt_is_encoded_once(pipeline: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe("samples.candidates=6", "source.classes=[{id: bag, name: bag, source_label: 8}]")
    plan = make_plan(recipe)
    read: list[int] = []
    hook = pipeline.text_encoder.register_forward_hook(lambda module, args, output: read.append(1))
    renderer = Renderer(pipeline, recipe)
    after = []
    try:
        for shard in list(plan.shards)[:2]:
            for batch in plan.batches(shard):
                renderer.render(batch)
                after.append(len(read))
    finally:
        hook.remove()
    # Two batches of each prompt: the first of each encodes it, and the very first the empty prompt too.
    assert len(after) == 4
    assert after == [2, 2, 3, 3]


def test_neighbours_order_and_padding_change_no_bit(pipeline: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe()
    renderer = Renderer(pipeline, recipe)
    samples = _samples(recipe, 8)
    full = {s.key: image for s, image in zip(samples[:4], renderer.render(samples[:4]), strict=True)}
    turned = {s.key: i for s, i in zip(samples[3::-1], renderer.render(samples[3::-1]), strict=True)}
    mixed = [samples[2], samples[6], samples[7]]
    short = {s.key: image for s, image in zip(mixed, renderer.render(mixed), strict=True)}
    alone = renderer.render([samples[2]])
    assert len(short) == 3
    assert len(alone) == 1
    for key, image in full.items():
        np.testing.assert_array_equal(image, turned[key])
    np.testing.assert_array_equal(full[samples[2].key], short[samples[2].key])
    np.testing.assert_array_equal(full[samples[2].key], alone[0])


def test_a_batch_is_never_larger_than_the_recipes(pipeline: Any, make_recipe: MakeRecipe) -> None:
    renderer = Renderer(pipeline, make_recipe())
    for count in (0, 5):
        with pytest.raises(ValueError, match="expected 1 to 4"):
            renderer.render(_samples(make_recipe(), 8)[:count])


def test_a_picture_without_finite_numbers_is_none_and_its_neighbours_stay(make_recipe: MakeRecipe) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    samples = _samples(make_recipe())
    whole = Renderer(pipeline, make_recipe()).render(samples)
    pipeline.vae.decoder.register_forward_hook(lambda module, args, output: _spoiled(output, 1))
    found = Renderer(pipeline, make_recipe()).render(samples)
    assert [image is None for image in found] == [False, True, False, False]
    for place in (0, 2, 3):
        np.testing.assert_array_equal(found[place], whole[place])


def _spoiled(pictures: torch.Tensor, place: int) -> torch.Tensor:
    pictures = pictures.clone()
    pictures[place] = float("nan")
    return pictures


def test_a_pipeline_of_another_kind_is_refused(make_recipe: MakeRecipe) -> None:
    nothing: Any = None
    other = diffusers.DDPMPipeline(unet=nothing, scheduler=diffusers.DDPMScheduler())
    with pytest.raises(UserError, match="is a DDPMPipeline, expected a pipeline of Stable Diffusion"):
        Renderer(other, make_recipe())


@pytest.fixture
def with_a_word_more() -> Any:
    """A pipeline whose tokenizer has a word that the text encoder has no embedding of."""
    pipeline = load_pipeline("lab:sd", dtype="float32")
    pipeline.tokenizer.add_tokens(["zyzzyva"])
    return pipeline


def test_a_word_without_an_embedding_is_told_before_it_is_looked_up(
    with_a_word_more: Any, make_recipe: MakeRecipe
) -> None:
    rows = with_a_word_more.text_encoder.get_input_embeddings().num_embeddings
    renderer = Renderer(with_a_word_more, make_recipe())
    assert renderer.encode("a photo of a bag")
    with pytest.raises(
        RunFailure, match=rf"'lab:sd': its tokenizer gives the id {rows}, and its text encoder has {rows} embeddings"
    ):
        renderer.encode("a photo of a zyzzyva")
    side = TextSide(with_a_word_more, slots=2, vectors=1)
    assert [ids.max() >= rows for ids in side.ids_of("a photo of a {class}", 1)] == [True], "the places of class tokens"
    assert side.mean_of_words("bag")
    for look in (lambda: side.mean_of_words("zyzzyva"), lambda: side.ids_of("a {class} beside a zyzzyva", 0)):
        with pytest.raises(RunFailure, match=f"its text encoder has {rows} embeddings"):
            look()


def test_what_a_text_encoder_cannot_do_is_told_in_words(make_recipe: MakeRecipe) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    pipeline.tokenizer.model_max_length = 5_000  # longer than the encoder has positions
    with pytest.raises(RunFailure, match="'lab:sd' cannot encode a prompt"):
        Renderer(pipeline, make_recipe()).render(_samples(make_recipe()))
