"""Every generator family: an image depends on its sample and the batch size, and is what diffusers
alone draws."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.render import Renderer
from counterfoil.models.diffusion import native_size, pipeline_family
from counterfoil.models.generators import FAMILIES, Family, family_of
from counterfoil.models.loras import load_loras, pin_lora
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe
from support.images import assert_same_images
from support.loras import part_of, saved_lora

MakeRecipe = Callable[..., Recipe]


@dataclass(frozen=True)
class Case:
    """A pipeline, its family, and the further arguments with which a plain call draws the same."""

    make: Callable[[], Any]
    family: str
    plain: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    scale: str = "guidance_scale"


SHORT = {"max_sequence_length": 96}
CASES = {
    "SD 1": Case(miniature.stable_diffusion_1, "Stable Diffusion 1.x or 2.x"),
    "SD 2": Case(miniature.stable_diffusion_2, "Stable Diffusion 1.x or 2.x"),
    "XL": Case(miniature.stable_diffusion_xl, "Stable Diffusion XL"),
    "SD 3": Case(modern.stable_diffusion_3, "Stable Diffusion 3 or 3.5", options=SHORT),
    "FLUX.1": Case(modern.flux, "FLUX.1", options=SHORT),
    "FLUX.1 led": Case(
        modern.flux, "FLUX.1", {"negative_prompt": ""}, SHORT | {"true_cfg_scale": 2.5}
    ),
    "Qwen-Image": Case(
        modern.qwen_image, "Qwen-Image", {"negative_prompt": " "}, scale="true_cfg_scale"
    ),
    "Z-Image": Case(modern.z_image, "Z-Image"),
    "Sana": Case(modern.sana, "Sana", {"use_resolution_binning": False}),
    "Sana, by the prompt alone": Case(
        modern.sana,
        "Sana",
        {"use_resolution_binning": False},
        SHORT | {"complex_human_instruction": []},
    ),
    "PixArt": Case(modern.pixart, "PixArt", {"use_resolution_binning": False}, SHORT),
    "Lumina 2": Case(modern.lumina_2, "Lumina2Pipeline"),
    "Chroma": Case(modern.chroma, "ChromaPipeline", options=SHORT),
    "PAG": Case(
        modern.with_perturbed_attention, "StableDiffusionPAGPipeline", options={"pag_scale": 2.0}
    ),
}
# Letters are tokens here: these end in different rooms of every family that pads by the length of a
# prompt.
PROMPTS = (
    "a bag",
    "a photo of a coat in the snow, in the evening",
    "a dress",
    "a shoe " * 12,
    "a hat",
    "two coats",
)


def _samples(recipe: Recipe) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return [replace(sample, prompt=prompt) for sample, prompt in zip(every, PROMPTS, strict=False)]


def _recipe(make_recipe: MakeRecipe, case: Case, guidance: float, *changes: str) -> Recipe:
    options = [f"generator.options.{name}={v}" for name, v in case.options.items()]
    return make_recipe("generator.size=32", f"generator.guidance={guidance}", *options, *changes)


# SD 2 is of the family of SD 1, Sana encodes alike with fewer words, and the others draw in one call an
# image, as Lumina 2 does.
ALIKE = ("SD 2", "Sana, by the prompt alone", "Chroma", "PAG")


@pytest.mark.parametrize("guidance", [3.0, pytest.param(0.0, marks=pytest.mark.whole)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.whole] if name in ALIKE else []) for name in CASES],
)
def test_neighbours_places_and_padding_change_no_bit(
    name: str, guidance: float, loaded: Any, make_recipe: MakeRecipe, unrounded: None
) -> None:
    case = CASES[name]
    recipe = _recipe(make_recipe, case, guidance)
    pipeline = loaded(case.make)
    renderer = Renderer(pipeline, recipe)
    samples = _samples(recipe)
    drawn: list[Any] = renderer.render(samples[:4])
    assert all(
        image is not None and image.shape == (32, 32, 3) and image.std() > 0.01 for image in drawn
    )
    other = replace(samples[0], prompt=samples[1].prompt)
    mixed: list[Any] = Renderer(pipeline, recipe).render([other, samples[3], samples[0]])
    assert_same_images(mixed[1:], [drawn[3], drawn[0]])
    assert not np.array_equal(mixed[0], drawn[0]), "the prompt decides the picture"
    assert_same_images(
        renderer.render([samples[4], samples[2], samples[5], samples[1]])[1::2],
        [drawn[2], drawn[1]],
    )
    assert_same_images(renderer.render([samples[1]]), [drawn[1]])
    assert_same_images(renderer.render([samples[0]] * 4), [drawn[0]] * 4)


@pytest.mark.parametrize("name", CASES)
def test_pictures_are_those_of_a_plain_call(
    name: str, loaded: Any, make_recipe: MakeRecipe
) -> None:
    case = CASES[name]
    recipe = _recipe(make_recipe, case, 3.0, "generator.batch_size=1")
    pipeline = loaded(case.make)
    renderer = Renderer(pipeline, recipe)
    assert renderer.family.name == case.family
    for sample in _samples(recipe)[1:4:2]:
        image = renderer.render([sample])[0]
        drawn = pipeline(
            prompt=sample.prompt, generator=torch.Generator("cpu").manual_seed(sample.seed), num_inference_steps=2,
            height=32, width=32, output_type="np", **{case.scale: 3.0}, **case.plain, **case.options,
        ).images[0]  # fmt: skip
        assert image is not None
        assert np.abs(image.astype(int) - (drawn.clip(0, 1) * 255).round().astype(int)).max() <= 1


@pytest.mark.parametrize(
    "name", ["SD 1", "XL", "SD 3", "FLUX.1 led", "Qwen-Image", "Z-Image", "Sana", "PixArt"]
)
def test_guidance_and_its_negative_prompt_reach_the_picture(
    name: str, loaded: Any, make_recipe: MakeRecipe
) -> None:
    case = CASES[name]
    pipeline = loaded(CASES[name].make)

    def drawn(guidance: float, *changes: str) -> Any:
        recipe = _recipe(make_recipe, case, guidance, *changes)
        return Renderer(pipeline, recipe).render(_samples(recipe)[:1])[0]

    plain = drawn(3.0)
    assert not np.array_equal(plain, drawn(3.0, "generator.negative_prompt=a picture of snow"))
    assert not np.array_equal(plain, drawn(5.0))


def _seen(pipeline: Any, render: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the arguments of each call of the transformer during `render`, by their names."""
    calls: list[dict[str, Any]] = []
    names = inspect.signature(pipeline.transformer.forward)

    def look(module: Any, positions: Any, arguments: Any) -> None:
        calls.append(dict(names.bind_partial(*positions, **arguments).arguments))

    hook = pipeline.transformer.register_forward_pre_hook(look, with_kwargs=True)
    try:
        render()
    finally:
        hook.remove()
    assert calls
    return calls


def test_prompts_that_z_image_makes_equally_long_share_batches(
    loaded: Any, make_recipe: MakeRecipe
) -> None:
    """It pads and masks prompts of other lengths: another computation and, on some devices, another
    picture."""
    pipeline = loaded(modern.z_image)
    recipe = make_recipe("generator.size=32", "generator.guidance=0")
    renderer = Renderer(pipeline, recipe)
    samples = _samples(recipe)[:4]
    given = _seen(pipeline, lambda: renderer.render(samples))
    rooms = [{-(-len(states) // 32) for states in call["cap_feats"]} for call in given]
    assert all(len(room) == 1 for room in rooms)
    assert len({min(room) for room in rooms}) > 1, "the prompts need different rooms"
    assert any(len({len(states) for states in call["cap_feats"]}) > 1 for call in given), (
        "and share one where they can"
    )


def test_qwen_image_always_sees_a_mask(loaded: Any, make_recipe: MakeRecipe) -> None:
    """Without this rule, a batch without padding would have no mask, so a picture would depend on
    its neighbours."""
    pipeline = loaded(modern.qwen_image)
    recipe = make_recipe("generator.size=32", "generator.guidance=3.0")
    renderer = Renderer(pipeline, recipe)
    length = int(renderer.encode("")["prompt_embeds_mask"].sum())
    full = replace(_samples(recipe)[0], prompt="x" * (-length % 64))
    assert int(renderer.encode(full.prompt or "")["prompt_embeds_mask"].sum()) % 64 == 0
    for call in _seen(pipeline, lambda: renderer.render([full] * 4)):
        assert call["encoder_hidden_states_mask"] is not None
        assert call["encoder_hidden_states"].shape[1] % 64 == 0


def _names_in_code(pipeline: type) -> list[str]:
    """Return the names of the outputs of `encode_prompt` in the code of diffusers, in order."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(pipeline.encode_prompt)))
    returns = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    assert len(returns) == 1
    assert isinstance(returns[0], ast.Tuple)
    return [elt.id for elt in returns[0].elts if isinstance(elt, ast.Name)]


ENCODED = [
    (family, name)
    for family in FAMILIES
    if family.prompts == "encoded"
    for name in family.pipelines
]


@pytest.mark.parametrize(
    ("family", "pipeline"), ENCODED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_outputs_have_the_names_that_diffusers_gives_them(family: Family, pipeline: str) -> None:
    pipeline_class = getattr(diffusers, pipeline)
    names = _names_in_code(pipeline_class)
    assert len(names) == len(family.outputs)
    taken = inspect.signature(pipeline_class.__call__).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    for name, output in zip(names, family.outputs, strict=True):
        assert output == (name if anything or name in taken else None)


def test_an_encoder_with_another_number_of_outputs_is_refused(
    loaded: Any, make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = loaded(modern.flux)
    encode = pipeline.encode_prompt
    monkeypatch.setattr(
        pipeline, "encode_prompt", lambda prompt, device=None: encode(prompt, device=device)[:2]
    )
    recipe = make_recipe("generator.size=32")
    with pytest.raises(
        RunFailure, match=r"gives 2 outputs, expected 3: prompt_embeds, pooled_prompt_embeds, one"
    ):
        Renderer(pipeline, recipe).render(_samples(recipe)[:1])


def test_what_a_recipe_sets_by_other_keys_is_no_option(
    loaded: Any, make_recipe: MakeRecipe
) -> None:
    with pytest.raises(
        UserError, match=r"generator\.options\.height: a recipe sets it with generator\.size"
    ) as caught:
        Renderer(
            loaded(modern.flux),
            make_recipe("generator.options={height: 16}", "generator.negative_prompt=snow"),
        )
    assert "generator.negative_prompt: FLUX.1 reads it" in str(caught.value)
    qwen = family_of("QwenImagePipeline")
    assert (
        qwen is not None
        and {"true_cfg_scale", "prompt_embeds_mask", "generator", "height"} <= qwen.reserved
    )
    flux = family_of("FluxPipeline")
    assert flux is not None and "true_cfg_scale" not in flux.reserved


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("FluxPipeline", {}, "FLUX.1 reads it where generator.options.true_cfg_scale is above 1"),
        ("FluxPipeline", {"true_cfg_scale": 1.0}, "is above 1"),
        ("FluxPipeline", {"true_cfg_scale": 2.0}, None),
        ("Flux2Pipeline", {}, "FLUX.2 takes none"),
        ("SanaPipeline", {}, None),
        ("KandinskyV22Pipeline", {}, "Kandinsky 2.2 takes none"),
    ],
)
def test_a_negative_prompt_that_nothing_reads_is_refused(
    name: str, options: dict[str, Any], message: str | None
) -> None:
    family = family_of(name)
    assert family is not None
    assert family.negative_problem(None, options) is None
    problem = family.negative_problem("snow", options)
    assert problem is None if message is None else problem is not None and message in problem


def test_a_prompt_is_encoded_once_and_what_is_remembered_is_bounded(
    loaded: Any, make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = loaded(modern.flux)
    recipe = make_recipe("generator.size=32", "generator.options={max_sequence_length: 96}")
    read: list[int] = []
    hook = pipeline.text_encoder_2.register_forward_hook(
        lambda module, args, output: read.append(1)
    )
    monkeypatch.setattr("counterfoil.generate.render._REMEMBERED", 3 * 96 * miniature.WIDTH * 4)
    renderer = Renderer(pipeline, recipe)
    samples = _samples(recipe)
    try:
        renderer.render(samples[:2])
        renderer.render(samples[:2])
        assert len(read) == 2
        for sample in samples:
            renderer.encode(sample.prompt or "")
        assert len(read) == 6
        assert len(renderer._encoded) == 2
    finally:
        hook.remove()


def test_the_scale_of_a_family_is_an_argument_of_its_pipelines_call() -> None:
    for family in [family for family in FAMILIES if family.pipelines]:
        taken = inspect.signature(getattr(diffusers, family.pipelines[0]).__call__).parameters
        assert family.scale is None or family.scale in taken
        assert family.output in ("pt", "np")


@pytest.mark.parametrize(
    ("make", "side"),
    [
        (miniature.stable_diffusion_xl, 32), (modern.stable_diffusion_3, 32), (modern.sana, 32), (modern.pixart, 32),
        (modern.flux, 256), (modern.qwen_image, 256), (modern.z_image, 1024), (modern.lumina_2, 128),
    ],
)  # fmt: skip
def test_the_side_of_a_pipeline_is_its_own_where_a_recipe_has_none(
    make: Any, side: int, loaded: Any
) -> None:
    pipeline = loaded(make)
    assert native_size(pipeline) == side
    assert pipeline_family(pipeline.folder)[0].multiple in (8, 16, 32)


# Layers of each kind that a family has, attention and others.
LORA_TARGETS = {
    "SD 1": ("to_q", "conv1", "time_emb_proj"),
    "XL": ("to_q", "ff.net.2", "proj_in", "conv_in"),
    "FLUX.1": ("to_q", "x_embedder", "proj_out"),
    "Sana": ("to_q", "conv_inverted"),
}
SNOWY = ("in_the_snow_25", "in_the_snow")
LEVELLED = ("prompts.shifts.in_the_snow.severity={by: lora, lora: snow, levels: [0.25, 1]}",)


@contextlib.contextmanager
def _with_loras(pipeline: Any, recipe: Recipe) -> Iterator[Renderer]:
    loras = recipe.drawing.get("lora")
    pins = {name: pin_lora(name, lora).document() for name, lora in loras.items()}
    try:
        yield Renderer(pipeline, recipe, loras=load_loras(pipeline, loras, pins))
    finally:
        pipeline.unload_lora_weights()


@contextlib.contextmanager
def _merged(model: Any, file: Path, scale: float) -> Iterator[None]:
    """Add the product of the file's matrices to the model's weights: an independent reading of the
    file."""
    tensors = load_file(file)
    before = {}
    layers = {
        key.split(".", 1)[1].removesuffix(".lora_A.weight")
        for key in tensors
        if key.endswith("lora_A.weight")
    }
    part = next(iter(tensors)).split(".", 1)[0]
    for layer in layers:
        down, up = (tensors[f"{part}.{layer}.lora_{side}.weight"] for side in "AB")
        weight = model.get_submodule(layer).weight
        before[layer] = weight.data
        weight.data = before[layer] + scale * (up.flatten(1) @ down.flatten(1)).reshape(
            weight.shape
        )
    try:
        yield
    finally:
        for layer, data in before.items():
            model.get_submodule(layer).weight.data = data


@pytest.mark.parametrize("name", LORA_TARGETS)
def test_lora_weights_are_added_at_their_scales_and_at_none_change_no_bit(
    name: str, loaded: Any, make_recipe: MakeRecipe, unrounded: None, tmp_path: Path
) -> None:
    case = CASES[name]
    pipeline = loaded(case.make)
    plain = _recipe(make_recipe, case, 3.0, "generator.batch_size=2")
    samples = _samples(plain)[:2]
    without: list[Any] = Renderer(pipeline, plain).render(samples)
    files = {"snow": saved_lora(pipeline, tmp_path / "snow", LORA_TARGETS[name], rank=3, alpha=6)}
    files["fog"] = saved_lora(pipeline, tmp_path / "fog", LORA_TARGETS[name][:1], rank=2, alpha=2)
    model = getattr(pipeline, part_of(pipeline))

    def recipe(snow: float, fog: float) -> Recipe:
        named = [
            f"{n}: {{path: {files[n]}, scale: {s}}}" for n, s in (("snow", snow), ("fog", fog))
        ]
        lora = f"generator.lora={{{', '.join(named)}}}"
        return _recipe(make_recipe, case, 3.0, lora, "generator.batch_size=2")

    # alpha / rank of the first is 2, of the other 1.
    with _with_loras(pipeline, recipe(0.05, -0.1)) as renderer:
        drawn: list[Any] = renderer.render(samples)
    with _merged(model, files["snow"], 0.1), _merged(model, files["fog"], -0.1):
        expected: list[Any] = Renderer(pipeline, plain).render(samples)
    assert (
        max(float(np.abs(image - other).max()) for image, other in zip(drawn, without, strict=True))
        > 1e-3
    )
    for image, other in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(image, other, atol=1e-4)
    with _with_loras(pipeline, recipe(0, 0)) as renderer:
        assert_same_images(renderer.render(samples), without)
    assert_same_images(Renderer(pipeline, plain).render(samples), without)


@pytest.mark.parametrize("name", ["SD 1", "FLUX.1"])
def test_samples_of_several_scales_share_no_call_and_change_no_bit_of_each_other(
    name: str, loaded: Any, make_recipe: MakeRecipe, unrounded: None, tmp_path: Path
) -> None:
    case = CASES[name]
    pipeline = loaded(case.make)
    file = saved_lora(pipeline, tmp_path, LORA_TARGETS[name])
    lora = (
        f"generator.lora={{snow: {{path: {file}, scale: 0.2}}, fog: {{path: {file}, scale: 0.1}}}}"
    )
    recipe = _recipe(make_recipe, case, 3.0, lora, *LEVELLED, "generator.batch_size=3")
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    samples = [
        next(sample for sample in every if sample.shift == shift) for shift in ("base", *SNOWY)
    ]
    assert [sample.between and sample.between.scale for sample in samples] == [None, 0.25, None]
    scales: list[dict[str, float]] = []

    def scaled(module: Any, *_: Any) -> None:
        layers = [layer for layer in module.modules() if hasattr(layer, "lora_A")]
        settings = {
            tuple(
                (active_adapter, layer.scaling[active_adapter])
                for active_adapter in layer.active_adapters
            )
            for layer in layers
        }
        assert len(settings) == 1, "one scale for every layer"
        scales.append(dict(settings.pop()))

    with _with_loras(pipeline, recipe) as renderer:
        hook = getattr(pipeline, part_of(pipeline)).register_forward_pre_hook(scaled)
        together: list[Any] = renderer.render(samples)
        hook.remove()
        for sample, image in zip(samples, together, strict=True):
            assert_same_images(renderer.render([sample]), [image])
    steps = len(scales) // 3
    fog = {"own0": 0.1}
    assert scales == [fog] * steps + [fog | {"own1": 0.05}] * steps + [fog | {"own1": 0.2}] * steps
    assert not any(np.array_equal(image, other) for image, other in pairwise(together))


def _levels(by: str) -> str:
    return f"prompts.shifts.at_night.severity={{by: {by}, levels: [.5, 1]}}"


def _scene(recipe: Recipe) -> dict[str, Sample]:
    """Return the samples of one class and index, by shift."""
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return {sample.shift: sample for sample in every if sample.pair == every[0].pair}


@pytest.mark.parametrize("name", ["SD 1", "SD 3", "FLUX.1 led"])
def test_a_level_lies_between_two_encoded_prompts(
    name: str, loaded: Any, make_recipe: MakeRecipe, unrounded: None
) -> None:
    case = CASES[name]
    pipeline = loaded(case.make)
    recipe = _recipe(make_recipe, case, 3.0, _levels("prompt"), "generator.batch_size=2")
    renderer = Renderer(pipeline, recipe)
    scene = _scene(recipe)
    base = scene["base"]
    half = scene["at_night_50"]
    whole = scene["at_night"]
    assert half.between is not None and whole.between is None
    ends = [replace(half, between=replace(half.between, scale=scale)) for scale in (0.0, 1.0)]
    drawn: list[Any] = [renderer.render([sample])[0] for sample in (base, *ends, whole, half)]
    assert_same_images(drawn[1:3], [drawn[0], drawn[3]])
    assert_same_images(renderer.render([half, whole]), [drawn[4], drawn[3]])
    # Compare with a call of the pipeline with embeddings that are mixed here.
    of_base = renderer.encode(base.prompt or "")
    of_shift = renderer.encode(whole.prompt or "")
    mixed = {key: (value + of_shift[key]) / 2 for key, value in of_base.items()}
    plain = pipeline(
        **{key: value.repeat(2, *[1] * (value.dim() - 1)) for key, value in mixed.items()}, num_inference_steps=2,
        generator=[torch.Generator("cpu").manual_seed(half.seed) for _ in range(2)], height=32, width=32,
        output_type="np", **{case.scale: 3.0}, **case.options,
    ).images[0]  # fmt: skip
    np.testing.assert_allclose(drawn[4], plain, atol=1e-4)
    assert not np.array_equal(drawn[4], drawn[0]) and not np.array_equal(drawn[4], drawn[3])


@pytest.mark.parametrize(
    ("name", "by"), [("Qwen-Image", "prompt"), ("Z-Image", "prompt"), ("SD 3", "steps")]
)
def test_a_family_without_a_way_to_levels_is_refused(
    name: str, by: str, loaded: Any, make_recipe: MakeRecipe
) -> None:
    recipe = _recipe(make_recipe, CASES[name], 3.0, _levels(by))
    with pytest.raises(
        UserError, match=f"prompts.shifts.at_night.severity: .*{CASES[name].family}"
    ):
        Renderer(loaded(CASES[name].make), recipe)


@pytest.mark.parametrize(("name", "interval"), [("SD 2", "null"), ("XL", "[0, 0.5]")])
def test_later_prompts_come_in_for_their_share_of_the_steps(
    name: str, interval: str, loaded: Any, make_recipe: MakeRecipe
) -> None:
    pipeline = loaded(CASES[name].make)
    changes = [_levels("steps").replace("[.5, 1]", "[.25, .5, 1]"), "generator.steps=4"]
    changes += ["generator.batch_size=3", f"generator.guidance_interval={interval}"]
    recipe = _recipe(make_recipe, CASES[name], 3.0, *changes)
    renderer = Renderer(pipeline, recipe)
    scene = _scene(recipe)
    samples = [scene[shift] for shift in ("at_night_25", "at_night_50", "at_night")]
    seen: list[torch.Tensor] = []

    def look(module: Any, positions: Any, arguments: Any) -> None:
        seen.append(arguments["encoder_hidden_states"][-3:].clone())

    hook = pipeline.unet.register_forward_pre_hook(look, with_kwargs=True)
    try:
        renderer.render(samples)
    finally:
        hook.remove()
    base, night = (
        renderer.encode(scene[shift].prompt or "")["prompt_embeds"][0]
        for shift in ("base", "at_night")
    )
    steps = [[torch.equal(row, night) for row in step] for step in seen]
    assert steps == [
        [False, False, True],
        [False, False, True],
        [False, True, True],
        [True, True, True],
    ]
    assert all(
        torch.equal(row, base) for row, its in zip(seen[0], steps[0], strict=True) if not its
    )
