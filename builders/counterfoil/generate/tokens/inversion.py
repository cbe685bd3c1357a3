"""Learn the tokens of many classes in one batch by textual inversion (Gal et al. 2022), with every
weight frozen.

The method follows Vendrow 2023. A token depends only on its class and the settings. Its random
numbers come from the seed and the class id, its loss is a term of its own in a sum, and groups are
padded to `classes_in_flight`. So other classes in the batch change no bit of the token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from counterfoil.engines import Doing
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.pictures import padded_to
from counterfoil.models.diffusion import native_size
from counterfoil.models.trials import refuse_unknown_ids
from counterfoil.recipe.prompts import fill_template

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.recipe import LearnSettings


# Small gradients are zeros in float16. A power of two rounds nothing. Vendrow 2023 leaves the scale
# to accelerate.
LOSS_SCALE = 2.0**10
_LAST_SHARE = 0.1  # the share of steps at the end over which the reported loss is averaged


@dataclass(frozen=True, slots=True)
class ClassToLearn:
    """A class, the words from which its token starts, and its training images."""

    class_id: str
    initial_words: str
    images: TrainingImages


@dataclass(frozen=True, slots=True)
class LearnedToken:
    """The vectors [n, width] of a class for each text encoder, and their loss.

    If the learning failed, the token also has the reason.
    """

    class_id: str
    vectors: tuple[torch.Tensor, ...]
    loss: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The images of each step, whether each is mirrored, its template and its time. Each array is
    [steps, batch]."""

    rows: np.ndarray
    flips: np.ndarray
    templates: np.ndarray
    times: np.ndarray


def class_seed(seed: int, class_id: str) -> int:
    """Return 63 bits from the recipe's seed and the class."""
    digest = hashlib.sha256(f"{seed}:{class_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def plan_steps(settings: LearnSettings, class_id: str, images: int, times: int) -> _Schedule:
    """Draw the schedule of a class. Images come in shuffled rounds, and everything else is drawn
    independently."""
    rng = np.random.default_rng(class_seed(settings.seed, class_id))
    shape = (settings.steps, settings.batch_size)
    needed = settings.steps * settings.batch_size
    rounds = -(-needed // images)
    orders = [rng.permutation(images) for _ in range(rounds)]
    rows = np.concatenate(orders)[:needed]
    flips = rng.random(shape) < settings.flip
    templates = rng.integers(0, len(settings.templates), shape)
    drawn_times = rng.integers(0, times, shape)
    return _Schedule(rows.reshape(shape), flips, templates, drawn_times)


class Inversion:
    """Learns tokens with one loaded pipeline, one group of classes at a time.

    The pipeline cannot render afterwards.
    """

    def __init__(
        self,
        pipeline: Any,
        settings: LearnSettings,
        rendered_size: int | None = None,
    ) -> None:
        from diffusers import DDPMScheduler

        self.pipeline = pipeline
        self.settings = settings
        self.device = pipeline.device
        self.side = settings.size or rendered_size or native_size(pipeline)
        self.text = TextSide(pipeline, settings.classes_in_flight, settings.vectors)
        self.noise: Any = DDPMScheduler.from_config(pipeline.scheduler.config)
        self.latents = LatentCache(pipeline.vae, self.side)
        if self.device.type == "cuda":
            # Checkpointing takes a third more time, but 8 classes at 768 pixels then fit into 24
            # GB.
            pipeline.unet.enable_gradient_checkpointing()

    def start(self, words: str) -> list[torch.Tensor]:
        """Return the initial vectors [vectors, width] of a token for each encoder.

        Raise ValueError if the words have no sub-tokens.
        """
        means = self.text.mean_of_words(words)
        return [mean.repeat(self.settings.vectors, 1) for mean in means]

    def learn(self, group: Sequence[ClassToLearn]) -> Doing[int, list[LearnedToken]]:
        """Learn the tokens of at most `classes_in_flight` classes. Yield 1 for each step of the
        group."""
        slots = self.settings.classes_in_flight
        count = len(group)
        if not 0 < count <= slots:
            raise ValueError(f"{count} classes, expected 1 to {slots}")
        try:
            vectors, losses = yield from self._optimise(padded_to(slots, group))
        except torch.OutOfMemoryError as error:
            raise RunFailure(
                f"out of memory on {self.device} with {slots} classes in flight",
                "Set a smaller tokens.learn.classes_in_flight, batch_size or size.",
            ) from error
        learned = []
        last = max(1, round(self.settings.steps * _LAST_SHARE))
        for slot, cls in enumerate(group):
            failure = None
            token = []
            for rows in vectors:
                part = rows[slot].detach().float().cpu()
                if not torch.isfinite(part).all():
                    failure = "the vectors are not numbers"
                token.append(part.contiguous())
            of_class = losses[:, slot]
            wrong = np.flatnonzero(~np.isfinite(of_class))
            if wrong.size:
                failure = f"the loss was not a number at step {wrong[0] + 1}"
            mean = of_class[-last:].astype(np.float64).mean()
            learned.append(LearnedToken(cls.class_id, tuple(token), float(mean), failure))
        return learned

    def _optimise(
        self,
        group: Sequence[ClassToLearn],
    ) -> Doing[int, tuple[list[torch.Tensor], np.ndarray]]:
        """Return rows [slots, vectors, width] for each encoder, and the loss float32 [steps,
        slots]."""
        settings = self.settings
        times = int(self.noise.config["num_train_timesteps"])
        schedules = []
        generators = []
        for cls in group:
            schedule = plan_steps(settings, cls.class_id, cls.images.count, times)
            self.latents.fill(cls.class_id, cls.images, schedule.rows, schedule.flips)
            schedules.append(schedule)
            seed = class_seed(settings.seed, cls.class_id) ^ 1
            generators.append(torch.Generator("cpu").manual_seed(seed))
        starts = [self.start(cls.initial_words) for cls in group]
        rows = [torch.stack(parts).to(self.device) for parts in zip(*starts, strict=True)]
        norms = [part.norm(dim=-1, keepdim=True) for part in rows]
        parameters = [part.clone().requires_grad_() for part in rows]
        optimizer = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=(0.9, 0.999),
            weight_decay=settings.weight_decay,
        )
        losses = np.zeros((settings.steps, len(group)), np.float32)
        scale = LOSS_SCALE if self.pipeline.unet.dtype == torch.float16 else 1.0
        for step in range(settings.steps):
            vectors = self._pinned(parameters, norms)
            by_class = self._losses(group, schedules, generators, step, vectors)
            optimizer.zero_grad(set_to_none=True)
            # In a sum of losses, the vectors of each class have the same gradient as with their own
            # loss alone.
            (by_class.sum() * scale).backward()
            for part in parameters:
                assert part.grad is not None
                part.grad /= scale
            optimizer.step()
            losses[step] = by_class.detach().float().cpu().numpy()
            yield 1
        for cls in group:
            self.latents.drop(cls.class_id)
        with torch.no_grad():
            return self._pinned(parameters, norms), losses

    def _pinned(
        self,
        parameters: Sequence[torch.Tensor],
        norms: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        """Return the vectors, scaled to their starting norm if the recipe pins it.

        The released code of Vendrow 2023 pins the norm.
        """
        if not self.settings.pin_norm:
            return list(parameters)
        pinned = []
        for part, norm in zip(parameters, norms, strict=True):
            pinned.append(part / part.norm(dim=-1, keepdim=True) * norm)
        return pinned

    def _losses(
        self,
        group: Sequence[ClassToLearn],
        schedules: Sequence[_Schedule],
        generators: Sequence[torch.Generator],
        step: int,
        rows: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Return the mean squared error of each class at a step, [slots]."""
        ids: list[list[torch.Tensor]] = [[] for _ in self.text.parts]
        for slot, schedule in enumerate(schedules):
            for template in schedule.templates[step]:
                template_ids = self.text.ids_of(self.settings.templates[template], slot)
                for batch, encoder_ids in zip(ids, template_ids, strict=True):
                    batch.append(encoder_ids)
        # Latents from the posterior of the VAE, and noise: both are float32 [slots · batch,
        # channels, side, side].
        latents = []
        noises = []
        for cls, schedule, generator in zip(group, schedules, generators, strict=True):
            mean, deviation = self.latents.of(
                cls.class_id,
                schedule.rows[step],
                schedule.flips[step],
            )
            of_posterior = torch.randn(mean.shape, generator=generator)
            latents.append(mean + deviation * of_posterior)
            noises.append(torch.randn(mean.shape, generator=generator))
        scaled = torch.cat(latents) * self.pipeline.vae.config.scaling_factor
        clean = scaled.to(self.device)
        noise = torch.cat(noises).to(self.device)
        times = np.concatenate([schedule.times[step] for schedule in schedules])
        t = torch.from_numpy(times).to(self.device)
        noisy = self.noise.add_noise(clean, noise, t)
        stacked = [torch.stack(batch).to(self.device) for batch in ids]
        flat = [part.flatten(0, 1) for part in rows]
        states, pooled = self.text.encode(stacked, flat)
        added = None
        if pooled is not None:
            side = self.side
            frame = torch.tensor([[side, side, 0, 0, side, side]], dtype=pooled.dtype)
            time_ids = frame.repeat(len(pooled), 1).to(self.device)
            added = {"text_embeds": pooled, "time_ids": time_ids}
        unet = self.pipeline.unet
        predicted = unet(noisy.to(unet.dtype), t, states, added_cond_kwargs=added).sample
        target = clean
        prediction = self.noise.config["prediction_type"]
        if prediction == "epsilon":
            target = noise
        elif prediction == "v_prediction":
            target = self.noise.get_velocity(clean, noise, t)
        error = F.mse_loss(predicted.float(), target, reduction="none")
        return error.reshape(len(group), -1).mean(1)


class _RowsBehind(nn.Module):
    """An embedding table with further rows after its own. Only the further rows have a gradient."""

    def __init__(self, table: nn.Module, first_id: int) -> None:
        super().__init__()
        self.table: Any = table
        self.first_id = first_id
        self.rows: torch.Tensor | None = None

    @property
    def weight(self) -> torch.Tensor:
        return self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        new = ids >= self.first_id
        known = self.table(ids.masked_fill(new, 0))
        if self.rows is None:
            return known
        places = (ids - self.first_id).clamp(min=0)
        behind = F.embedding(places, self.rows).to(known.dtype)
        return torch.where(new.unsqueeze(-1), behind, known)


class _TextPart(NamedTuple):
    """A tokenizer, its text encoder, and the embedding table of the encoder."""

    tokenizer: Any
    encoder: Any
    table: _RowsBehind


class TextSide:
    """One or two tokenizers and text encoders of a pipeline, with `slots` × `vectors` ids for class
    tokens."""

    def __init__(self, pipeline: Any, slots: int, vectors: int) -> None:
        self.slots = slots
        self.vectors = vectors
        self._model = str(getattr(pipeline, "name_or_path", None) or type(pipeline).__name__)
        self.parts: list[_TextPart] = []
        for suffix in ("", "_2"):
            encoder = getattr(pipeline, f"text_encoder{suffix}", None)
            if encoder is None:
                continue
            tokenizer = getattr(pipeline, f"tokenizer{suffix}")
            names = [f"<place-{number}>" for number in range(slots * vectors)]
            tokenizer.add_tokens(names)
            ids = tokenizer.convert_tokens_to_ids(names)
            first = ids[0]
            if ids != list(range(first, first + len(ids))):
                raise ValueError("the tokenizer did not give new tokens consecutive ids")
            table = _RowsBehind(encoder.get_input_embeddings(), first)
            encoder.set_input_embeddings(table)
            self.parts.append(_TextPart(tokenizer, encoder, table))
        self.pooled = len(self.parts) == 2
        self._ids: dict[str, list[torch.Tensor]] = {}

    def mean_of_words(self, words: str) -> list[torch.Tensor]:
        """Return, for each encoder, the mean embedding [width] of the sub-tokens of the words.

        Raise ValueError if the words have no sub-tokens.
        """
        means = []
        for tokenizer, _, table in self.parts:
            ids = tokenizer(words, add_special_tokens=False)["input_ids"]
            if not ids:
                raise ValueError(f"'{words}' tokenises to nothing")
            refuse_unknown_ids(self._model, torch.tensor(ids), len(table.weight))
            rows = table.weight[torch.tensor(ids, device=table.weight.device)]
            means.append(rows.detach().float().mean(0))
        return means

    def ids_of(self, template: str, slot: int) -> list[torch.Tensor]:
        """Return, for each encoder, the token ids [length] of a template whose gap has the tokens
        of a slot."""
        if template not in self._ids:
            places = [f"<place-{number}>" for number in range(self.vectors)]
            text = fill_template(template, " ".join(places))
            first_slot = []
            for tokenizer, _, table in self.parts:
                length = tokenizer.model_max_length
                out = tokenizer(
                    text,
                    padding="max_length",
                    max_length=length,
                    truncation=True,
                    return_tensors="pt",
                )
                ids = out.input_ids[0]
                refuse_unknown_ids(self._model, ids[ids < table.first_id], len(table.weight))
                first_slot.append(ids)
            self._ids[template] = first_slot
        moved = []
        for ids, part in zip(self._ids[template], self.parts, strict=True):
            of_slot = ids + slot * self.vectors
            moved.append(torch.where(ids >= part.table.first_id, of_slot, ids))
        return moved

    def encode(
        self,
        ids: Sequence[torch.Tensor],
        rows: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Encode token ids as `encode_prompt` encodes prompts.

        Return the states [n, length, width] and, with two encoders, the pooled text [n, width].
        ids: the token ids for each encoder, [n, length]. rows: the vectors for each encoder, [slots
        · vectors, width], with gradient.
        """
        states = []
        pooled = None
        for (_, encoder, table), numbers, row in zip(self.parts, ids, rows, strict=True):
            table.rows = row
            if self.pooled:
                out = encoder(numbers, output_hidden_states=True)
                states.append(out.hidden_states[-2])
                pooled = out[0]
            else:
                states.append(encoder(numbers)[0])
            table.rows = None
        return torch.cat(states, -1), pooled


# images in each call of the VAE; short calls are padded, so that neighbours change no bit
_BATCH = 16


@dataclass(frozen=True, slots=True)
class TrainingImages:
    """The training images of a class, as their number and a function that decodes an image as
    RGB."""

    count: int
    image: Callable[[int], Image.Image]


def centred_square(image: Image.Image, side: int) -> np.ndarray:
    """Return the largest square in the centre of an image, resized, as uint8 [side, side, 3].

    The released code of Vendrow 2023 cuts first and resizes by bicubic interpolation.
    """
    from PIL import Image as Pillow

    least = min(image.size)
    left = (image.width - least) // 2
    top = (image.height - least) // 2
    box = (left, top, left + least, top + least)
    square = image.convert("RGB").crop(box)
    resized = square.resize((side, side), Pillow.Resampling.BICUBIC)
    return np.asarray(resized)


class _Posteriors(NamedTuple):
    """The means and the deviations of the images of a class, and the index of each pair (image,
    mirrored) in both."""

    indices: dict[tuple[int, bool], int]
    means: torch.Tensor
    deviations: torch.Tensor


class LatentCache:
    """Keeps the mean and the deviation of the posterior of the VAE, by class, for each pair (image,
    mirrored)."""

    def __init__(self, vae: Any, side: int) -> None:
        self.vae = vae
        self.side = side
        self._of_class: dict[str, _Posteriors] = {}

    def fill(
        self,
        class_id: str,
        images: TrainingImages,
        rows: np.ndarray,
        flips: np.ndarray,
    ) -> None:
        """Encode the images in the schedule of a class.

        Raise UserError with every image that cannot be decoded.
        """
        if class_id in self._of_class:
            return
        scheduled = zip(rows.ravel().tolist(), flips.ravel().tolist(), strict=True)
        pairs = sorted(set(scheduled))
        means = []
        deviations = []
        problems: dict[str, None] = {}
        for start in range(0, len(pairs), _BATCH):
            part = pairs[start : start + _BATCH]
            pixels = []
            for row, flip in part:
                try:
                    square = centred_square(images.image(row), self.side)
                    pixels.append(square[:, ::-1] if flip else square)
                except UserError as error:
                    problems |= dict.fromkeys(error.problems)
            if problems:
                continue  # go on decoding, to report all problems together
            mean, deviation = self._encode(np.stack(padded_to(_BATCH, pixels)))
            means.append(mean[: len(part)])
            deviations.append(deviation[: len(part)])
        if problems:
            hint = "Remove or replace these rows of the input dataset."
            raise UserError(list(problems)[:20], hint)
        indices = {pair: index for index, pair in enumerate(pairs)}
        self._of_class[class_id] = _Posteriors(indices, torch.cat(means), torch.cat(deviations))

    def of(
        self,
        class_id: str,
        rows: np.ndarray,
        flips: np.ndarray,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean and the deviation of n images, each float32 [n, channels, height,
        width]."""
        indices, means, deviations = self._of_class[class_id]
        pairs = zip(rows.tolist(), flips.tolist(), strict=True)
        chosen = torch.tensor([indices[pair] for pair in pairs])
        return means[chosen], deviations[chosen]

    def drop(self, class_id: str) -> None:
        """Forget the images of a class whose token is learned."""
        self._of_class.pop(class_id, None)

    def _encode(self, pixels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the posterior of images, uint8 [n, side, side, 3], as float32 on the CPU.

        An image of 768 pixels takes 300 KB.
        """
        vae = self.vae
        before = vae.dtype
        dtype = before
        if getattr(vae.config, "force_upcast", False):
            dtype = torch.float32
        levels = torch.from_numpy(np.ascontiguousarray(pixels))
        images = levels.permute(0, 3, 1, 2).to(vae.device, dtype)
        with torch.inference_mode():
            if dtype != before:
                vae.to(dtype)
            posterior = vae.encode(images / 127.5 - 1).latent_dist
            if dtype != before:
                vae.to(before)
        # Tensors from inference mode cannot be part of a later graph, so clone them.
        mean = posterior.mean.cpu().float().clone()
        deviation = posterior.std.cpu().float().clone()
        return mean, deviation
