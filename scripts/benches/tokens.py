"""How much faster class tokens are learned together than the plain way, at equal loss; ratios of
one run.

- together: `generate.Inversion`, all classes in one batch, latents encoded once;
- plain:    the usual script: pipeline loaded once, one class at a time, batch 1, the image encoded
            at every step, an optimizer over the whole embedding matrix whose other rows are put
            back.

Both run the same steps, rate, templates, images and threads. The plain way is timed on a few of the
classes, since its time a class does not depend on how many there are. The two sets of tokens are
then compared by their loss on the same fixed draws (images, noise, times) of the same classes. With
more than ten classes a class is garment × pattern.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from benches import Page
from counterfoil.generate.tokens.inversion import (
    ClassToLearn,
    Inversion,
    TrainingImages,
    centred_square,
    plan_steps,
)
from counterfoil.lab.vocabulary import CLASSES, PATTERNS
from counterfoil.lab.world import render
from counterfoil.models.diffusion import load_pipeline, native_size
from counterfoil.recipe import LearnSettings
from lab_training.corpora import pretraining_scene
from results_page import table

TITLE = "Learning class tokens"
PARTS = ("speed",)
TEMPLATES = ("a photo of a {class}", "the photo of a {class}", "a photo of the {class}")
IMAGES = 200
EVALUATED = 96
# Those of each class, [1, width].
Vectors = dict[str, torch.Tensor]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how many classes are learned, and how."""
    parser.add_argument(
        "--classes", type=int, nargs="+", default=[10, 32], choices=range(1, 41), metavar="N"
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plain-classes", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Learn each number of classes by both ways."""
    torch.set_num_threads(options.threads)
    titles = [
        "Classes",
        "Threads",
        "One at a time",
        "Together",
        "Ratio",
        "Loss, one at a time",
        "Loss, together",
    ]
    opening = [
        f"`python scripts/bench.py tokens --steps {options.steps} --threads {options.threads}`, in"
        " one run."
    ]
    rows = []
    for count in options.classes:
        classes = classes_of(count)
        settings = LearnSettings(
            steps=options.steps, learning_rate=5e-3, templates=TEMPLATES, classes_in_flight=count
        )
        few = classes[: options.plain_classes]
        seconds, plain_tokens = plain(few, settings, options.device)
        own_seconds, own_tokens = together(classes, settings, options.device)
        alone = seconds / len(few)
        shared = own_seconds / count
        losses = [loss_of(tokens, few, options.device) for tokens in (plain_tokens, own_tokens)]
        cells = [
            count,
            options.threads,
            round(alone, 3),
            round(shared, 3),
            round(alone / shared, 2),
        ]
        rows.append([*cells, *(round(loss, 5) for loss in losses)])
        print(rows[-1], flush=True)
        yield Page(opening, {"speed": table(titles, rows, words=0)})


def classes_of(count: int) -> list[ClassToLearn]:
    """Return garments (up to ten), or garment × pattern, each with 200 training images of the
    wardrobe world."""

    def picture(label: int, pattern: str | None, number: int) -> Image.Image:
        scene = pretraining_scene(number * 10 + label, seed=71)
        if pattern is not None:
            scene = replace(scene, pattern=pattern, style="photo")
        return Image.fromarray(render(scene))

    made = []
    for index in range(count):
        label = index % 10
        pattern = None if count <= 10 else PATTERNS[index // 10]
        images = TrainingImages(IMAGES, partial(picture, label, pattern))
        made.append(ClassToLearn(f"{label}-{pattern or 'any'}", CLASSES[label], images))
    return made


def together(
    classes: list[ClassToLearn], settings: LearnSettings, device: str
) -> tuple[float, Vectors]:
    """Return the seconds, and the vectors [1, width] of each class, of learning all classes
    together."""
    inversion = Inversion(load_pipeline("lab:sd", dtype="float32", device=device), settings)
    started = time.perf_counter()
    learning = inversion.learn(classes)
    while True:
        try:
            next(learning)
        except StopIteration as end:
            learned = end.value
            break
    seconds = time.perf_counter() - started
    return seconds, {token.class_id: token.vectors[0] for token in learned}


def plain(
    classes: list[ClassToLearn], settings: LearnSettings, device: str
) -> tuple[float, Vectors]:
    """Return the same of the usual script, which learns one class after another."""
    pipeline, scheduler, side = loaded(device)
    tokenizer = pipeline.tokenizer
    encoder = pipeline.text_encoder
    tokens = {}
    started = time.perf_counter()
    tokenizer.add_tokens([f"<{cls.class_id}>" for cls in classes])
    encoder.resize_token_embeddings(len(tokenizer))
    for cls in classes:
        placeholder = f"<{cls.class_id}>"
        token_id = tokenizer.convert_tokens_to_ids(placeholder)
        matrix = encoder.get_input_embeddings().weight
        ids = tokenizer(cls.initial_words, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            matrix[token_id] = matrix[ids].mean(0)
        matrix.requires_grad_()
        kept = matrix.detach().clone()
        norm = matrix[token_id].detach().norm()
        others = torch.arange(len(matrix), device=matrix.device) != token_id
        optimizer = torch.optim.AdamW(
            [matrix], lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        schedule = plan_steps(settings, cls.class_id, cls.images.count, 1000)
        generator = torch.Generator().manual_seed(1)
        for step in range(settings.steps):
            pixels = centred_square(cls.images.image(int(schedule.rows[step, 0])), side)
            pixels = pixels[:, ::-1] if schedule.flips[step, 0] else pixels
            text = settings.templates[schedule.templates[step, 0]].replace("{class}", placeholder)
            levels = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
            with torch.no_grad():
                posterior = posterior_of(pipeline, levels, device)
            noise = torch.randn(posterior.mean.shape, generator=generator).to(device)
            latents = posterior.mean + posterior.std * noise
            states = states_of(pipeline, text, device)
            times = schedule.times[step]
            loss = denoising_loss(pipeline, scheduler, latents, states, times, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                matrix[others] = kept[others]
                matrix[token_id] *= norm / matrix[token_id].norm()
        tokens[cls.class_id] = matrix[token_id].detach().cpu()[None].clone()
        matrix.requires_grad_(False)
    return time.perf_counter() - started, tokens


def loss_of(tokens: Vectors, classes: list[ClassToLearn], device: str) -> float:
    """Return the mean loss of tokens over fixed draws, which are the same for all tokens."""
    placeholders = {cls.class_id: f"<{cls.class_id}>" for cls in classes}
    added = {placeholder: (tokens[class_id],) for class_id, placeholder in placeholders.items()}
    pipeline, scheduler, side = loaded(device, added)
    losses = []
    for cls in classes:
        rng = np.random.default_rng(5)
        generator = torch.Generator().manual_seed(5)
        rows = rng.integers(0, cls.images.count, EVALUATED)
        pixels = np.stack([centred_square(cls.images.image(int(row)), side) for row in rows])
        text = TEMPLATES[0].replace("{class}", placeholders[cls.class_id])
        times = rng.integers(0, 1000, EVALUATED)
        with torch.inference_mode():
            levels = torch.from_numpy(pixels).permute(0, 3, 1, 2)
            latents = posterior_of(pipeline, levels, device).mean
            states = states_of(pipeline, text, device).repeat(EVALUATED, 1, 1)
            loss = denoising_loss(pipeline, scheduler, latents, states, times, generator)
        losses.append(float(loss))
    return float(np.mean(losses))


def loaded(device: str, tokens: Any = None) -> tuple[Any, Any, int]:
    """Return the lab's pipeline, its scheduler of noise and its side in pixels."""
    from diffusers import DDPMScheduler

    pipeline: Any = load_pipeline("lab:sd", dtype="float32", device=device, tokens=tokens)
    return pipeline, DDPMScheduler.from_config(pipeline.scheduler.config), native_size(pipeline)


def posterior_of(pipeline: Any, levels: torch.Tensor, device: str) -> Any:
    """Encode levels of 255, [n, 3, side, side]."""
    return pipeline.vae.encode((levels.float() / 127.5 - 1).to(device)).latent_dist


def states_of(pipeline: Any, text: str, device: str) -> torch.Tensor:
    numbers = pipeline.tokenizer(text, padding="max_length", truncation=True, return_tensors="pt")
    return pipeline.text_encoder(numbers.input_ids.to(device))[0]


def denoising_loss(
    pipeline: Any,
    scheduler: Any,
    latents: torch.Tensor,
    states: torch.Tensor,
    times: np.ndarray,
    generator: torch.Generator,
) -> torch.Tensor:
    """Return the loss of latents that are not scaled, with noise that is drawn."""
    clean = latents * pipeline.vae.config.scaling_factor
    noise = torch.randn(clean.shape, generator=generator).to(clean.device)
    t = torch.from_numpy(times).to(clean.device)
    predicted = pipeline.unet(scheduler.add_noise(clean, noise, t), t, states).sample
    return F.mse_loss(predicted, scheduler.get_velocity(clean, noise, t))
