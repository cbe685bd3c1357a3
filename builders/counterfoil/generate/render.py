"""Render fixed batches of samples: each prompt encoded once, each sample with its own CPU noise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import CounterfoilError, RunFailure, UserError
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
    """

    def __init__(self, pipeline: Any, recipe: Recipe) -> None:
        self.pipeline = pipeline
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
        import torch

        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        padded = [*samples, *[samples[-1]] * (self.generator.batch_size - count)]
        encoded = [self.encode(sample.prompt) for sample in padded]
        embeddings = {name: torch.cat([each[name] for each in encoded]) for name in encoded[0]}
        with self._told("render"), torch.inference_mode():
            pixels = self.pipeline(
                **embeddings,
                generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in padded],
                num_inference_steps=self.generator.steps,
                guidance_scale=self.generator.guidance,
                height=self.side,
                width=self.side,
                output_type="pt",
            ).images
        images = pixels[:count].float().cpu().permute(0, 2, 3, 1).numpy()
        return [_as_bytes(image) for image in images]

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
