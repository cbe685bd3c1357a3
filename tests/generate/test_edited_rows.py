"""Edits of rows: an image depends on its sample, its row and the batch size; under its own words it
stays itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from counterfoil.models.generators import family_of
from counterfoil.models.generators.longcat_image import LONGCAT_IMAGE_EDIT
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe
from support.images import assert_same_images

MakeRecipe = Callable[..., Recipe]
INVERTED = {
    "SD 1": miniature.stable_diffusion_1,
    "SD 2": miniature.stable_diffusion_2,
    "XL": miniature.stable_diffusion_xl,
}


@dataclass(frozen=True)
class Called:
    """A pipeline that edits, and the further arguments with which a plain call draws the same."""

    make: Callable[[], Any]
    side: int = 128
    options: dict[str, Any] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)
    scale: str | None = "guidance_scale"
    sized: bool = True


QWEN = {"plain": {"negative_prompt": " "}, "scale": "true_cfg_scale"}
FLUX_2 = {"side": 64, "options": {"text_encoder_out_layers": [0, 1, 2], "max_sequence_length": 512}}
KONTEXT = {"max_area": 32 * 32, "_auto_resize": False}
CALLED = {
    "InstructPix2Pix": Called(modern.instruct_pix2pix, 32, sized=False),
    "FLUX.1 Kontext": Called(modern.flux_kontext, 32, {"max_sequence_length": 96}, KONTEXT),
    "Qwen-Image-Edit": Called(modern.qwen_image_edit, **QWEN),
    "Qwen-Image-Edit-Plus": Called(modern.qwen_image_edit_plus, **QWEN),
    "FLUX.2": Called(modern.flux_2, **FLUX_2),
    "FLUX.2 klein": Called(modern.flux_2_klein, **FLUX_2),
    "FLUX.2 klein KV": Called(modern.flux_2_klein_kv, **FLUX_2, scale=None),
    "LongCat-Image-Edit": Called(modern.longcat_image_edit, sized=False),
}
# Editors that resize a given image to 1,024² pixels, by the module that says so.
RESIZING = {
    "Qwen-Image-Edit": "qwenimage.pipeline_qwenimage_edit",
    "Qwen-Image-Edit-Plus": "qwenimage.pipeline_qwenimage_edit_plus",
    "LongCat-Image-Edit": "longcat_image.pipeline_longcat_image_edit",
}
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


@pytest.fixture(autouse=True)
def smaller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let editors resize images to 128² pixels, not to 1,024²: most of their time."""
    if request.node.get_closest_marker("whole"):
        return
    for name, module in RESIZING.items():
        more = (None,) if name == "Qwen-Image-Edit" else ()
        monkeypatch.setattr(
            f"diffusers.pipelines.{module}.calculate_dimensions",
            lambda area, ratio, more=more: (128, 128, *more),
        )
    small = replace(LONGCAT_IMAGE_EDIT, side=128)
    for name in ("generate.render", "models.pipeline_settings"):
        monkeypatch.setattr(
            f"counterfoil.{name}.family_of",
            lambda name: small if name in small.pipelines else family_of(name),
        )


def options_of(name: str) -> list[str]:
    """Return the settings of a recipe for a miniature."""
    if name not in CALLED:
        return ["generator.size=32"]
    case = CALLED[name]
    options = [f"generator.options.{option}={value}" for option, value in case.options.items()]
    return [f"generator.size={case.side}", *options]


def made(name: str) -> Callable[[], Any]:
    return INVERTED[name] if name in INVERTED else CALLED[name].make


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
# Pipelines of one call an image are compared with plain calls below. The last keeps what it
# computed of an image from step to step. SD 2 is of the family of SD 1.
@pytest.mark.parametrize(
    "name",
    [
        "SD 1",
        pytest.param("SD 2", marks=pytest.mark.whole),
        "XL",
        "InstructPix2Pix",
        "FLUX.1 Kontext",
        "FLUX.2 klein KV",
    ],
)
def test_neighbours_places_and_padding_change_no_bit(
    name: str, guidance: float, loaded: Any, edits: MakeRecipe, plain: Recipe, unrounded: None
) -> None:
    recipe = edits(*options_of(name), f"generator.guidance={guidance}")
    pipeline = loaded(made(name))
    side = CALLED[name].side if name in CALLED else 32
    batch = samples(plain)
    model = getattr(pipeline, "unet", None) or pipeline.transformer
    before = pipeline.scheduler, dict(model.attn_processors)
    drawn = EditRenderer(pipeline, recipe, row_image).render(batch[:4])
    assert all(
        image is not None and image.shape == (side, side, 3) and image.std() > 0.01
        for image in drawn
    )
    renderer = EditRenderer(pipeline, recipe, row_image)
    assert_same_images(renderer.render([batch[3], batch[0]]), [drawn[3], drawn[0]])
    assert_same_images(renderer.render([batch[1]]), [drawn[1]])
    changed = [replace(batch[0], row=7), replace(batch[0], prompt="a hat")]
    mixed: list[Any] = renderer.render([changed[0], batch[2], changed[1], batch[1]])
    assert_same_images(mixed[1::2], [drawn[2], drawn[1]])
    # Another row, or another prompt, is another image.
    assert all((image != drawn[0]).any() for image in mixed[::2])
    assert (pipeline.scheduler, dict(model.attn_processors)) == before


@pytest.mark.parametrize("name", ["SD 1", "XL"])
def test_under_its_own_prompt_an_image_is_what_the_autoencoder_makes_of_it(
    name: str, loaded: Any, edits: MakeRecipe, plain: Recipe, unrounded: None
) -> None:
    """So a base shows what inversion itself costs, without a prompt."""
    recipe = edits("generator.size=32", "generator.guidance=4.0")
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


@pytest.mark.parametrize("name", ["SD 1", "XL"])
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
    case = CALLED[name]
    recipe = edits(*options_of(name))
    pipeline = loaded(case.make)
    batch = samples(plain)[:2]
    renderer = EditRenderer(pipeline, recipe, row_image)
    arguments = dict(case.plain)
    if case.sized:
        arguments |= {"height": case.side, "width": case.side}
    if case.scale is not None:
        arguments[case.scale] = 3.0
    for sample, image, source in zip(
        batch, renderer.render(batch), renderer.sources(batch), strict=True
    ):
        expected = pipeline(
            prompt=sample.prompt, image=source, generator=torch.Generator().manual_seed(sample.seed),
            num_inference_steps=2, output_type="np", **arguments, **recipe.drawing.options,
        ).images[0]  # fmt: skip
        assert image is not None and image.shape == expected.shape
        assert np.abs(image - 255 * expected).max() <= 0.51


@pytest.mark.whole
@pytest.mark.parametrize("name", RESIZING)
def test_editors_that_resize_images_draw_as_many_pixels_as_they_resize_to(
    name: str, loaded: Any, edits: MakeRecipe, plain: Recipe
) -> None:
    """At another size, the given and the drawn image would lie in two grids."""
    recipe = edits("generator.size=null")
    pipeline = loaded(CALLED[name].make)
    pipeline.default_sample_size = 1024 // pipeline.vae_scale_factor
    grids = []

    def look(module: Any, positions: Any, arguments: dict[str, Any]) -> None:
        if "img_shapes" in arguments:
            grids.append(arguments["img_shapes"][0])

    hook = pipeline.transformer.register_forward_pre_hook(look, with_kwargs=True)
    drawn = EditRenderer(pipeline, recipe, row_image).render(samples(plain)[:1])[0]
    hook.remove()
    assert drawn is not None and drawn.shape == (1024, 1024, 3)
    assert all(shapes[0] == shapes[1] for shapes in grids)


def test_flux_2_draws_without_an_image_too(loaded: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(*options_of("FLUX.2 klein"))
    alone = [replace(samples(recipe)[0], base_prompt=None)]
    (drawn,) = Renderer(loaded(modern.flux_2_klein), recipe).render(alone)
    assert drawn is not None and drawn.shape == (64, 64, 3)


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
        (modern.flux_2_klein, "generator.steps=2", "FLUX.2 edits images of 64 pixels a side or"),
        (modern.longcat_image_edit, "generator.steps=2", "draws 128 pixels a side and nothing"),
    ],
)
def test_what_cannot_edit_is_reported(
    make: Any, change: str, message: str, loaded: Any, edits: MakeRecipe
) -> None:
    with pytest.raises(UserError, match=message):
        EditRenderer(loaded(make), edits("generator.size=32", change), row_image)
