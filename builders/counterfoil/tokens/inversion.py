"""Textual inversion (Gal et al. 2022; as in Vendrow 2023) of many classes in one batch, every weight frozen.

Each class has its own rows, its own random numbers and its own part of the loss, and groups are padded to a
constant number of classes: a class's token is the same to the bit whoever shares its batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional as F

from counterfoil.engines import Doing
from counterfoil.errors import RunFailure
from counterfoil.models.diffusion import native_size
from counterfoil.tokens.conditioning import TextSide
from counterfoil.tokens.latents import LatentCache, TrainingImages

if TYPE_CHECKING:
    from counterfoil.recipe import LearnSettings

# The loss that is reported is the mean over this share of the steps, the last ones.
_LAST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class ClassToLearn:
    """A class, the words its token starts from, and its training images."""

    class_id: str
    initial_words: str
    images: TrainingImages


@dataclass(frozen=True, slots=True)
class LearnedToken:
    """The vectors [n, width] of a class for each text encoder, or the reason why there are none."""

    class_id: str
    vectors: tuple[torch.Tensor, ...]
    loss: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class _Schedule:
    """Which image, mirrored or not, under which template, at which time: each int64 [steps, batch]."""

    rows: np.ndarray
    flips: np.ndarray
    templates: np.ndarray
    times: np.ndarray


def class_seed(seed: int, class_id: str) -> int:
    """63 bits that depend on the recipe's seed and the class alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{class_id}".encode()).digest()[:8], "big") >> 1


def plan_steps(settings: LearnSettings, class_id: str, images: int, times: int) -> _Schedule:
    """The draws of a class: images in shuffled rounds, everything else independent."""
    rng = np.random.default_rng(class_seed(settings.seed, class_id))
    shape = (settings.steps, settings.batch_size)
    needed = settings.steps * settings.batch_size
    rounds = [rng.permutation(images) for _ in range(-(-needed // images))]
    return _Schedule(
        rows=np.concatenate(rounds)[:needed].reshape(shape),
        flips=rng.random(shape) < settings.flip,
        templates=rng.integers(0, len(settings.templates), shape),
        times=rng.integers(0, times, shape),
    )


class Inversion:
    """Learns tokens with one loaded pipeline, a group of classes at a time.

    The pipeline's tokenizers and text encoders are changed; do not render with it afterwards.
    """

    def __init__(self, pipeline: Any, settings: LearnSettings, rendered_size: int | None = None) -> None:
        from diffusers import DDPMScheduler

        self.pipeline = pipeline
        self.settings = settings
        self.device = pipeline.device
        self.side = settings.size or rendered_size or native_size(pipeline)
        self.text = TextSide(pipeline, settings.classes_in_flight, settings.vectors)
        self.noise: Any = DDPMScheduler.from_config(pipeline.scheduler.config)
        self.latents = LatentCache(pipeline.vae, self.side)
        if self.device.type == "cuda":
            # Recomputing activations costs a third more time and lets 8 classes at 768 px fit 24 GB.
            pipeline.unet.enable_gradient_checkpointing()

    def start(self, words: str) -> list[torch.Tensor]:
        """The vectors [vectors, width] that a token starts from, for each encoder. ValueError for no sub-token."""
        return [mean.repeat(self.settings.vectors, 1) for mean in self.text.mean_of_words(words)]

    def learn(self, group: Sequence[ClassToLearn]) -> Doing[int, list[LearnedToken]]:
        """The tokens of at most `classes_in_flight` classes. Yields 1 for each finished step of the group."""
        slots, count = self.settings.classes_in_flight, len(group)
        if not 0 < count <= slots:
            raise ValueError(f"{count} classes, expected 1 to {slots}")
        padded = [*group, *[group[-1]] * (slots - count)]
        try:
            vectors, losses = yield from self._optimise(padded)
        except torch.OutOfMemoryError as error:
            raise RunFailure(
                f"out of memory on {self.device} with {slots} classes in flight",
                "Set a smaller tokens.learn.classes_in_flight, batch_size or size.",
            ) from error
        learned = []
        last = max(1, round(self.settings.steps * _LAST_SHARE))
        for slot, cls in enumerate(group):
            own = tuple(rows[slot].detach().float().cpu().contiguous() for rows in vectors)
            wrong = np.flatnonzero(~np.isfinite(losses[:, slot]))
            failure = f"the loss was not a number at step {wrong[0] + 1}" if wrong.size else None
            if failure is None and not all(bool(torch.isfinite(part).all()) for part in own):
                failure = "the vectors are not numbers"
            loss = float(losses[-last:, slot].astype(np.float64).mean())
            learned.append(LearnedToken(cls.class_id, own, loss, failure))
        return learned

    def _optimise(self, group: Sequence[ClassToLearn]) -> Doing[int, tuple[list[torch.Tensor], np.ndarray]]:
        """Rows [slots, vectors, width] for each encoder, and the loss float32 [steps, slots]."""
        settings = self.settings
        times = int(self.noise.config["num_train_timesteps"])
        schedules = [plan_steps(settings, cls.class_id, len(cls.images), times) for cls in group]
        for cls, schedule in zip(group, schedules, strict=True):
            self.latents.fill(cls.class_id, cls.images, schedule.rows, schedule.flips)
        starts = [self.start(cls.initial_words) for cls in group]
        rows = [torch.stack(parts).to(self.device) for parts in zip(*starts, strict=True)]
        norms = [part.norm(dim=-1, keepdim=True) for part in rows]
        parameters = [part.clone().requires_grad_() for part in rows]
        optimizer = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, betas=(0.9, 0.999), weight_decay=settings.weight_decay
        )
        generators = [torch.Generator("cpu").manual_seed(class_seed(settings.seed, cls.class_id) ^ 1) for cls in group]
        losses = np.zeros((settings.steps, len(group)), np.float32)
        for step in range(settings.steps):
            # Sum over classes: the part of each class has the gradient it would have alone.
            by_class = self._losses(group, schedules, generators, step, self._pinned(parameters, norms))
            optimizer.zero_grad(set_to_none=True)
            by_class.sum().backward()
            optimizer.step()
            losses[step] = by_class.detach().float().cpu().numpy()
            yield 1
        for cls in group:
            self.latents.drop(cls.class_id)
        with torch.no_grad():
            return self._pinned(parameters, norms), losses

    def _pinned(self, parameters: Sequence[torch.Tensor], norms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The vectors in use: at their starting norm where the recipe pins it (Vendrow 2023, released code)."""
        if not self.settings.pin_norm:
            return list(parameters)
        return [p / p.norm(dim=-1, keepdim=True) * norm for p, norm in zip(parameters, norms, strict=True)]

    def _losses(
        self,
        group: Sequence[ClassToLearn],
        schedules: Sequence[_Schedule],
        generators: Sequence[torch.Generator],
        step: int,
        rows: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """The mean squared error of each class [slots] at a step."""
        ids: list[list[torch.Tensor]] = [[] for _ in self.text.parts]
        for slot, schedule in enumerate(schedules):
            for template in schedule.templates[step]:
                placed = self.text.ids_of(self.settings.templates[template], slot)
                for numbers, own in zip(ids, placed, strict=True):
                    numbers.append(own)
        clean, noise = self._draw(group, schedules, generators, step)
        t = torch.from_numpy(np.concatenate([s.times[step] for s in schedules])).to(self.device)
        noisy = self.noise.add_noise(clean, noise, t)
        states, pooled = self.text.encode(
            [torch.stack(numbers).to(self.device) for numbers in ids], [part.flatten(0, 1) for part in rows]
        )
        added = None
        if pooled is not None:
            frame = torch.tensor([[self.side, self.side, 0, 0, self.side, self.side]], dtype=pooled.dtype)
            added = {"text_embeds": pooled, "time_ids": frame.repeat(len(pooled), 1).to(self.device)}
        unet = self.pipeline.unet
        predicted = unet(noisy.to(unet.dtype), t, states, added_cond_kwargs=added).sample
        error = F.mse_loss(predicted.float(), self._target(clean, noise, t), reduction="none")
        return error.reshape(len(group), -1).mean(1)

    def _draw(
        self,
        group: Sequence[ClassToLearn],
        schedules: Sequence[_Schedule],
        generators: Sequence[torch.Generator],
        step: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents drawn from the VAE's posterior, and noise: float32 [slots · batch, channels, side, side]."""
        clean, noise = [], []
        for cls, schedule, generator in zip(group, schedules, generators, strict=True):
            mean, deviation = self.latents.of(cls.class_id, schedule.rows[step], schedule.flips[step])
            clean.append(mean + deviation * torch.randn(mean.shape, generator=generator))
            noise.append(torch.randn(mean.shape, generator=generator))
        scale = self.pipeline.vae.config.scaling_factor
        return (torch.cat(clean) * scale).to(self.device), torch.cat(noise).to(self.device)

    def _target(self, clean: torch.Tensor, noise: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        predicted = self.noise.config["prediction_type"]
        if predicted == "epsilon":
            return noise
        if predicted == "v_prediction":
            return self.noise.get_velocity(clean, noise, t)
        return clean
