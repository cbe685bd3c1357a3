"""Render fixed batches of samples: each prompt encoded once, each sample with its own noise and image embedding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.models.adapters import Adapter
from counterfoil.models.diffusion import native_size
from counterfoil.models.generators import Family, family_of, known_families

if TYPE_CHECKING:
    import torch

    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe

# Prompts whose embeddings are kept: a shard's worth. XL's take 0.3 MB each.
_REMEMBERED = 1024


class Renderer:
    """Turns batches of samples into images with one loaded pipeline.

    The noise of a sample comes from a CPU generator of its own seed, and short batches are padded to
    the recipe's batch size, so an image depends on its batch's size and on nothing else around it.
    `embeddings` are those that some samples are drawn from; `adapter` is by which the pipeline takes them, if by one.
    """

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        embeddings: ImageEmbeddings | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.embeddings = embeddings
        self.adapter = adapter
        self.generator = recipe.generator
        self.family = self._family()
        self.side = recipe.generator.size or native_size(pipeline)
        self._encoded: dict[str, dict[str, torch.Tensor]] = {}
        self._negative: dict[str, torch.Tensor] = {}

    def _family(self) -> Family:
        family = family_of(type(self.pipeline).__name__)
        if family is None:
            raise UserError(
                f"generator.model: '{self.generator.model}' is a {type(self.pipeline).__name__}, expected a pipeline of"
                f" {known_families()}"
            )
        return family

    def encode(self, prompt: str) -> dict[str, torch.Tensor]:
        """The embeddings of a prompt, encoded alone (its neighbours change no bit) and remembered for a while.

        The negative prompt's are encoded once: they do not depend on the prompt.
        """
        if prompt not in self._encoded:
            guided = self.generator.guidance > 1
            parts = self._encode(prompt, guided and not self._negative)
            if guided and not self._negative:
                self._negative = {name: part for name, part in parts.items() if name.startswith("negative")}
            while len(self._encoded) >= _REMEMBERED:
                del self._encoded[next(iter(self._encoded))]  # the oldest: the plan renders prompt after prompt
            self._encoded[prompt] = parts | self._negative
        return self._encoded[prompt]

    def _encode(self, prompt: str, guided: bool) -> dict[str, torch.Tensor]:
        import torch

        from counterfoil.models.id_bounds import ids_in_bounds

        encoders = [
            encoder
            for suffix in ("", "_2")
            if (encoder := getattr(self.pipeline, f"text_encoder{suffix}", None)) is not None
        ]
        options = {
            "prompt": prompt,
            "device": self.pipeline.device,
            "num_images_per_prompt": 1,
            "do_classifier_free_guidance": guided,
            "negative_prompt": self.generator.negative_prompt,
        }
        with self._told("encode a prompt"), ids_in_bounds(self.generator.model, *encoders), torch.inference_mode():
            parts = self.pipeline.encode_prompt(**options)
        return {name: part for name, part in zip(self.family.embeddings, parts, strict=False) if part is not None}

    def render(self, samples: Sequence[Sample]) -> list[np.ndarray | None]:
        """uint8 [side, side, 3] of each sample; None where the pipeline gave no finite numbers.

        Raises ValueError for more samples than a batch, RunFailure when memory runs out or the model cannot do it.
        """
        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        images: list[np.ndarray | None] = [None] * count
        by_prompt = [place for place, sample in enumerate(samples) if self._vector(sample) is None]
        by_vector = [place for place, sample in enumerate(samples) if self._vector(sample) is not None]
        # Each kind in a full batch of its own: a picture must not depend on whether its neighbours are of its kind.
        for places in (by_prompt, by_vector):
            if places:
                drawn = self._drawn([samples[place] for place in places], conditioned=places is by_vector)
                for place, image in zip(places, drawn, strict=True):
                    images[place] = image
        return images

    def _drawn(self, samples: Sequence[Sample], *, conditioned: bool) -> list[np.ndarray | None]:
        """Samples that are drawn from prompts alone, or all from image embeddings too."""
        import torch

        count = len(samples)
        padded = [*samples, *[samples[-1]] * (self.generator.batch_size - count)]
        arguments: dict[str, Any] = {}
        if self.family.prompted:
            encoded = [self.encode(sample.prompt or "") for sample in padded]
            arguments = {name: torch.cat([each[name] for each in encoded]) for name in encoded[0]}
        if conditioned:
            arguments |= self._conditioned([self._vector(sample) for sample in padded])
        adapter = self.adapter.used() if conditioned and self.adapter is not None else contextlib.nullcontext()
        with self._told("render"), torch.inference_mode(), adapter:
            pixels = self.pipeline(
                **arguments,
                generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in padded],
                num_inference_steps=self.generator.steps,
                guidance_scale=self.generator.guidance,
                height=self.side,
                width=self.side,
                output_type=self.family.output,
            ).images
        if self.family.output == "pt":
            pixels = pixels.float().cpu().permute(0, 2, 3, 1).numpy()
        if pixels.shape[1:3] != (self.side, self.side):
            high, wide = pixels.shape[1:3]
            raise UserError(
                f"generator.size: {self.side} is asked for, and '{self.generator.model}' draws {wide} × {high}"
            )
        return [_as_bytes(image) for image in pixels[:count]]

    def _vector(self, sample: Sample) -> np.ndarray | None:
        return None if self.embeddings is None else self.embeddings.of(sample.shift, sample.class_id)

    def _conditioned(self, vectors: Sequence[Any]) -> Mapping[str, Any]:
        """What a call takes for image embeddings."""
        import torch

        assert self.family.conditioned is not None
        unet = self.pipeline.unet
        guided = self.generator.guidance > 1 and unet.config.get("time_cond_proj_dim") is None
        stacked = torch.from_numpy(np.stack(vectors)).to(device=self.pipeline.device, dtype=unet.dtype)
        return self.family.conditioned(stacked, guided)

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """RunFailure for whatever the pipeline raises; `what` it was about to do."""
        import torch

        try:
            yield
        except CounterfoilError:
            raise
        except torch.OutOfMemoryError as error:
            raise RunFailure(
                f"out of memory on {self.pipeline.device} with generator.batch_size {self.generator.batch_size}",
                "Set a smaller generator.batch_size (another plan: build into a new directory).",
            ) from error
        except Exception as error:
            # Parts of a model that do not belong together, and settings of a scheduler that make no sense, end in
            # whatever diffusers and torch meet first.
            said = " ".join(str(error).split())[:300]
            raise RunFailure(
                f"generator.model: '{self.generator.model}' cannot {what}: {type(error).__name__}: {said}",
                "Check its configuration, or name another model.",
            ) from error


def _as_bytes(image: np.ndarray) -> np.ndarray | None:
    if not np.isfinite(image).all():
        return None
    return (image.clip(0, 1) * 255).round().astype(np.uint8)
