"""Textual inversion: a token does not depend on its neighbours, only rows are learned, and the plain way agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from counterfoil.errors import UserError
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.recipe import LearnSettings
from counterfoil.tokens.inversion import ClassToLearn, Inversion, TrainingImages, centred_square, class_seed, plan_steps
from driven import done_of
from miniature_pipelines import stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl

NAMES = {"00": "t-shirt", "05": "sandal", "06": "shirt", "08": "bag"}


def _class(class_id: str, images: int = 6) -> ClassToLearn:
    def picture(number: int) -> Image.Image:
        return Image.fromarray(render(wardrobe_scene("train", number * 10 + int(class_id))))

    return ClassToLearn(class_id, NAMES[class_id], TrainingImages(images, picture))


def _settings(**changes: Any) -> LearnSettings:
    values: dict[str, Any] = {"steps": 3, "batch_size": 2, "learning_rate": 1e-2, "classes_in_flight": 3, "seed": 4}
    return LearnSettings(**values | changes)


def _pipeline(make: Callable[[], Any]) -> Any:
    torch.manual_seed(3)
    pipeline = make()
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    return pipeline


@pytest.mark.parametrize("make", [stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl])
@pytest.mark.parametrize("vectors", [1, 2])
def test_a_token_is_the_same_to_the_bit_whoever_shares_its_batch(make: Callable[[], Any], vectors: int) -> None:
    inversion = Inversion(_pipeline(make), _settings(vectors=vectors))
    alone = done_of(inversion.learn([_class("06")]))[0]
    first, last = (
        done_of(inversion.learn([_class("06"), _class("00")]))[0],
        done_of(inversion.learn([_class("08"), _class("05"), _class("06")]))[2],
    )
    assert alone.failure is None
    assert len(alone.vectors) == len(inversion.text.parts)
    for other in (first, last):
        assert other.loss == alone.loss
        for own, same in zip(alone.vectors, other.vectors, strict=True):
            assert own.shape[0] == vectors
            assert torch.equal(own, same)
    start = inversion.start("shirt")
    assert all((own - before).norm() > 1e-3 for own, before in zip(alone.vectors, start, strict=True))


def test_no_weight_of_the_pipeline_changes(pipeline_copy: Any) -> None:
    parts = {name: part for name, part in pipeline_copy.components.items() if isinstance(part, torch.nn.Module)}
    before = {name: {k: v.clone() for k, v in part.state_dict().items()} for name, part in parts.items()}
    done_of(Inversion(pipeline_copy, _settings()).learn([_class("05")]))
    for name, part in parts.items():
        after = {key.replace("token_embedding.table.", "token_embedding."): v for key, v in part.state_dict().items()}
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
    """One class, the whole embedding matrix as a parameter, images encoded at every step: the usual script."""
    from diffusers import DDPMScheduler

    settings = _settings(pin_norm=False, classes_in_flight=2, batch_size=1, templates=("a photo of a {class}",), flip=0)
    cls = _class("05")
    tokenizer, encoder, vae, unet = (getattr(pipeline_copy, n) for n in ("tokenizer", "text_encoder", "vae", "unet"))
    ids = tokenizer("sandal", add_special_tokens=False)["input_ids"]
    tokenizer.add_tokens(["<plain>"])
    encoder.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    place = tokenizer.convert_tokens_to_ids("<plain>")
    matrix = encoder.get_input_embeddings().weight
    with torch.no_grad():
        matrix[place] = matrix[ids].mean(0)
    matrix.requires_grad_()
    others, kept = torch.arange(len(matrix)) != place, matrix.detach().clone()
    optimizer = torch.optim.AdamW([matrix], lr=settings.learning_rate, weight_decay=settings.weight_decay)
    scheduler: Any = DDPMScheduler.from_config(pipeline_copy.scheduler.config)
    schedule = plan_steps(settings, cls.class_id, len(cls.images), 1000)
    generator = torch.Generator().manual_seed(class_seed(settings.seed, cls.class_id) ^ 1)
    numbers = tokenizer("a photo of a <plain>", padding="max_length", return_tensors="pt").input_ids
    for step in range(settings.steps):
        pixels = centred_square(cls.images.image(int(schedule.rows[step, 0])), 64)
        image = torch.from_numpy(np.array(pixels)).permute(2, 0, 1)[None] / 127.5 - 1
        with torch.no_grad():
            posterior = vae.encode(image).latent_dist
        clean = posterior.mean + posterior.std * torch.randn(posterior.mean.shape, generator=generator)
        clean = clean * vae.config.scaling_factor
        noise = torch.randn(clean.shape, generator=generator)
        t: Any = torch.from_numpy(schedule.times[step])
        predicted = unet(scheduler.add_noise(clean, noise, t), t, encoder(numbers)[0]).sample
        loss = F.mse_loss(predicted, scheduler.get_velocity(clean, noise, t))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            matrix[others] = kept[others]
    expected = matrix[place].detach()

    from counterfoil.models.diffusion import load_pipeline

    found = done_of(Inversion(load_pipeline("lab:sd", dtype="float32"), settings).learn([cls]))[0].vectors[0][0]
    assert F.cosine_similarity(found, expected, dim=0) > 0.9999
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)


def test_draws_depend_on_seed_and_class_alone_and_show_every_image() -> None:
    settings = _settings(steps=9, batch_size=2)
    one, same = (plan_steps(settings, "00", 6, 1000) for _ in range(2))
    other, reseeded = plan_steps(settings, "01", 6, 1000), plan_steps(_settings(steps=9, seed=5), "00", 6, 1000)
    np.testing.assert_array_equal(one.rows, same.rows)
    assert (one.times != other.times).any()
    assert (one.times != reseeded.times).any()
    counts = np.bincount(one.rows.ravel(), minlength=6)
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
