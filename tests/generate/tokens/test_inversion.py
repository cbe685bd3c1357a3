"""Textual inversion: a token does not depend on its neighbours, only rows are learned, and the
plain way agrees."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

import warm
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.tokens.class_tokens import read_token_file
from counterfoil.generate.tokens.inversion import (
    ClassToLearn,
    Inversion,
    TrainingImages,
    centred_square,
    class_seed,
    plan_steps,
)
from counterfoil.generate.tokens.learn_tokens import (
    LearningTask,
    TokenProgress,
    TokenResult,
    learn_tokens,
)
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.models.diffusion import load_pipeline
from counterfoil.progress import listening
from counterfoil.recipe import LearnSettings, load_recipe
from driven import done_of
from miniature_pipelines import stable_diffusion_1, stable_diffusion_xl
from support.refusals import problems_of
from tiny_builds import CLASSES, command, published, tiny

NAMES = {"00": "t-shirt", "05": "sandal", "06": "shirt", "08": "bag"}


def _class(class_id: str, images: int = 6) -> ClassToLearn:
    def picture(number: int) -> Image.Image:
        return Image.fromarray(render(wardrobe_scene("train", number * 10 + int(class_id))))

    return ClassToLearn(class_id, NAMES[class_id], TrainingImages(images, picture))


def _settings(**changes: Any) -> LearnSettings:
    values: dict[str, Any] = {
        "steps": 3,
        "batch_size": 2,
        "learning_rate": 1e-2,
        "classes_in_flight": 3,
        "seed": 4,
    }
    return LearnSettings(**values | changes)


def _pipeline(make: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    pipeline = make()
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    return pipeline


@pytest.mark.parametrize(("make", "vectors"), [(stable_diffusion_1, 2), (stable_diffusion_xl, 1)])
def test_a_token_is_the_same_to_the_bit_whoever_shares_its_batch(
    make: Callable[[], Any], vectors: int
) -> None:
    inversion = Inversion(_pipeline(make), _settings(vectors=vectors))
    alone = done_of(inversion.learn([_class("06")]))[0]
    first = done_of(inversion.learn([_class("06"), _class("00")]))[0]
    last = done_of(inversion.learn([_class("08"), _class("05"), _class("06")]))[2]
    assert alone.failure is None
    assert len(alone.vectors) == len(inversion.text.parts)
    for other in (first, last):
        assert other.loss == alone.loss
        for vector, same in zip(alone.vectors, other.vectors, strict=True):
            assert vector.shape[0] == vectors
            assert torch.equal(vector, same)
    start = inversion.start("shirt")
    assert all(
        (vector - before).norm() > 1e-3 for vector, before in zip(alone.vectors, start, strict=True)
    )


def test_no_weight_of_the_pipeline_changes(pipeline_copy: Any) -> None:
    parts = {
        name: part
        for name, part in pipeline_copy.components.items()
        if isinstance(part, torch.nn.Module)
    }
    before = {
        name: {k: v.clone() for k, v in part.state_dict().items()} for name, part in parts.items()
    }
    done_of(Inversion(pipeline_copy, _settings()).learn([_class("05")]))
    for name, part in parts.items():
        after = {
            key.replace("token_embedding.table.", "token_embedding."): v
            for key, v in part.state_dict().items()
        }
        assert after.keys() == before[name].keys()
        assert all(torch.equal(after[key], value) for key, value in before[name].items())
        assert not [p for p in part.parameters() if p.grad is not None]


@pytest.fixture
def pipeline_copy() -> Any:
    from counterfoil.models.diffusion import load_pipeline

    return load_pipeline("lab:sd", dtype="float32")


def test_the_norm_is_pinned_only_where_the_recipe_says_so(pipeline_copy: Any) -> None:
    norms = {}
    inversion = Inversion(pipeline_copy, _settings(pin_norm=True))
    start = inversion.start("bag")[0].norm()
    norms["pinned"] = done_of(inversion.learn([_class("08")]))[0].vectors[0].norm()
    inversion.settings = _settings(pin_norm=False)
    norms["free"] = done_of(inversion.learn([_class("08")]))[0].vectors[0].norm()
    torch.testing.assert_close(norms["pinned"], start)
    assert abs(norms["free"] - start) > 1e-3


def test_the_plain_way_learns_the_same_token(pipeline_copy: Any) -> None:
    """Compare with the usual script: one class, the whole embedding matrix as parameter, images
    encoded each step."""
    from diffusers import DDPMScheduler

    settings = _settings(
        pin_norm=False,
        classes_in_flight=2,
        batch_size=1,
        templates=("a photo of a {class}",),
        flip=0,
    )
    cls = _class("05")
    tokenizer, encoder, vae, unet = (
        getattr(pipeline_copy, n) for n in ("tokenizer", "text_encoder", "vae", "unet")
    )
    ids = tokenizer("sandal", add_special_tokens=False)["input_ids"]
    tokenizer.add_tokens(["<plain>"])
    encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    index = tokenizer.convert_tokens_to_ids("<plain>")
    matrix = encoder.get_input_embeddings().weight
    with torch.no_grad():
        matrix[index] = matrix[ids].mean(0)
    matrix.requires_grad_()
    others = torch.arange(len(matrix)) != index
    initial = matrix.detach().clone()
    optimizer = torch.optim.AdamW(
        [matrix], lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    scheduler: Any = DDPMScheduler.from_config(pipeline_copy.scheduler.config)
    schedule = plan_steps(settings, cls.class_id, cls.images.count, 1000)
    generator = torch.Generator().manual_seed(class_seed(settings.seed, cls.class_id) ^ 1)
    numbers = tokenizer("a photo of a <plain>", padding="max_length", return_tensors="pt").input_ids
    for step in range(settings.steps):
        pixels = centred_square(cls.images.image(int(schedule.rows[step, 0])), 64)
        image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None] / 127.5 - 1
        with torch.no_grad():
            posterior = vae.encode(image).latent_dist
        clean = posterior.mean + posterior.std * torch.randn(
            posterior.mean.shape, generator=generator
        )
        clean = clean * vae.config.scaling_factor
        noise = torch.randn(clean.shape, generator=generator)
        t: Any = torch.from_numpy(schedule.times[step])
        predicted = unet(scheduler.add_noise(clean, noise, t), t, encoder(numbers)[0]).sample
        loss = F.mse_loss(predicted, scheduler.get_velocity(clean, noise, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            matrix[others] = initial[others]
    expected = matrix[index].detach()

    from counterfoil.models.diffusion import load_pipeline

    learned = done_of(Inversion(load_pipeline("lab:sd", dtype="float32"), settings).learn([cls]))[
        0
    ].vectors[0][0]
    assert F.cosine_similarity(learned, expected, dim=0) > 0.9999
    torch.testing.assert_close(learned, expected, atol=2e-3, rtol=0)


class Faint(Inversion):
    """Learns from a loss that is as small as a mean over large latents makes its gradients."""

    def _losses(self, *arguments: Any) -> torch.Tensor:  # pyrefly: ignore[bad-override]
        return super()._losses(*arguments) * 2.0**-12


def test_small_gradients_are_not_lost_in_float16() -> None:
    by_type = []
    for dtype in (torch.float32, torch.float16):
        learner = Faint(
            _pipeline(stable_diffusion_1).to(dtype=dtype), _settings(pin_norm=False, steps=6)
        )
        start = learner.start("bag")[0]
        by_type.append(done_of(learner.learn([_class("08")]))[0].vectors[0] - start)
    exact, half = by_type
    assert (half - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("size", [(64, 64), (91, 64), (64, 90), (37, 52)])
def test_training_images_are_cut_and_resized_as_the_papers_code_does(size: tuple[int, int]) -> None:
    """Compare with `TextualInversionDataset` of MadryLab/dataset-interfaces at e4824f7d, which cuts
    an array."""
    image = Image.fromarray(np.random.default_rng(7).integers(0, 256, (*size, 3), np.uint8))
    pixels = np.array(image)
    height, width = pixels.shape[:2]
    crop = min(height, width)
    cut = pixels[
        (height - crop) // 2 : (height + crop) // 2, (width - crop) // 2 : (width + crop) // 2
    ]
    expected = Image.fromarray(cut).resize((48, 48), resample=Image.Resampling.BICUBIC)
    assert np.array_equal(np.array(centred_square(image, 48)), np.array(expected))
    if size == (64, 64):
        assert np.array_equal(np.array(centred_square(image, 64)), pixels)


def test_draws_depend_on_seed_and_class_alone_and_show_every_image() -> None:
    settings = _settings(steps=9, batch_size=2)
    draws, same = (plan_steps(settings, "00", 6, 1000) for _ in range(2))
    other = plan_steps(settings, "01", 6, 1000)
    reseeded = plan_steps(_settings(steps=9, seed=5), "00", 6, 1000)
    np.testing.assert_array_equal(draws.rows, same.rows)
    assert (draws.times != other.times).any()
    assert (draws.times != reseeded.times).any()
    counts = np.bincount(draws.rows.ravel(), minlength=6)
    assert counts.min() == counts.max() == 3
    assert not plan_steps(_settings(flip=0), "00", 6, 1000).flips.any()
    assert plan_steps(_settings(flip=1), "00", 6, 1000).flips.all()


def test_a_loss_that_is_no_number_is_recorded(pipeline_copy: Any) -> None:
    with torch.no_grad():
        pipeline_copy.unet.conv_out.bias[0] = float("nan")  # as damaged weights are
    inversion = Inversion(pipeline_copy, _settings(classes_in_flight=2))
    learned = done_of(inversion.learn([_class("05"), _class("08")]))
    assert [token.class_id for token in learned] == ["05", "08"]
    assert all("not a number" in (token.failure or "") for token in learned)


def test_a_word_without_sub_tokens_is_refused(pipeline_copy: Any) -> None:
    with pytest.raises(ValueError, match="tokenises to nothing"):
        Inversion(pipeline_copy, _settings()).start("  ")


def test_every_unreadable_training_image_is_named(pipeline_copy: Any) -> None:
    def picture(number: int) -> Image.Image:
        if number in (1, 4):
            raise UserError(f"row {number}: unreadable image")
        return _class("05").images.image(number)

    inversion = Inversion(pipeline_copy, _settings(steps=6))
    with pytest.raises(UserError) as refused:
        done_of(inversion.learn([ClassToLearn("05", "sandal", TrainingImages(6, picture))]))
    assert set(refused.value.problems) == {"row 1: unreadable image", "row 4: unreadable image"}


# Tokens learned for a recipe: the same bytes however many workers and however often killed;
# refusals; in a build.


OWN_SIZE = "generator.size=null"
LEARN = (
    "tokens={path: null, learn: {steps: 3, batch_size: 1, learning_rate: 1.0e-2,"
    " classes_in_flight: 2}}"
)
BAG = "source.classes=[{id: '08', name: bag, source_label: 8}]"
LEARNED = {"00": "t-shirt", "05": "sandal", "08": "bag"}


def learn(out: Path, *changes: str, workers: int = 1) -> TokenResult:
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN, *changes])
    return learn_tokens(recipe, out, device="cpu", workers=workers)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learn the tokens in this process without a break; tests only read the folder."""
    out = tmp_path_factory.mktemp("learned") / "tokens"
    heard: list[TokenProgress] = []
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN])
    with listening(heard.append):
        result = learn_tokens(recipe, out, device="cpu", workers=1)
    assert set(result.losses) == set(result.learned) == set(LEARNED)
    assert (heard[-1].classes_done, heard[-1].steps_done, heard[-1].steps) == (3, 6, 6)
    return out


def test_files_are_what_diffusers_loads(learned: Path) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    before = {
        name: pipeline.tokenizer(name, add_special_tokens=False)["input_ids"]
        for name in LEARNED.values()
    }
    for class_id, name in LEARNED.items():
        pipeline.load_textual_inversion(str(learned / f"{class_id}.safetensors"))
        index = pipeline.tokenizer.convert_tokens_to_ids(f"<{name}-{class_id}>")
        weight = pipeline.text_encoder.get_input_embeddings().weight
        token = read_token_file(learned / f"{class_id}.safetensors")
        assert torch.equal(weight[index], token.vectors[0][0])
        start = weight[before[name]].mean(0)
        torch.testing.assert_close(weight[index].norm(), start.norm())
        assert (weight[index] - start).norm() > 1e-3


def test_the_manifest_tells_how_they_were_made(learned: Path) -> None:
    manifest = json.loads((learned / "manifest.json").read_text())
    assert manifest["settings"]["steps"] == 3
    assert manifest["source"]["dataset"] == "lab:wardrobe"
    assert manifest["source"]["split"] == "train"
    assert manifest["generator"]["sha256"]
    assert manifest["classes"]["05"]["images"] == 800
    assert (
        manifest["classes"]["05"]["loss"]
        == read_token_file(learned / "05.safetensors").notes["loss"]
    )


def test_workers_and_groups_change_no_byte(learned: Path, tmp_path: Path) -> None:
    learn(tmp_path / "two", workers=2)
    assert published(tmp_path / "two") == published(learned)
    # One class alone, in a group that is padded, is the class among others.
    learn(tmp_path / "one", BAG)
    assert (tmp_path / "one/08.safetensors").read_bytes() == (
        learned / "08.safetensors"
    ).read_bytes()


def test_a_killed_run_goes_on_and_ends_the_same(learned: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokens"
    settings = [word for change in (CLASSES, LEARN) for word in ("--set", change)]
    words, environment = command(
        "tokens", "wardrobe-mini", "--out", str(out), "--workers", "1", *settings
    )
    with warm.start(words, environment) as process:
        while process.poll() is None and not (out / "00.safetensors").exists():
            time.sleep(0.01)
        process.kill()
    # as where it is killed amid a file
    (out / "08.safetensors.1.cf.tmp").write_bytes(b"half of one")
    first = (out / "00.safetensors").stat().st_mtime_ns
    result = learn(out)
    assert (out / "00.safetensors").stat().st_mtime_ns == first
    assert "00" not in result.learned
    assert published(out) == published(learned)


def test_two_text_encoders_learn(tmp_path: Path) -> None:
    torch.manual_seed(3)
    stable_diffusion_xl().save_pretrained(str(tmp_path / "xl"))
    model = f"generator.model=local-dir:{tmp_path / 'xl'}"
    learn(tmp_path / "tokens", model, "tokens.learn.vectors=2", BAG)
    token = read_token_file(tmp_path / "tokens/08.safetensors")
    assert [part.shape[0] for part in token.vectors] == [2, 2]
    pipeline = load_pipeline(
        f"local-dir:{tmp_path / 'xl'}", tokens={token.placeholder: token.vectors}
    )
    for suffix, vectors in zip(("", "_2"), token.vectors, strict=True):
        weight = getattr(pipeline, f"text_encoder{suffix}").get_input_embeddings().weight
        index = getattr(pipeline, f"tokenizer{suffix}").convert_tokens_to_ids(token.placeholder)
        assert torch.equal(weight[index], vectors[0])


def test_a_build_learns_once_and_sends_the_tokens_along(learned: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    settings = (LEARN, OWN_SIZE, "samples.candidates=1", "prompts.shifts={}")
    tiny(out, *settings)
    files = published(out)
    for name in (*(f"{class_id}.safetensors" for class_id in LEARNED), "manifest.json"):
        assert files[f"tokens/{name}"] == (learned / name).read_bytes()
    # Made again without what was kept for resuming, it learns nothing and changes nothing.
    shutil.rmtree(out / ".counterfoil")
    tiny(out, *settings)
    assert not (out / ".counterfoil/tokens").exists()
    assert published(out) == files
    problems = problems_of(tiny, out, *settings, "tokens.learn.steps=4")
    assert "settings.steps: 3 there, 4 here" in "\n".join(problems)


def test_other_settings_are_refused_in_the_same_folder(learned: Path) -> None:
    problems = problems_of(learn, learned, "tokens.learn.seed=9")
    assert "settings.seed: 0 there, 9 here" in "\n".join(problems)


def test_classes_that_cannot_be_learned_are_named_together(tmp_path: Path) -> None:
    two = (
        "source.classes=[{id: a, name: bag, source_label: 8}, {id: b, name: cape, source_label:"
        " 77}]"
    )
    with pytest.raises(
        UserError, match="'cape' has the source_label 77, and 'lab:wardrobe' has the labels 0 to 9"
    ):
        learn(tmp_path / "few", two)
    images = [{"bytes": None, "path": None}] * 4
    numbers = datasets.Dataset.from_dict({"image": images, "label": [8] * 4})
    numbers.cast_column("image", datasets.Image()).to_parquet(
        str(tmp_path / "numbers" / "train.parquet")
    )
    with pytest.raises(UserError, match=r"'b' \(cape\): 0 training images .*at least 4"):
        learn(tmp_path / "few", f"source={{dataset: {tmp_path}/numbers}}", two)
    with pytest.raises(UserError) as refused:
        learn(tmp_path / "few", "tokens.learn.min_images=801")
    assert len(refused.value.problems) == 3
    with pytest.raises(UserError, match="tokenises to nothing"):
        learn(tmp_path / "few", "tokens.learn.initial_word=' '")
    with pytest.raises(UserError, match="does not say how to learn"):
        learn_tokens(load_recipe("wardrobe-mini", ["tokens=null"]), tmp_path / "few")
    with pytest.raises(UserError, match="takes those of lab:tokens") as refused:
        learn_tokens(load_recipe("wardrobe-mini"), tmp_path / "few")
    assert "tokens={path: null, learn: {}}" in (refused.value.hint or "")
    assert not list((tmp_path / "few").glob("*.safetensors"))


def test_a_worker_of_another_stack_learns_nothing(learned: Path, tmp_path: Path) -> None:
    """Each worker compares its stack with the folder's, and is refused before it loads a model."""
    identity = json.loads((learned / "manifest.json").read_text())
    del identity["classes"]
    identity["stack"]["versions"]["torch"] = "1.0.0"
    recipe = load_recipe("wardrobe-mini", [CLASSES, LEARN])
    work = LearningTask(recipe, tmp_path, "cpu", identity)
    with pytest.raises(UserError) as refused:
        list(LocalEngine().run(work, [["00"], ["05"]]))
    assert str(tmp_path) in refused.value.problems[0]
    assert any('versions.torch: "1.0.0" there' in line for line in refused.value.problems)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_no_number_leaves_no_token(tmp_path: Path) -> None:
    damaged = load_pipeline("lab:sd", dtype="float32")
    with torch.no_grad():
        damaged.unet.conv_out.bias[0] = float("nan")
    damaged.save_pretrained(str(tmp_path / "model"))
    with pytest.raises(RunFailure) as failed:
        learn(tmp_path / "tokens", f"generator.model=local-dir:{tmp_path / 'model'}")
    assert [
        line
        for line in failed.value.problems
        if "class '05' has no token: the loss was not a number" in line
    ]
    assert not list((tmp_path / "tokens").glob("*.safetensors"))
    manifest = json.loads((tmp_path / "tokens/manifest.json").read_text())
    assert manifest["classes"]["05"] == {"failed": "the loss was not a number at step 1"}
