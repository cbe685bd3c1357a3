"""What happens within steps: guidance in a part of them, pairs that share attention, held parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import uniform_filter
from torch.overrides import TorchFunctionMode

import miniature_pipelines
import modern_pipelines as modern
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.render import Renderer
from counterfoil.generate.steps import HeldParts, called_back, least_changed, paired_attention
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.generators import family_of
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_output import HeldFromBase
from miniature_pipelines import (
    stable_diffusion_1,
    stable_diffusion_2,
    stable_diffusion_xl,
)
from small_pipeline import spread_samples

MakeRecipe = Callable[..., Recipe]
FULL = "generator.guidance_interval=[0, 1]"
STRONG = 20.0


@contextmanager
def _asked(pipeline: Any) -> Iterator[list[int]]:
    """Yield a list that gets the batch size of each pass of the UNet."""
    sizes: list[int] = []
    hook = pipeline.unet.register_forward_hook(
        lambda module, args, output: sizes.append(len(args[0]))
    )
    try:
        yield sizes
    finally:
        hook.remove()


@pytest.fixture(
    scope="module",
    params=[
        stable_diffusion_1,
        pytest.param(stable_diffusion_2, marks=pytest.mark.whole),  # of the family of the first
        stable_diffusion_xl,
    ],
)
def miniature(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Any]:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param.__name__)
    pipeline = request.param()
    with torch.no_grad():
        for key, weights in pipeline.unet.named_parameters():
            if ".attn2.to_" in key:
                # at random, prompts would hardly change a picture, and guidance neither
                weights *= 20
    pipeline.save_pretrained(folder)
    name = f"local-dir:{folder}"
    return name, load_pipeline(name, dtype="float32")


def _same(images: list[Any], expected: list[Any]) -> bool:
    return all(np.array_equal(image, other) for image, other in zip(images, expected, strict=True))


@pytest.mark.parametrize(
    ("interval", "guided"),
    [
        ("[0.2, 0.8]", [0, 1, 1, 1, 0]),
        ("[0.21, 0.81]", [0, 0, 1, 1, 1]),
        ("[0, 0.5]", [1, 1, 1, 0, 0]),
    ],
)
def test_a_step_without_guidance_asks_about_each_picture_once(
    interval: str, guided: list[int], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    changes = ("generator.size=32", "generator.steps=5")
    recipe = make_recipe(*changes, f"generator.guidance_interval={interval}")
    with _asked(pipeline) as sizes:
        Renderer(pipeline, recipe).render(spread_samples(recipe, 3))
    assert sizes == [8 if doubled else 4 for doubled in guided], (
        "padded to the batch of four, and doubled where guided"
    )


def test_both_passes_of_a_step_of_second_order_are_of_one_kind(make_recipe: MakeRecipe) -> None:
    changes = ("generator.size=32", "generator.steps=4")
    recipe = make_recipe(*changes, "generator.guidance_interval=[0.25, 0.75]")
    loaded = load_pipeline("lab:sd", scheduler="HeunDiscrete", dtype="float32")
    with _asked(loaded) as sizes:
        Renderer(loaded, recipe).render(spread_samples(recipe))
    assert sizes == [4, 4, 8, 8, 8, 8, 4]


def test_the_whole_interval_is_no_interval(
    miniature: tuple[str, Any], make_recipe: MakeRecipe
) -> None:
    name, loaded = miniature
    plain = make_recipe("generator.steps=4", f"generator.model={name}")
    samples = spread_samples(plain)
    expected = Renderer(loaded, plain).render(samples)
    whole = make_recipe("generator.steps=4", f"generator.model={name}", FULL)
    assert _same(Renderer(loaded, whole).render(samples), expected)
    part = make_recipe(
        "generator.steps=4", f"generator.model={name}", "generator.guidance_interval=[0.25, 0.75]"
    )
    assert not _same(Renderer(loaded, part).render(samples), expected)


def test_pictures_are_those_of_a_doubled_batch_that_is_led_nowhere(
    miniature: tuple[str, Any], make_recipe: MakeRecipe
) -> None:
    """Compare with passes that always compute u + s (t - u), with s just above 1 in steps without
    guidance."""
    name, loaded = miniature
    begin, end = 0.25, 0.75
    given = ("generator.steps=4", f"generator.guidance={STRONG}", f"generator.model={name}")
    recipe = make_recipe(*given, f"generator.guidance_interval=[{begin}, {end}]")
    samples = spread_samples(recipe)
    scales: list[float] = []

    def scale(step: int, steps: int) -> float:
        return STRONG if begin <= step / steps < end else 1 + 1e-6

    def slowly(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        scales.append(pipe._guidance_scale)
        pipe._guidance_scale = scale(step + 1, pipe.num_timesteps)
        return {}

    drawn = loaded(
        prompt=[sample.prompt for sample in samples],
        generator=[torch.Generator().manual_seed(sample.seed) for sample in samples],
        num_inference_steps=4, guidance_scale=scale(0, 4), callback_on_step_end=slowly, output_type="np",
        height=32, width=32,
    ).images  # fmt: skip
    assert STRONG in scales and len(set(scales)) == 2
    expected = (drawn * 255).round().astype(int)
    images = Renderer(loaded, recipe).render(samples)
    assert np.abs(np.stack([f for f in images if f is not None]).astype(int) - expected).max() <= 1
    whole = Renderer(loaded, make_recipe(*given, FULL)).render(samples)
    assert np.abs(np.stack([f for f in whole if f is not None]).astype(int) - expected).max() > 3


def test_neighbours_order_and_padding_change_no_bit(
    miniature: tuple[str, Any], make_recipe: MakeRecipe
) -> None:
    name, loaded = miniature
    recipe = make_recipe(
        "generator.steps=4", f"generator.model={name}", "generator.guidance_interval=[0.25, 0.75]"
    )
    renderer = Renderer(loaded, recipe)
    samples = spread_samples(recipe, 6)
    assert len({sample.prompt for sample in samples}) == 6
    full = renderer.render(samples[:4])
    assert _same(renderer.render(samples[3::-1]), full[::-1])
    assert _same(renderer.render([samples[5], samples[2], samples[4]])[1:2], full[2:3])
    assert _same(renderer.render([samples[1]]), full[1:2])


def test_whoever_renders_refuses_what_is_not_guided_by_two_passes(make_recipe: MakeRecipe) -> None:
    distilled = load_pipeline("lab:sd", dtype="float32")
    distilled.unet.register_to_config(time_cond_proj_dim=8)
    with pytest.raises(UserError, match=r"guidance_interval.*distilled"):
        Renderer(distilled, make_recipe(FULL))
    assert Renderer(distilled, make_recipe())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["generator.guidance_interval=[0.5, 0.5]"], r"found \[0.5, 0.5\], expected two shares"),
        (["generator.guidance_interval=[0.8, 0.2]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[-0.1, 0.2]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[0, 1.1]"], "rising from 0 to 1"),
        (["generator.guidance_interval=[0.2]"], "guidance_interval"),
        ([FULL, "generator.guidance=1"], "guidance 1 turns guidance off"),
        ([FULL, "generator.adapter=lab:decoder"], "by an adapter are guided in every step"),
        (
            ["generator.guidance_interval=[0.6, 0.7]", "generator.steps=2"],
            "none of the 2 steps begins",
        ),
    ],
)
def test_intervals_of_nothing_are_refused(
    changes: list[str], message: str, make_recipe: MakeRecipe
) -> None:
    with pytest.raises(UserError, match=message):
        make_recipe(*changes)


def test_an_interval_is_of_the_plan(make_recipe: MakeRecipe) -> None:
    none = make_recipe()
    null = make_recipe("generator.guidance_interval=null")
    some = make_recipe(FULL)
    other = make_recipe("generator.guidance_interval=[0, 0.5]")
    assert none.plan_hash == null.plan_hash
    assert len({none.plan_hash, some.plan_hash, other.plan_hash}) == 3
    assert none.screen_hash == some.screen_hash


SHORT = ("generator.options.max_sequence_length=96",)
CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "SD 1": (miniature_pipelines.stable_diffusion_1, ()),
    "XL, guided in the middle": (
        miniature_pipelines.stable_diffusion_xl,
        ("generator.guidance_interval=[0.4, 1.0]",),
    ),
    "SD 3": (modern.stable_diffusion_3, SHORT),
    "FLUX.1": (modern.flux, SHORT),
    "FLUX.1 led": (modern.flux, (*SHORT, "generator.options.true_cfg_scale=2.5")),
}


def _recipe(make_recipe: Callable[..., Recipe], *changes: str) -> Recipe:
    return make_recipe(
        "generator.size=32", "generator.guidance=3.0", "samples.pairs=attention", *changes
    )


def _pairs(recipe: Recipe) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)][:4]
    prompts = ("a bag", "a coat in the snow", "a dress", "a red hat")
    return [
        replace(sample, prompt=prompt, base_prompt="a photo of a coat", seed=100 + index)
        for index, (sample, prompt) in enumerate(zip(every, prompts, strict=True))
    ]


@pytest.mark.parametrize("name", [name for name in CASES if name != "FLUX.1"])
def test_an_image_depends_on_its_own_pair_alone(
    name: str, loaded: Any, make_recipe: Callable[..., Recipe], unrounded: None
) -> None:
    make, changes = CASES[name]
    recipe = _recipe(make_recipe, *changes)
    pipeline = loaded(make)
    renderer = Renderer(pipeline, recipe)
    samples = _pairs(recipe)
    drawn: list[Any] = renderer.render(samples[:4])
    assert all(np.isfinite(image).all() and image.std() > 0.01 for image in drawn)
    other = replace(samples[2], base_prompt="a shoe in the evening")
    again: list[Any] = Renderer(pipeline, recipe).render([samples[3], other, samples[0]])
    np.testing.assert_array_equal(again[0], drawn[3])
    np.testing.assert_array_equal(again[2], drawn[0])
    np.testing.assert_array_equal(renderer.render([samples[1]])[0], drawn[1])
    # Beside samples that are drawn alone, which are what they are without any pair.
    alone = replace(samples[2], base_prompt=None)
    mixed: list[Any] = renderer.render([alone, samples[2]])
    np.testing.assert_array_equal(mixed[1], drawn[2])
    np.testing.assert_array_equal(mixed[0], renderer.render([alone])[0])
    assert np.abs(mixed[0] - mixed[1]).max() > 1e-4, "the base is seen"
    assert np.abs(again[1] - drawn[2]).max() > 1e-5, "it is this base that is seen"


def test_what_a_base_adds_to_itself_is_nothing(
    loaded: Any, make_recipe: Callable[..., Recipe], unrounded: None
) -> None:
    """Repeated keys and values have the weight of single ones."""
    make, changes = CASES["SD 1"]
    recipe = _recipe(make_recipe, *changes)
    renderer = Renderer(loaded(make), recipe)
    sample = replace(_pairs(recipe)[0], prompt="a photo of a coat")
    beside: list[Any] = renderer.render([sample])
    alone: list[Any] = renderer.render([replace(sample, base_prompt=None)])
    np.testing.assert_allclose(beside[0], alone[0], atol=2e-4)


class _Attentions(TorchFunctionMode):
    """Records queries, keys, values and output of every attention that torch computes."""

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
def test_a_base_lends_its_image_and_not_its_text(
    name: str, loaded: Any, make_recipe: Callable[..., Recipe]
) -> None:
    make, changes = CASES[name]
    recipe = _recipe(make_recipe, *changes)
    renderer = Renderer(loaded(make), recipe)
    with _Attentions() as attentions:
        renderer.render(_pairs(recipe)[:1])
    places = [
        index
        for index, (query, key, _, _) in enumerate(attentions.seen)
        if query.shape[2] != key.shape[2]
    ]
    assert len(places) >= 4
    # The bases of a batch attend right before the samples that borrow from them.
    pairs = [(attentions.seen[index], attentions.seen[index - 1]) for index in places]
    first = name == "SD 3"  # there the image's tokens come before the text's
    image = pairs[0][0][1].shape[2] - pairs[0][0][0].shape[2]
    assert 0 < image < pairs[0][0][0].shape[2]
    for (query, key, value, out), base in pairs:
        lent = slice(0, image) if first else slice(-image, None)
        torch.testing.assert_close(key[:, :, -image:], base[1][:, :, lent], rtol=0, atol=0)
        torch.testing.assert_close(value[:, :, -image:], base[2][:, :, lent], rtol=0, atol=0)
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
        torch.testing.assert_close(out, weights @ value, rtol=1e-4, atol=1e-5)


def test_attention_that_cannot_be_extended_is_reported(
    loaded: Any, make_recipe: Callable[..., Recipe]
) -> None:
    pipeline = loaded(modern.stable_diffusion_3)
    recipe = _recipe(make_recipe, *SHORT)
    renderer = Renderer(pipeline, recipe)

    class Sliced:
        def __call__(
            self, attn: Any, hidden_states: Any, encoder_hidden_states: Any = None, **named: Any
        ) -> Any:
            return hidden_states, encoder_hidden_states

    before = dict(pipeline.transformer.attn_processors)
    pipeline.transformer.set_attn_processor(Sliced())
    try:
        with pytest.raises(
            RunFailure, match="Sliced computes attention in a way that pairs cannot share"
        ):
            renderer.render(_pairs(recipe)[:1])
    finally:
        pipeline.transformer.set_attn_processor(before)


def test_a_pipeline_that_shows_no_base_is_refused_by_whoever_renders(
    loaded: Any, make_recipe: Callable[..., Recipe]
) -> None:
    with pytest.raises(UserError, match=r"samples\.pairs: .* is a Sana, .* expected noise"):
        Renderer(loaded(modern.sana), _recipe(make_recipe))
    assert (
        Renderer(loaded(modern.sana), _recipe(make_recipe, "samples.pairs=noise")).family.pairs
        is None
    )


def test_a_pipeline_is_as_it_was_behind_it(loaded: Any) -> None:
    pipeline = loaded(miniature_pipelines.stable_diffusion_1)
    before = dict(pipeline.unet.attn_processors)
    family = family_of(type(pipeline).__name__)
    assert family is not None
    with pytest.raises(ZeroDivisionError), paired_attention(pipeline, family, 2):
        assert pipeline.unet.attn_processors != before
        raise ZeroDivisionError
    assert pipeline.unet.attn_processors == before


def _latents(n: int = 3, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    base = torch.randn(n, 4, side, side, generator=generator)
    return base, base + torch.randn(n, 4, side, side, generator=generator)


def test_what_is_held_is_where_the_smoothed_difference_is_least() -> None:
    base, shifted = _latents()
    masks = least_changed(base, shifted, 0.4).squeeze(1).numpy()
    for mask, before, after in zip(masks, base.numpy(), shifted.numpy(), strict=True):
        changed = np.abs(after - before).mean(0)
        # Sums with zeros around, divided by the pixels counted: the mean of those inside the
        # picture.
        counted = uniform_filter(np.ones_like(changed), 3, mode="constant")
        smooth = uniform_filter(changed, 3, mode="constant") / counted
        assert smooth[mask].max() < smooth[~mask].min()
        assert mask.mean() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(("share", "held"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_a_share_of_the_picture_is_held(share: float, held: float) -> None:
    assert float(least_changed(*_latents(), share).float().mean()) == held


def test_places_in_rows_are_those_of_a_square() -> None:
    base, shifted = _latents()
    packed = [part.flatten(2).transpose(1, 2) for part in (base, shifted)]
    mask = least_changed(packed[0], packed[1], 0.5)
    assert mask.shape == (3, 64, 1)
    torch.testing.assert_close(mask.reshape(3, 8, 8), least_changed(base, shifted, 0.5).squeeze(1))


def test_no_neighbour_decides_what_is_held() -> None:
    base, shifted = _latents()
    alone = least_changed(base[1:2], shifted[1:2], 0.5)
    assert torch.equal(alone[0], least_changed(base, shifted, 0.5)[1])


def test_steps_put_it_back_until_their_time_is_over() -> None:
    base, shifted = _latents()
    held = HeldParts(3, 0.5, 0.5)
    pipeline = SimpleNamespace(num_timesteps=12)
    changes = [
        held(pipeline, index, None, {"latents": torch.cat([base, shifted])}) for index in range(12)
    ]
    assert [bool(change) for change in changes] == [
        False,
        True,
        True,
        True,
        True,
        True,
        *[False] * 6,
    ]
    mask = least_changed(base, shifted, 0.5)
    for change in changes[1:6]:
        bases, others = change["latents"].split(3)
        assert torch.equal(bases, base)
        assert torch.equal(others, torch.where(mask, base, shifted))
    # The held part is decided once: latents of later steps do not change it.
    again = held(pipeline, 3, None, {"latents": torch.cat([base, shifted.flip(2)])})
    assert torch.equal(again["latents"][3:], torch.where(mask, base, shifted.flip(2)))


@pytest.mark.parametrize("steps", [*range(1, 14), 50])
@pytest.mark.parametrize("until", [0.0, 0.1, 1 / 6, 0.167, 0.5, 0.75, 1.0])
def test_a_recipe_tells_whether_any_step_holds(steps: int, until: float) -> None:
    tensors = {"latents": torch.cat(_latents())}
    held = HeldParts(3, 0.5, until)
    pipeline = SimpleNamespace(num_timesteps=steps)
    holding = [index for index in range(steps) if held(pipeline, index, None, tensors)]
    assert bool(holding) == HeldFromBase(share=0.5, until=until).holds(steps)
    assert all(1 / 6 <= (index + 1) / steps <= until + 1e-6 for index in holding)


def test_who_else_is_called_back_gets_what_it_asked_for() -> None:
    names: list[set[str]] = []

    def other(
        pipeline: object, step: int, timestep: object, tensors: dict[str, object]
    ) -> dict[str, object]:
        names.append(set(tensors))
        return {"prompt_embeds": "new"}

    base, shifted = _latents()
    call = {
        "guidance_scale": 2.0,
        "callback_on_step_end": other,
        "callback_on_step_end_tensor_inputs": ["prompt_embeds"],
    }
    both = called_back(call, HeldParts(3, 0.5, 1.0), ["latents"])
    assert both["guidance_scale"] == 2.0
    assert both["callback_on_step_end_tensor_inputs"] == ["prompt_embeds", "latents"]
    tensors = {"prompt_embeds": "old", "latents": torch.cat([base, shifted])}
    changed = both["callback_on_step_end"](SimpleNamespace(num_timesteps=2), 0, None, tensors)
    assert names == [{"prompt_embeds"}]
    assert set(changed) == {"prompt_embeds", "latents"}
