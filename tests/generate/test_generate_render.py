"""Rendering: an image depends on its own seed, prompt and embedding, whatever is drawn beside
it."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import diffusers
import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from safetensors.torch import save_file

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate import image_embeddings
from counterfoil.generate.image_embeddings import (
    ImageEmbeddings,
    embeddings_file,
    read_image_embeddings,
)
from counterfoil.generate.render import Renderer, own_randomness
from counterfoil.generate.tokens.inversion import TextSide
from counterfoil.models.adapters import load_adapter
from counterfoil.models.diffusion import load_pipeline, pipeline_family
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe
from miniature_pipelines import (
    EMBEDDING,
    ip_adapter,
    kandinsky,
    stable_diffusion_1,
    stable_diffusion_2,
    stable_diffusion_xl,
    stable_unclip,
)
from small_pipeline import MakeRecipe, spread_samples
from support.files import Payload
from support.images import assert_same_images
from support.refusals import problems_of

SMALL = "generator.size=32"  # the lab's generator draws 64 pixels a side by itself


@cache
def _diffusers_alone() -> Any:
    pipeline: Any = diffusers.StableDiffusionPipeline.from_pretrained(
        str(LAB_WEIGHTS / "sd"), torch_dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _plain(samples: list[Sample], scheduler: str | None = None, **options: Any) -> np.ndarray:
    """Draw the same prompts and seeds with diffusers alone."""
    pipeline = copy.copy(_diffusers_alone())
    if scheduler is not None:
        pipeline.scheduler = getattr(diffusers, scheduler).from_config(pipeline.scheduler.config)
    drawn = pipeline(
        prompt=[sample.prompt for sample in samples],
        generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
        num_inference_steps=2,
        output_type="np",
        **{"guidance_scale": 3.0, "height": 32, "width": 32} | options,
    )
    return (drawn.images * 255).round().astype(np.uint8)


def _difference(images: list[np.ndarray | None], expected: np.ndarray) -> int:
    return int(np.abs(np.stack([f for f in images if f is not None]).astype(int) - expected).max())


def test_pixels_are_those_of_a_plain_call(pipeline: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe()
    samples = spread_samples(recipe)
    assert len({sample.prompt for sample in samples}) == 4
    images = Renderer(pipeline, recipe).render(samples)
    assert all(
        image is not None and image.shape == (64, 64, 3) and image.dtype == np.uint8
        for image in images
    )
    assert _difference(images, _plain(samples, height=64, width=64)) <= 1


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (
            "generator.negative_prompt=a photo in the snow",
            {"negative_prompt": ["a photo in the snow"] * 4},
        ),
        ("generator.guidance=1", {"guidance_scale": 1.0}),
    ],
    ids=["negative prompt", "no guidance"],
)
def test_settings_reach_the_pipeline(
    change: str, options: dict[str, Any], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(SMALL, change)
    samples = spread_samples(recipe)
    images = Renderer(pipeline, recipe).render(samples)
    assert _difference(images, _plain(samples, **options)) <= 1
    assert _difference(images, _plain(samples)) > 3, "the setting changes the picture"


def test_another_scheduler_draws_as_it_does_in_diffusers(make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(SMALL, "generator.scheduler=EulerDiscrete")
    pipeline = load_pipeline("lab:sd", scheduler=recipe.drawing.scheduler, dtype="float32")
    samples = spread_samples(recipe)
    images = Renderer(pipeline, recipe).render(samples)
    assert _difference(images, _plain(samples, "EulerDiscreteScheduler")) <= 1
    assert _difference(images, _plain(samples)) > 3


def test_each_prompt_is_encoded_once(pipeline: Any, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(
        SMALL, "samples.candidates=6", "source.classes=[{id: bag, name: bag, source_label: 8}]"
    )
    plan = make_plan(recipe)
    read: list[int] = []
    hook = pipeline.text_encoder.register_forward_hook(lambda module, args, output: read.append(1))
    renderer = Renderer(pipeline, recipe)
    after = []
    try:
        for cell in list(plan.cells())[:2]:
            for batch in plan.batches(cell):
                renderer.render(batch)
                after.append(len(read))
    finally:
        hook.remove()
    # Two batches of each prompt: the first of each encodes it, and the very first the empty prompt
    # too.
    assert len(after) == 4
    assert after == [2, 2, 3, 3]


def test_a_batch_is_never_larger_than_the_recipes(pipeline: Any, make_recipe: MakeRecipe) -> None:
    renderer = Renderer(pipeline, make_recipe())
    for count in (0, 5):
        with pytest.raises(ValueError, match="expected 1 to 4"):
            renderer.render(spread_samples(make_recipe(), 8)[:count])


def test_a_picture_without_finite_numbers_is_none_and_its_neighbours_stay(
    make_recipe: MakeRecipe,
) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    recipe = make_recipe(SMALL)
    samples = spread_samples(recipe)
    whole = Renderer(pipeline, recipe).render(samples)
    pipeline.vae.decoder.register_forward_hook(lambda module, args, output: _spoiled(output, 1))
    images = Renderer(pipeline, recipe).render(samples)
    assert [image is None for image in images] == [False, True, False, False]
    for index in (0, 2, 3):
        np.testing.assert_array_equal(images[index], whole[index])


def _spoiled(pictures: torch.Tensor, index: int) -> torch.Tensor:
    pictures = pictures.clone()
    pictures[index] = float("nan")
    return pictures


def test_a_pipeline_of_another_kind_is_refused(make_recipe: MakeRecipe) -> None:
    nothing: Any = None
    other = diffusers.DDPMPipeline(unet=nothing, scheduler=diffusers.DDPMScheduler())
    with pytest.raises(
        UserError, match=r"is a pipeline DDPMPipeline, .*; expected one of Stable Diffusion"
    ):
        Renderer(other, make_recipe())


@pytest.fixture
def with_a_word_more() -> Any:
    """Return a pipeline whose tokenizer has a word without an embedding in the text encoder."""
    pipeline = load_pipeline("lab:sd", dtype="float32")
    pipeline.tokenizer.add_tokens(["zyzzyva"])
    return pipeline


def test_a_word_without_an_embedding_is_reported_before_it_is_looked_up(
    with_a_word_more: Any, make_recipe: MakeRecipe
) -> None:
    rows = with_a_word_more.text_encoder.get_input_embeddings().num_embeddings
    renderer = Renderer(with_a_word_more, make_recipe())
    assert renderer.encode("a photo of a bag")
    with pytest.raises(
        RunFailure,
        match=rf"'lab:sd': its tokenizer gives the id {rows}, and its text encoder has {rows}"
        r" embeddings",
    ):
        renderer.encode("a photo of a zyzzyva")
    side = TextSide(with_a_word_more, slots=2, vectors=1)
    assert [ids.max() >= rows for ids in side.ids_of("a photo of a {class}", 1)] == [True], (
        "the places of class tokens"
    )
    assert side.mean_of_words("bag")
    for look in (
        lambda: side.mean_of_words("zyzzyva"),
        lambda: side.ids_of("a {class} beside a zyzzyva", 0),
    ):
        with pytest.raises(RunFailure, match=f"its text encoder has {rows} embeddings"):
            look()


def test_what_a_text_encoder_cannot_do_is_reported_in_words(make_recipe: MakeRecipe) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    pipeline.tokenizer.model_max_length = 5_000  # longer than the encoder has positions
    with pytest.raises(RunFailure, match="'lab:sd': cannot encode a prompt"):
        Renderer(pipeline, make_recipe()).render(spread_samples(make_recipe()))


@pytest.fixture(scope="module")
def sd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(0)
    folder: Path = tmp_path_factory.mktemp("sd2")
    stable_diffusion_2().save_pretrained(folder)
    return load_pipeline(f"local-dir:{folder}", dtype="float32")


def drawn(pipeline: Any, make_recipe: MakeRecipe, *changes: str) -> bytes:
    recipe = make_recipe(*changes)
    plan = make_plan(recipe)
    (image,) = Renderer(pipeline, recipe).render(list(plan.samples(next(plan.cells())))[:1])
    assert image is not None
    return image.tobytes()


def test_an_option_changes_what_is_drawn_as_the_call_says(sd: Any, make_recipe: MakeRecipe) -> None:
    plain = drawn(sd, make_recipe)
    assert drawn(sd, make_recipe, "generator.options={eta: 0.0}") == plain, "as it is by default"
    assert drawn(sd, make_recipe, "generator.options={guidance_rescale: 0.7}") != plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{guidance_rescal: 0.7}", "did you mean 'guidance_rescale'?"),
        ("{guidance_rescale: high}", "expected a number"),
        ("{height: 64}", "generator.size"),
        ("{ip_adapter_image: 'https://example.org/x.png'}", "set for each batch"),
    ],
)
def test_whoever_renders_is_refused_what_the_call_does_not_take(
    sd: Any, make_recipe: MakeRecipe, options: str, message: str
) -> None:
    """Options are checked at rendering too: a dataset of a stranger brings its own."""
    with pytest.raises(UserError) as caught:
        Renderer(sd, make_recipe(f"generator.options={options}"))
    assert message in str(caught.value)


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
        return diffusers.ImagePipelineOutput(
            images=((noise + torch.rand(1, height, width, 3)) / 2).numpy()
        )


def samples_of(recipe: Recipe) -> list[Sample]:
    plan = make_plan(recipe)
    return [sample for shard in plan.shards for sample in shard.samples(plan)][:3]


@pytest.mark.parametrize("seeds", [False, True])
def test_what_was_drawn_before_changes_no_picture(
    seeds: bool, make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe("generator.size=32")
    renderer = Renderer(Lumina2Pipeline(seeds), recipe)
    samples = samples_of(recipe)
    torch.manual_seed(1)
    first: list[Any] = renderer.render(samples)
    torch.manual_seed(2)
    torch.rand(7)
    again = renderer.render(samples[::-1])[::-1]
    for image, redrawn in zip(first, again, strict=True):
        np.testing.assert_array_equal(image, redrawn)
    reseeded: list[Any] = renderer.render([replace(samples[0], seed=samples[0].seed + 1)])
    assert not np.array_equal(reseeded[0], first[0])


@pytest.mark.parametrize("seeds", [False, True])
def test_the_global_state_is_left_as_it_was(
    seeds: bool, make_recipe: Callable[..., Recipe]
) -> None:
    recipe = make_recipe("generator.size=32")
    before = torch.get_rng_state()
    Renderer(Lumina2Pipeline(seeds), recipe).render(samples_of(recipe))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError), own_randomness(1, CPU):
        torch.rand(3)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before), "also after an error"


RNG = np.random.default_rng(7)


def conditioned_samples(recipe: Recipe, shift: str, count: int = 3) -> list[Sample]:
    plan = make_plan(recipe)
    return [s for shard in plan.shards for s in shard.samples(plan) if s.shift == shift][:count]


def embeddings_of(recipe: Recipe, width: int, *shifts: str) -> ImageEmbeddings:
    def unit() -> Any:
        vector = RNG.normal(size=width)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    vectors = {shift: {cls.id: unit() for cls in recipe.classes} for shift in shifts}
    return ImageEmbeddings(vectors, dict.fromkeys(shifts, "{class_id}"), width)


@pytest.fixture(scope="module")
def with_adapter() -> Iterator[tuple[Any, Any]]:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    yield pipeline, load_adapter(pipeline, "lab:decoder")


def test_neighbours_of_either_kind_change_no_bit(
    with_adapter: tuple[Any, Any], pipeline: Any, make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(SMALL)
    loaded, adapter = with_adapter
    base = conditioned_samples(recipe, "base")
    red = [replace(s, prompt=None) for s in conditioned_samples(recipe, "red")]
    plain = Renderer(pipeline, recipe).render(base)
    renderer = Renderer(loaded, recipe, embeddings_of(recipe, 128, "red"), adapter)
    drawn: list[Any] = renderer.render(red)
    assert_same_images(renderer.render(base), plain)
    assert_same_images(
        renderer.render([base[0], red[2], base[1], red[0]]),
        [plain[0], drawn[2], plain[1], drawn[0]],
    )
    assert_same_images(renderer.render([red[1], red[1]]), [drawn[1], drawn[1]])
    assert np.abs(drawn[0].astype(int) - drawn[1].astype(int)).max() > 30, (
        "vectors decide the picture"
    )


def test_pixels_are_those_of_a_plain_call_for_one_picture(
    with_adapter: tuple[Any, Any], make_recipe: MakeRecipe
) -> None:
    recipe = make_recipe(SMALL, "generator.batch_size=1")
    sample = conditioned_samples(recipe, "red", 1)[0]
    embeddings = embeddings_of(recipe, 128, "red")
    image = Renderer(with_adapter[0], recipe, embeddings, with_adapter[1]).render([sample])[0]
    plain: Any = diffusers.StableDiffusionPipeline.from_pretrained(
        str(LAB_WEIGHTS / "sd"), torch_dtype=torch.float32
    )
    plain.load_ip_adapter(
        str(LAB_WEIGHTS / "decoder"),
        subfolder="",
        weight_name="ip_adapter.safetensors",
        image_encoder_folder=None,
    )
    plain.set_progress_bar_config(disable=True)
    vector = torch.from_numpy(embeddings.of("red", sample.class_id))[None, None]
    drawn = plain(
        prompt=[sample.prompt], ip_adapter_image_embeds=[torch.cat([torch.zeros_like(vector), vector])],
        generator=[torch.Generator().manual_seed(sample.seed)], num_inference_steps=2, guidance_scale=3.0,
        output_type="np", height=32, width=32,
    )  # fmt: skip
    expected = (drawn.images[0] * 255).round().astype(int)
    assert image is not None and np.abs(image.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("make", "prompted", "guidance"),
    [(stable_unclip, True, 3.0), (kandinsky, False, 3.0), (kandinsky, False, 1.0)],
)
def test_models_that_take_embeddings_draw_each_picture_alone(
    make: Callable[[], Any],
    prompted: bool,
    guidance: float,
    make_recipe: MakeRecipe,
    tmp_path: Path,
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
    samples = [*conditioned_samples(recipe, "base", 2), *conditioned_samples(recipe, "red", 2)]
    drawn: list[Any] = renderer.render(samples)
    assert all(image is not None and image.shape == (32, 32, 3) for image in drawn)
    assert_same_images(renderer.render([samples[3], samples[0]]), [drawn[3], drawn[0]])
    assert_same_images(renderer.render([samples[2]] * 4), [drawn[2]] * 4)
    other: list[Any] = Renderer(
        pipeline, recipe, embeddings_of(recipe, width, "base", "red")
    ).render(samples)
    assert not np.array_equal(other[0], drawn[0]), "another vector is another picture"


@pytest.mark.parametrize(
    ("make", "guidance"), [(stable_diffusion_1, 1.0), (stable_diffusion_xl, 3.0)]
)
def test_an_adapter_of_either_architecture_draws_each_picture_alone(
    make: Callable[[], Any], guidance: float, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = make()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "adapter").mkdir()
    save_file(ip_adapter(model.unet), tmp_path / "adapter" / "ip_adapter.safetensors")
    pipeline = load_pipeline(f"local-dir:{tmp_path / 'model'}", dtype="float32")
    recipe = make_recipe(f"generator.guidance={guidance}", SMALL)
    base = conditioned_samples(recipe, "base")
    red = conditioned_samples(recipe, "red")
    plain = Renderer(pipeline, recipe).render(base)
    adapter = load_adapter(pipeline, f"local-dir:{tmp_path / 'adapter'}")
    renderer = Renderer(pipeline, recipe, embeddings_of(recipe, EMBEDDING, "red"), adapter)
    drawn: list[Any] = renderer.render(red)
    assert_same_images(
        renderer.render([red[1], base[2], base[0], red[0]]),
        [drawn[1], plain[2], plain[0], drawn[0]],
    )
    assert_same_images(renderer.render([red[2]] * 4), [drawn[2]] * 4)
    other: list[Any] = Renderer(
        pipeline, recipe, embeddings_of(recipe, EMBEDDING, "red"), adapter
    ).render(red)
    assert not np.array_equal(other[0], drawn[0]), "another vector is another picture"


TWO = (
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag,"
    " source_label: 8}]"
)
DRAWN = np.random.default_rng(3)


def recipe_of(file: Path, *changes: str) -> Recipe:
    drawn = f"prompts.shifts.red.embedding={{file: {file}, key: '{{class_id}}_hard'}}"
    return load_recipe("wardrobe-mini", [TWO, "tokens=null", drawn, *changes])


def vectors(*keys: str, width: int = 16) -> dict[str, Any]:
    return {key: DRAWN.normal(size=width).astype(np.float32) for key in keys}


def write(path: Path, tensors: dict[str, Any]) -> Path:
    path.write_bytes(save(tensors))
    return path


def problems(recipe: Recipe) -> str:
    refused = problems_of(read_image_embeddings, recipe)
    return "\n".join(refused)


def test_each_cell_gets_its_own_vector_and_no_other_cell_any(tmp_path: Path) -> None:
    stored = vectors("05_hard", "08_hard", "unused")
    embeddings = read_image_embeddings(recipe_of(write(tmp_path / "v.safetensors", stored)))
    assert embeddings is not None and embeddings.width == 16
    np.testing.assert_array_equal(embeddings.of("red", "08"), stored["08_hard"])
    assert embeddings.of("base", "08") is None and embeddings.of("red", "00") is None
    assert read_image_embeddings(load_recipe("wardrobe-mini")) is None


def test_a_dataset_keeps_what_it_used_and_reads_it_back_as_pinned(tmp_path: Path) -> None:
    file = write(tmp_path / "v.safetensors", vectors("05_hard", "08_hard", "unused"))
    other = write(tmp_path / "w.safetensors", {"05_hard": np.ones(16, np.float32)})
    recipe = recipe_of(file, f"prompts.base.embedding={{file: {other}, key: 05_hard}}")
    embeddings = read_image_embeddings(recipe)
    assert embeddings is not None
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "recipe.yaml").write_text(recipe.portable_yaml)
    (dataset / "lock.json").write_text("{}")
    (dataset / "embeddings.safetensors").write_bytes(embeddings.content())
    assert set(load(embeddings.content())) == {"base", "red/05", "red/08"}
    again = read_image_embeddings(load_recipe(dataset))
    assert again is not None
    assert again.hashes() == embeddings.hashes() and again.content() == embeddings.content()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_of_any_width_is_read_as_torch_reads_it(
    tmp_path: Path, kind: torch.dtype
) -> None:
    stored = {
        key: torch.from_numpy(value).to(kind)
        for key, value in vectors("05_hard", "08_hard").items()
    }
    save_file(stored, tmp_path / "v.safetensors")
    embeddings = read_image_embeddings(recipe_of(tmp_path / "v.safetensors"))
    assert embeddings is not None
    np.testing.assert_array_equal(embeddings.of("red", "05"), stored["05_hard"].float().numpy())


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.full(16, np.nan, np.float32), "not finite"),
        (np.full(16, 1e300), "not finite"),
        (np.zeros(16, np.float32), "all zeros"),
        (np.ones((1, 16), np.float32), r"shape \[1, 16\], expected one vector"),
        (np.ones(16, np.int64), "I64"),
        (np.ones(0, np.float32), r"shape \[0\]"),
        (np.ones(70_000, np.float32), "at most 65,536"),
        (np.ones(17, np.float32), r"several widths: 17 .* and 16"),
    ],
)
def test_what_is_no_vector_is_reported_by_its_key(
    tmp_path: Path, tensor: Any, message: str
) -> None:
    file = write(tmp_path / "v.safetensors", {"05_hard": tensor, **vectors("08_hard")})
    with pytest.raises(UserError, match=message):
        read_image_embeddings(recipe_of(file))


def test_every_problem_is_reported_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    file = write(
        tmp_path / "v.safetensors",
        vectors("08_hart") | {"05_hard": np.full(16, np.inf, np.float32)},
    )
    message = problems(
        recipe_of(file, f"prompts.base.embedding={{file: {tmp_path / 'none.safetensors'}}}")
    )
    assert (
        "prompts.shifts.red.embedding: no '08_hard' in v.safetensors; did you mean '08_hart'?"
        in message
    )
    assert "'05_hard' in v.safetensors holds numbers that are not finite" in message
    assert "prompts.base.embedding.file" in message and "No such file" in message


def test_a_strangers_file_is_numbers_alone_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    (tmp_path / "empty").write_bytes(save({}))
    head = b'{"05_hard":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    (tmp_path / "lies").write_bytes(len(head).to_bytes(8, "little") + head)
    (tmp_path / "endless").write_bytes((2**62).to_bytes(8, "little") + b"{")
    os.mkfifo(tmp_path / "pipe")
    for name, message in {"pickle": "not a readable", "empty": "holds no vector", "lies": "not a readable",
                       "endless": "not a readable", "pipe": "is a pipe", ".": "is a folder"}.items():  # fmt: skip
        assert message in problems(recipe_of(tmp_path / name)), name
    assert not (tmp_path / "ran").exists()
    file = write(tmp_path / "v.safetensors", vectors("05_hard", "08_hard"))
    monkeypatch.setattr(image_embeddings, "MOST_BYTES", 100)
    assert "expected at most 100" in problems(recipe_of(file))


def test_equal_vectors_are_equal_bytes() -> None:
    stored = vectors("b", "a")
    assert embeddings_file(stored) == embeddings_file(dict(reversed(stored.items())))
