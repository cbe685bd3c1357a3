"""Pictures from image embeddings depend on their sample and the batch size: whoever else is drawn changes no bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from counterfoil.generate import Renderer
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.models import LAB_WEIGHTS
from counterfoil.models.adapters import load_adapter
from counterfoil.models.diffusion import load_pipeline, pipeline_family
from counterfoil.plan import Sample, make_plan
from counterfoil.recipe import Recipe
from miniature_pipelines import (
    EMBEDDING,
    ip_adapter,
    kandinsky,
    stable_diffusion_1,
    stable_diffusion_xl,
    stable_unclip,
)

MakeRecipe = Callable[..., Recipe]
RNG = np.random.default_rng(7)


def samples_of(recipe: Recipe, shift: str, count: int = 3) -> list[Sample]:
    plan = make_plan(recipe)
    return [s for shard in plan.shards for s in shard.samples(plan) if s.shift == shift][:count]


def embeddings_of(recipe: Recipe, width: int, *shifts: str) -> ImageEmbeddings:
    def unit() -> Any:
        vector = RNG.normal(size=width)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    vectors = {shift: {cls.id: unit() for cls in recipe.classes} for shift in shifts}
    return ImageEmbeddings(vectors, dict.fromkeys(shifts, "{class_id}"), width)


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def with_adapter() -> Iterator[tuple[Any, Any]]:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    yield pipeline, load_adapter(pipeline, "lab:decoder")


def test_neighbours_of_either_kind_change_no_bit(
    with_adapter: tuple[Any, Any], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe()
    loaded, adapter = with_adapter
    base, red = samples_of(recipe, "base"), [replace(s, prompt=None) for s in samples_of(recipe, "red")]
    plain = Renderer(pipeline, recipe).render(base)
    renderer = Renderer(loaded, recipe, embeddings_of(recipe, 128, "red"), adapter)
    drawn: list[Any] = renderer.render(red)
    assert_same(renderer.render(base), plain)
    assert_same(renderer.render([base[0], red[2], base[1], red[0]]), [plain[0], drawn[2], plain[1], drawn[0]])
    assert_same(renderer.render([red[1], red[1]]), [drawn[1], drawn[1]])
    assert np.abs(drawn[0].astype(int) - drawn[1].astype(int)).max() > 30, "vectors decide the picture"


def test_pixels_are_those_of_a_plain_call_for_one_picture(
    with_adapter: tuple[Any, Any], make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe("generator.batch_size=1")
    sample = samples_of(recipe, "red", 1)[0]
    embeddings = embeddings_of(recipe, 128, "red")
    found = Renderer(with_adapter[0], recipe, embeddings, with_adapter[1]).render([sample])[0]
    plain: Any = diffusers.StableDiffusionPipeline.from_pretrained(str(LAB_WEIGHTS / "sd"), torch_dtype=torch.float32)
    plain.load_ip_adapter(
        str(LAB_WEIGHTS / "decoder"), subfolder="", weight_name="ip_adapter.safetensors", image_encoder_folder=None
    )
    plain.set_progress_bar_config(disable=True)
    own = torch.from_numpy(embeddings.of("red", sample.class_id))[None, None]
    drawn = plain(
        prompt=[sample.prompt], ip_adapter_image_embeds=[torch.cat([torch.zeros_like(own), own])],
        generator=[torch.Generator().manual_seed(sample.seed)], num_inference_steps=2, guidance_scale=3.0,
        output_type="np",
    )  # fmt: skip
    expected = (drawn.images[0] * 255).round().astype(int)
    assert found is not None and np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(("make", "prompted"), [(stable_unclip, True), (kandinsky, False)])
@pytest.mark.parametrize("guidance", [3.0, 1.0])
def test_models_that_take_embeddings_draw_each_picture_alone(
    make: Callable[[], Any], prompted: bool, guidance: float, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    make().save_pretrained(tmp_path / "model")
    name = f"local-dir:{tmp_path / 'model'}"
    family, width = pipeline_family(name)
    assert (family.takes, width, family.prompted) == ("every", EMBEDDING, prompted)
    pipeline = load_pipeline(name, dtype="float32")
    recipe = make_recipe(f"generator.model={name}", f"generator.guidance={guidance}")
    embeddings = embeddings_of(recipe, width, "base", "red")
    renderer = Renderer(pipeline, recipe, embeddings)
    samples = [*samples_of(recipe, "base", 2), *samples_of(recipe, "red", 2)]
    drawn: list[Any] = renderer.render(samples)
    assert all(image is not None and image.shape == (32, 32, 3) for image in drawn)
    assert_same(renderer.render([samples[3], samples[0]]), [drawn[3], drawn[0]])
    assert_same(renderer.render([samples[2]] * 4), [drawn[2]] * 4)
    other: list[Any] = Renderer(pipeline, recipe, embeddings_of(recipe, width, "base", "red")).render(samples)
    assert not np.array_equal(other[0], drawn[0]), "another vector is another picture"


@pytest.mark.parametrize("make", [stable_diffusion_1, stable_diffusion_xl])
@pytest.mark.parametrize("guidance", [3.0, 1.0])
def test_an_adapter_of_either_architecture_draws_each_picture_alone(
    make: Callable[[], Any], guidance: float, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = make()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "adapter").mkdir()
    save_file(ip_adapter(model.unet), tmp_path / "adapter" / "ip_adapter.safetensors")
    pipeline = load_pipeline(f"local-dir:{tmp_path / 'model'}", dtype="float32")
    recipe = make_recipe(f"generator.guidance={guidance}", "generator.size=32")
    base, red = samples_of(recipe, "base"), samples_of(recipe, "red")
    plain = Renderer(pipeline, recipe).render(base)
    adapter = load_adapter(pipeline, f"local-dir:{tmp_path / 'adapter'}")
    renderer = Renderer(pipeline, recipe, embeddings_of(recipe, EMBEDDING, "red"), adapter)
    drawn: list[Any] = renderer.render(red)
    assert_same(renderer.render([red[1], base[2], base[0], red[0]]), [drawn[1], plain[2], plain[0], drawn[0]])
    assert_same(renderer.render([red[2]] * 4), [drawn[2]] * 4)
    other: list[Any] = Renderer(pipeline, recipe, embeddings_of(recipe, EMBEDDING, "red"), adapter).render(red)
    assert not np.array_equal(other[0], drawn[0]), "another vector is another picture"
