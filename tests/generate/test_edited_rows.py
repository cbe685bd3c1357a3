"""Edits of rows: an image depends on its sample, its row and the batch size; under its own words it
stays itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import UserError
from counterfoil.generate.render import Renderer
from counterfoil.generate.rows import EditRenderer
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe
from support.images import assert_same_images

MakeRecipe = Callable[..., Recipe]
INVERTED = {
    "SD 1": miniature.stable_diffusion_1,
    "SD 2": miniature.stable_diffusion_2,
    "XL": miniature.stable_diffusion_xl,
}
CALLED = {"InstructPix2Pix": modern.instruct_pix2pix, "FLUX.1 Kontext": modern.flux_kontext}
PROMPTS = (
    "a bag",
    "a photo of a coat in the snow",
    "a dress",
    "a shoe at night",
    "a hat",
    "two coats",
)


@pytest.fixture
def unrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep pictures unrounded: whole levels would hide most changes by a neighbour."""
    monkeypatch.setattr(
        "counterfoil.generate.rows.as_pictures",
        lambda pixels: lambda: list(pixels.permute(0, 2, 3, 1).numpy()),
    )


def row_image(row: int) -> Image.Image:
    """Return a picture with the row's own sides; fail for row 3."""
    if row == 3:
        raise UserError("row 3 cannot be decoded")
    picture = Image.fromarray(render(wardrobe_scene("validation", row)))
    return picture.resize((64, 48 + row))


def lab_image(row: int) -> Image.Image:
    return Image.fromarray(render(wardrobe_scene("validation", row)))


@pytest.fixture
def plain(make_recipe: MakeRecipe) -> Recipe:
    """Return the recipe whose samples become edits of rows."""
    return make_recipe()


@pytest.fixture
def edits(make_recipe: MakeRecipe) -> MakeRecipe:
    """Return a function that makes recipes that edit."""
    return lambda *changes: make_recipe(
        "generator.kind=edit", "generator.split=validation", *changes
    )


def samples(recipe: Recipe, rows: tuple[int, ...] = (0, 1, 2, 4, 5, 6)) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    chosen = zip(every, PROMPTS, rows, strict=False)
    return [
        replace(sample, prompt=prompt, base_prompt="a photo of a bag", row=row)
        for sample, prompt, row in chosen
    ]


def latents_of(pipeline: Any, image: Image.Image) -> torch.Tensor:
    pixels = pipeline.image_processor.preprocess(image)
    return pipeline.vae.encode(pixels).latent_dist.mode() * pipeline.vae.config.scaling_factor


@pytest.mark.parametrize("guidance", [3.0, pytest.param(0.0, marks=pytest.mark.whole)])
@pytest.mark.parametrize("name", INVERTED | CALLED)
def test_neighbours_places_and_padding_change_no_bit(
    name: str, guidance: float, loaded: Any, edits: MakeRecipe, plain: Recipe, unrounded: None
) -> None:
    recipe = edits("generator.size=32", f"generator.guidance={guidance}")
    pipeline = loaded((INVERTED | CALLED)[name])
    batch = samples(plain)
    model = getattr(pipeline, "unet", None) or pipeline.transformer
    before = pipeline.scheduler, dict(model.attn_processors)
    drawn = EditRenderer(pipeline, recipe, row_image).render(batch[:4])
    assert all(
        image is not None and image.shape == (32, 32, 3) and image.std() > 0.01 for image in drawn
    )
    assert_same_images(
        EditRenderer(pipeline, recipe, row_image).render([batch[3], batch[0]]), [drawn[3], drawn[0]]
    )
    mixed = [batch[4], batch[2], batch[5], batch[1]]
    assert_same_images(
        EditRenderer(pipeline, recipe, row_image).render(mixed)[1::2], [drawn[2], drawn[1]]
    )
    assert_same_images(EditRenderer(pipeline, recipe, row_image).render([batch[1]]), [drawn[1]])
    # Another row, or another prompt, is another image.
    changed = [replace(batch[0], row=7), replace(batch[0], prompt="a hat")]
    other: list[Any] = EditRenderer(pipeline, recipe, row_image).render(changed)
    assert all((image != drawn[0]).any() for image in other)
    assert (pipeline.scheduler, dict(model.attn_processors)) == before


@pytest.mark.parametrize("guidance", [1.0, 4.0])
@pytest.mark.parametrize("name", INVERTED)
def test_under_its_own_prompt_an_image_is_what_the_autoencoder_makes_of_it(
    name: str, guidance: float, loaded: Any, edits: MakeRecipe, plain: Recipe, unrounded: None
) -> None:
    """So a base shows what inversion itself costs, without a prompt, at every guidance."""
    recipe = edits("generator.size=32", f"generator.guidance={guidance}")
    pipeline = loaded(INVERTED[name])
    unedited = [replace(sample, prompt=sample.base_prompt) for sample in samples(plain)[:3]]
    renderer = EditRenderer(pipeline, recipe, row_image)
    for image, source in zip(renderer.render(unedited), renderer.sources(unedited), strict=True):
        assert source is not None
        with torch.inference_mode():
            decoded = pipeline.vae.decode(
                latents_of(pipeline, source) / pipeline.vae.config.scaling_factor
            ).sample
        expected = (decoded[0] / 2 + 0.5).clamp(0, 1).permute(1, 2, 0).numpy()
        assert image is not None
        np.testing.assert_allclose(image, expected, atol=1e-3)


@pytest.mark.parametrize("name", INVERTED)
def test_an_edit_of_nothing_is_the_same_bits_whatever_guidance_and_steps(
    name: str, loaded: Any, edits: MakeRecipe, plain: Recipe, unrounded: None
) -> None:
    pipeline = loaded(INVERTED[name])
    some = samples(plain)[:2]
    batch = [replace(some[0], prompt=some[0].base_prompt), some[1]]
    drawn = [
        EditRenderer(
            pipeline,
            edits(
                "generator.size=32", f"generator.guidance={guidance}", f"generator.steps={steps}"
            ),
            row_image,
        ).render(batch)
        for guidance, steps in ((1.0, 2), (4.0, 2), (4.0, 5))
    ]
    for unedited, edited in drawn[1:]:
        np.testing.assert_array_equal(unedited, drawn[0][0])
        assert edited is not None and (edited != drawn[0][1]).any()


@pytest.mark.parametrize(
    ("scheduler", "make"),
    [(None, miniature.stable_diffusion_2), ("DDIMScheduler", miniature.stable_diffusion_1)],
)
def test_an_images_way_is_that_of_diffusers_inversion(
    scheduler: str | None, make: Any, loaded: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    """Steps are unclipped, also if the recipe's scheduler comes from one without a setting for
    clipping."""
    recipe = edits("generator.size=32", "generator.steps=5", "generator.batch_size=2")
    pipeline = copy.copy(loaded(make))
    if scheduler is not None:
        pipeline.scheduler = getattr(diffusers, scheduler).from_config(pipeline.scheduler.config)
    before = pipeline.scheduler
    renderer = EditRenderer(pipeline, recipe, row_image)
    batch = samples(plain)[:1]
    source = renderer.sources(batch)[0]
    assert source is not None
    start = latents_of(pipeline, source)
    inverse: Any = diffusers.DDIMInverseScheduler.from_config(
        pipeline.scheduler.config, clip_sample=False, timestep_spacing="leading"
    )
    inverse.set_timesteps(5)
    with torch.inference_mode():
        words = pipeline.encode_prompt(batch[0].base_prompt, "cpu", 1, False)[0]
        expected = [start]
        for time in inverse.timesteps:
            noise = pipeline.unet(expected[-1], time, encoder_hidden_states=words).sample
            expected.append(inverse.step(noise, time, expected[-1]).prev_sample)
        trajectory = renderer.inverted.invert(batch, start)
    assert pipeline.scheduler is before and len(trajectory) == 6
    for latents, expected_latents in zip(trajectory, expected, strict=True):
        torch.testing.assert_close(latents, expected_latents)


@pytest.mark.parametrize("name", CALLED)
def test_a_pipeline_that_edits_is_called_as_it_is(
    name: str, loaded: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    """Each image is one call, with the middle square of its row, whose side the pipeline keeps."""
    short = ["generator.options.max_sequence_length=96"] if name == "FLUX.1 Kontext" else []
    recipe = edits("generator.size=32", *short)
    pipeline = loaded(CALLED[name])
    batch = samples(plain)[:2]
    renderer = EditRenderer(pipeline, recipe, row_image)
    sizes = {"height": 32, "width": 32, "max_area": 32 * 32, "_auto_resize": False} if short else {}
    for sample, image, source in zip(
        batch, renderer.render(batch), renderer.sources(batch), strict=True
    ):
        expected = pipeline(
            prompt=sample.prompt, image=source, generator=torch.Generator().manual_seed(sample.seed),
            guidance_scale=3.0, num_inference_steps=2, output_type="np", **sizes, **recipe.drawing.options,
        ).images[0]  # fmt: skip
        assert image is not None and image.shape == expected.shape
        assert np.abs(image - 255 * expected).max() <= 0.51


def test_what_needs_an_image_draws_none_without(loaded: Any, make_recipe: MakeRecipe) -> None:
    with pytest.raises(
        UserError, match=r"InstructPix2Pix, which draws from an image alone.*generator.kind edit"
    ):
        Renderer(loaded(modern.instruct_pix2pix), make_recipe("generator.size=32"))
    kontext = make_recipe("generator.size=32", "generator.options.max_sequence_length=96")
    alone = [replace(samples(kontext)[0], base_prompt=None)]
    (drawn,) = Renderer(loaded(modern.flux_kontext), kontext).render(alone)
    assert drawn is not None and drawn.shape == (32, 32, 3)


def test_a_row_that_cannot_be_decoded_is_no_image_and_changes_no_other(
    loaded: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    recipe = edits("generator.size=32")
    pipeline = loaded(miniature.stable_diffusion_1)
    batch = samples(plain, (0, 3, 1, 2))
    renderer = EditRenderer(
        pipeline, recipe, row_image, {0: "cc0", 1: None, 2: "mit", 3: "mit"}.get
    )
    drawn = renderer.render(batch)
    assert drawn[1] is None
    assert_same_images([drawn[0], drawn[2]], renderer.render([batch[0], batch[2]]))
    assert renderer.render([batch[1]]) == [None]
    assert renderer.values(batch[:2]) == [
        {"source_row": 0, "license": "cc0"},
        {"source_row": 3, "license": "mit"},
    ]
    assert [source and source.size for source in renderer.sources(batch)] == [
        (32, 32),
        None,
        (32, 32),
        (32, 32),
    ]


def test_the_middle_square_is_edited(loaded: Any, edits: MakeRecipe, plain: Recipe) -> None:
    wide = np.zeros((32, 64, 3), np.uint8)
    wide[:, 16:48] = 200
    renderer = EditRenderer(
        loaded(miniature.stable_diffusion_1),
        edits("generator.size=32"),
        lambda row: Image.fromarray(wide),
    )
    source = renderer.sources(samples(plain)[:1])[0]
    assert source is not None and (np.asarray(source) == 200).all()


def test_edits_of_the_lab_keep_their_object_and_take_the_shift(
    pipeline: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    """Edits to night are darker, and each is still nearest to its own row."""
    recipe = edits("generator.steps=12", "generator.guidance=2.0")
    rows = (0, 1, 2, 6)
    night = [
        replace(
            sample,
            prompt=f"a photo of a {name} at night",
            base_prompt=f"a photo of a {name}",
            row=row,
        )
        for sample, row, name in zip(
            samples(plain), rows, ("t-shirt", "trouser", "pullover", "shirt"), strict=False
        )
    ]
    drawn = np.stack(
        [
            image
            for image in EditRenderer(pipeline, recipe, lab_image).render(night)
            if image is not None
        ]
    )
    sources = np.stack([np.asarray(lab_image(row)) for row in rows])
    assert drawn.mean() < 0.6 * sources.mean()
    shapes = [
        np.corrcoef(image.ravel(), source.ravel())[0, 1] for image in drawn for source in sources
    ]
    assert (np.array(shapes).reshape(4, 4).argmax(1) == range(4)).all()


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (
            miniature.stable_diffusion_1,
            "generator.batch_size=5",
            "batch_size: found 5.*expected an even number",
        ),
        (
            miniature.stable_diffusion_1,
            "generator.scheduler=Euler",
            "found 'Euler'.*expected null or 'DDIM'",
        ),
        (modern.sana, "generator.steps=2", "is Sana, which edits no image"),
    ],
)
def test_what_cannot_edit_is_reported(
    make: Any, change: str, message: str, loaded: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    with pytest.raises(UserError, match=message):
        EditRenderer(loaded(make), edits("generator.size=32", change), row_image)
