"""Pairs that share attention: an image depends on its own pair and the batch size, and on no other neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate import Renderer
from counterfoil.generate.steps import paired_attention
from counterfoil.models.generators import family_of
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe

SHORT = ("generator.options.max_sequence_length=96",)
CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "SD 1": (miniature.stable_diffusion_1, ()),
    "XL": (miniature.stable_diffusion_xl, ()),
    "XL, guided in the middle": (miniature.stable_diffusion_xl, ("generator.guidance_interval=[0.4, 1.0]",)),
    "SD 3": (modern.stable_diffusion_3, SHORT),
    "FLUX.1": (modern.flux, SHORT),
    "FLUX.1 led": (modern.flux, (*SHORT, "generator.options.true_cfg_scale=2.5")),
}


@pytest.fixture
def unrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "counterfoil.generate.render.as_pictures", lambda pixels: lambda: list(pixels.permute(0, 2, 3, 1).numpy())
    )


def _recipe(make_recipe: Callable[..., Recipe], *changes: str) -> Recipe:
    return make_recipe("generator.size=32", "generator.guidance=3.0", "samples.pairs=attention", *changes)


def _samples(recipe: Recipe) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)][:5]
    prompts = ("a bag", "a coat in the snow", "a dress", "a red hat", "two coats")
    return [
        replace(sample, prompt=prompt, base_prompt="a photo of a coat", seed=100 + place)
        for place, (sample, prompt) in enumerate(zip(every, prompts, strict=True))
    ]


@pytest.mark.parametrize("name", CASES)
def test_an_image_depends_on_its_own_pair_alone(
    name: str, loaded: Any, make_recipe: Callable[..., Recipe], unrounded: None
) -> None:
    make, changes = CASES[name]
    recipe, pipeline = _recipe(make_recipe, *changes), loaded(make)
    renderer, samples = Renderer(pipeline, recipe), _samples(recipe)
    drawn: list[Any] = renderer.render(samples[:4])
    assert all(np.isfinite(image).all() and image.std() > 0.01 for image in drawn)
    again = Renderer(pipeline, recipe).render([samples[3], samples[4], samples[0]])
    np.testing.assert_array_equal(again[0], drawn[3])
    np.testing.assert_array_equal(again[2], drawn[0])
    np.testing.assert_array_equal(renderer.render([samples[1]])[0], drawn[1])
    # Beside samples that are drawn alone, which are what they are without any pair.
    alone = replace(samples[2], base_prompt=None)
    mixed: list[Any] = renderer.render([alone, samples[2]])
    np.testing.assert_array_equal(mixed[1], drawn[2])
    np.testing.assert_array_equal(mixed[0], renderer.render([alone])[0])
    assert np.abs(mixed[0] - mixed[1]).max() > 1e-4, "the base is seen"
    other: list[Any] = renderer.render([replace(samples[2], base_prompt="a shoe in the evening")])
    assert np.abs(other[0] - mixed[1]).max() > 1e-5, "it is this base that is seen"


@pytest.mark.parametrize("name", ["SD 1", "XL"])
def test_what_a_base_adds_to_itself_is_nothing(
    name: str, loaded: Any, make_recipe: Callable[..., Recipe], unrounded: None
) -> None:
    """The same keys and values twice weigh as they do once."""
    make, changes = CASES[name]
    recipe = _recipe(make_recipe, *changes)
    renderer = Renderer(loaded(make), recipe)
    sample = replace(_samples(recipe)[0], prompt="a photo of a coat")
    beside: list[Any] = renderer.render([sample])
    alone: list[Any] = renderer.render([replace(sample, base_prompt=None)])
    np.testing.assert_allclose(beside[0], alone[0], atol=2e-4)


class _Attentions(TorchFunctionMode):
    """The queries, keys and values of every attention that torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.nn.functional.scaled_dot_product_attention:
            given = dict(zip(("query", "key", "value"), args, strict=False)) | (kwargs or {})
            self.seen.append((given["query"], given["key"], given["value"], out))
        return out


@pytest.mark.parametrize("name", ["SD 3", "FLUX.1"])
def test_a_base_lends_its_image_and_not_its_text(name: str, loaded: Any, make_recipe: Callable[..., Recipe]) -> None:
    make, changes = CASES[name]
    recipe = _recipe(make_recipe, *changes)
    renderer = Renderer(loaded(make), recipe)
    with _Attentions() as attentions:
        renderer.render(_samples(recipe)[:1])
    places = [place for place, (query, key, _, _) in enumerate(attentions.seen) if query.shape[2] != key.shape[2]]
    assert len(places) >= 4
    # The bases of a batch are asked right before what is drawn beside them.
    pairs = [(attentions.seen[place], attentions.seen[place - 1]) for place in places]
    first = name == "SD 3"  # there the image's tokens come before the text's
    image = pairs[0][0][1].shape[2] - pairs[0][0][0].shape[2]
    assert 0 < image < pairs[0][0][0].shape[2]
    for (query, key, value, out), base in pairs:
        lent = slice(0, image) if first else slice(-image, None)
        torch.testing.assert_close(key[:, :, -image:], base[1][:, :, lent], rtol=0, atol=0)
        torch.testing.assert_close(value[:, :, -image:], base[2][:, :, lent], rtol=0, atol=0)
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
        torch.testing.assert_close(out, weights @ value, rtol=1e-4, atol=1e-5)


def test_attention_that_cannot_be_extended_is_told(loaded: Any, make_recipe: Callable[..., Recipe]) -> None:
    pipeline = loaded(modern.stable_diffusion_3)
    recipe = _recipe(make_recipe, *SHORT)
    renderer = Renderer(pipeline, recipe)

    class Sliced:
        def __call__(self, attn: Any, hidden_states: Any, encoder_hidden_states: Any = None, **named: Any) -> Any:
            return hidden_states, encoder_hidden_states

    before = dict(pipeline.transformer.attn_processors)
    pipeline.transformer.set_attn_processor(Sliced())
    try:
        with pytest.raises(RunFailure, match="Sliced computes attention in a way that pairs cannot share"):
            renderer.render(_samples(recipe)[:1])
    finally:
        pipeline.transformer.set_attn_processor(before)


def test_a_pipeline_that_shows_no_base_is_refused_by_whoever_renders(
    loaded: Any, make_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(UserError, match=r"samples\.pairs: .* is a Sana, .* expected noise"):
        Renderer(loaded(modern.sana), _recipe(make_recipe))
    assert Renderer(loaded(modern.sana), _recipe(make_recipe, "samples.pairs=noise")).family.pairs is None


def test_a_pipeline_is_as_it_was_behind_it(loaded: Any) -> None:
    pipeline = loaded(miniature.stable_diffusion_1)
    before = dict(pipeline.unet.attn_processors)
    family = family_of(type(pipeline).__name__)
    assert family is not None
    with pytest.raises(ZeroDivisionError), paired_attention(pipeline, family, 2):
        assert pipeline.unet.attn_processors != before
        raise ZeroDivisionError
    assert pipeline.unet.attn_processors == before
