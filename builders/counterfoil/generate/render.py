"""Render batches of samples with one loaded pipeline.

Each sample has its own random generator on the CPU, and short batches are padded to the full size.
So an image depends on the batch size but not on the other images in the batch. Batches may
therefore cross shards. The assignment of shards to workers is in no hash and may change during a
build.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.pictures import DrawnAhead, ImageRenderer, as_pictures, padded_to
from counterfoil.generate.steps import (
    HeldParts,
    LaterPrompts,
    called_back,
    guidance_of,
    paired_attention,
)
from counterfoil.models.adapters import Adapter
from counterfoil.models.diffusion import native_size
from counterfoil.models.generators import family_of
from counterfoil.models.generators.family import (
    batch_key,
    bytes_of,
    encode_prompt,
    interpolated,
    join_encoded,
)
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.loras import Loras
from counterfoil.models.pipeline_settings import pipeline_problems

if TYPE_CHECKING:
    import torch

    from counterfoil.plan.layout import Sample
    from counterfoil.recipe import Recipe

# The cache of encoded prompts holds `_REMEMBERED` bytes: a thousand prompts of SDXL, or sixty
# prompts of FLUX.1, in 16 bits.
_REMEMBERED = 2**28


class Renderer(ImageRenderer):
    """Turns batches of samples into images."""

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        embeddings: ImageEmbeddings | None = None,
        adapter: Adapter | None = None,
        loras: Loras | None = None,
    ) -> None:
        """Take a pipeline, and what is added to it.

        embeddings: the image embeddings from which some samples are drawn. adapter: the adapter
        through which the pipeline takes image embeddings, if the pipeline needs one. loras: the
        LoRA weights that are added to the pipeline. Raise UserError for settings that have no
        effect on this pipeline.
        """
        self.pipeline = pipeline
        # The pipeline searches all its modules for it.
        self.device: torch.device = pipeline._execution_device
        self.embeddings = embeddings
        self.adapter = adapter
        self.loras = loras
        self._lora_of: dict[str, str] = {}
        for shift in recipe.all_shifts():
            if shift.lora is not None:
                self._lora_of[shift.name] = shift.lora
        self.generator = recipe.drawing
        self.held = recipe.samples.held
        name = type(pipeline).__name__
        unet = getattr(pipeline, "unet", None)
        unet_config = None if unet is None else dict(unet.config)
        problems = list(pipeline_problems(recipe, {"_class_name": name}, unet_config))
        if problems:
            raise UserError(problems)
        family = family_of(name)
        assert family is not None  # `pipeline_problems` refuses pipelines without a family
        self.family = family
        if self.generator.get("lora") and loras is None:
            raise ValueError("the recipe has LoRA weights, and none are loaded")
        self.side = self.generator.size or family.side or native_size(pipeline)
        self.guided = family.guided(self.generator.guidance, self.generator.options)
        self._encoded: dict[str, dict[str, Any]] = {}
        self._negative: dict[str, Any] = {}

    def encode(self, prompt: str) -> dict[str, Any]:
        """Return the embeddings of a prompt and of the negative prompt. Each is encoded alone and
        then cached."""
        if prompt not in self._encoded:
            import torch

            negative_too = self.guided and not self._negative
            with self.computing("encode a prompt"), self._ids_in_bounds(), torch.inference_mode():
                parts = encode_prompt(
                    self.family,
                    self.pipeline,
                    prompt,
                    self.generator.negative_prompt,
                    device=self.device,
                    guided=negative_too,
                    options=self.generator.options,
                )
            if negative_too:
                for name, part in parts.items():
                    if name.startswith("negative"):
                        self._negative[name] = part
            size = bytes_of(parts) + sum(map(bytes_of, self._encoded.values()))
            while self._encoded and size > _REMEMBERED:
                oldest = next(iter(self._encoded))
                size -= bytes_of(self._encoded.pop(oldest))
            self._encoded[prompt] = parts | self._negative
        return self._encoded[prompt]

    def conditioning(self, sample: Sample) -> dict[str, Any]:
        """Return the encoded prompt for the first step of a sample.

        This is the prompt of the sample, or its mixture with the prompt of the base.
        """
        encoded = self.encode(sample.prompt or "")
        between = sample.between
        if between is None or between.by == "lora":
            return encoded
        scale = 0 if between.by == "steps" else between.scale
        try:
            return interpolated(self.encode(between.base_prompt), encoded, scale)
        except ValueError as error:
            raise RunFailure(
                f"{sample.key}: there is no way from the base's prompt to its own: {error}",
                "Shorten the longer prompt, or take the levels out of this shift.",
            ) from error

    def _ids_in_bounds(self) -> contextlib.AbstractContextManager[None]:
        """Check that token ids are within the embedding tables of the text encoders."""
        import torch

        from counterfoil.models.trials import ids_in_bounds

        encoders = []
        for name, part in self.pipeline.components.items():
            if name.startswith("text_encoder") and isinstance(part, torch.nn.Module):
                encoders.append(part)
        return ids_in_bounds(self.generator.model, *encoders)

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """Start to render samples. The returned function waits for the GPU and returns the
        images."""
        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        # start every batch before waiting for the first
        started = list(self._start_batches(samples))

        def pictures() -> list[np.ndarray | None]:
            images: list[np.ndarray | None] = [None] * count
            for indices, wait in started:
                for index, image in zip(indices, wait(), strict=True):
                    images[index] = image
            return images

        return pictures

    def _start_batches(self, samples: Sequence[Sample]) -> Iterator[tuple[list[int], DrawnAhead]]:
        """Yield the indices of samples that share a batch, and a function that waits for their
        images."""
        batches: dict[Hashable, list[int]] = {}
        for index, sample in enumerate(samples):
            batches.setdefault(self._batch_key(sample), []).append(index)
        # Pad each batch to the full size, because an image must not depend on the kinds of the
        # other samples.
        for indices in batches.values():
            yield indices, self._start_batch([samples[index] for index in indices])

    def _batch_key(self, sample: Sample) -> Hashable:
        """Return a key that is equal for samples of one batch: their kind, and the shape of their
        encoded prompts.

        Samples without an image embedding are drawn without the adapter. Every bit is the same as
        if no adapter were loaded.
        """
        if sample.base_prompt is not None:
            base = batch_key(self.family, self.encode(sample.base_prompt))
            return "pair", base, batch_key(self.family, self.conditioning(sample))
        has_vector = self._vector(sample) is not None
        if self.family.prompts != "encoded":
            return has_vector
        shapes = batch_key(self.family, self.conditioning(sample))
        return has_vector, shapes, *self._lora_scales(sample).values()

    def _start_batch(self, samples: Sequence[Sample]) -> DrawnAhead:
        import torch

        if samples[0].base_prompt is not None:
            half = self.generator.batch_size // 2
            drawn = []
            for start in range(0, len(samples), half):
                drawn.append(self._beside_bases(samples[start : start + half]))
            return as_pictures(torch.cat(drawn))
        if self.family.prompts == "plain":
            drawn = []
            for sample in samples:
                # An unknown pipeline may draw from torch's global state.
                with self._ids_in_bounds(), own_randomness(sample.seed, self.device):
                    drawn.append(self._call_pipeline(self._plain_arguments(sample), [sample]))
            return as_pictures(torch.cat(drawn))
        padded = padded_to(self.generator.batch_size, samples)
        arguments: dict[str, Any] = {}
        if self.family.prompted:
            arguments = join_encoded([self.conditioning(sample) for sample in padded])
        vectors = [vector for vector in map(self._vector, padded) if vector is not None]
        used = contextlib.nullcontext()
        if vectors:
            assert self.family.conditioned is not None
            unet = self.pipeline.unet
            stacked = torch.from_numpy(np.stack(vectors)).to(device=self.device, dtype=unet.dtype)
            guided = self.guided and unet.config.get("time_cond_proj_dim") is None
            arguments |= self.family.conditioned(stacked, guided)
            if self.adapter is not None:
                used = self.adapter.used()
        with used:
            pixels = self._call_pipeline(arguments, padded)
            return as_pictures(pixels[: len(samples)])

    def _beside_bases(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Draw shifted images in one full batch with their bases, and return the shifted images.

        The bases come first. A shifted image starts from the same noise as its base.
        """
        half = self.generator.batch_size // 2
        padded = padded_to(half, samples)
        together = []
        for sample in padded:
            base = replace(sample, prompt=sample.base_prompt, base_prompt=None, between=None)
            together.append(base)
        together += padded
        arguments = join_encoded([self.conditioning(sample) for sample in together])
        held = HeldParts(half, self.held.share, self.held.until)
        with paired_attention(self.pipeline, self.family, half):
            pixels = self._call_pipeline(arguments, together, held)
        return pixels[half : half + len(samples)]

    def _plain_arguments(self, sample: Sample) -> dict[str, Any]:
        """Return the arguments of a pipeline that encodes the prompt itself."""
        negative = self.generator.negative_prompt
        if negative is None and self.guided:
            negative = self.family.blank
        arguments = {"prompt": sample.prompt or ""}
        if negative is not None:
            arguments["negative_prompt"] = negative
        return arguments

    def _call_pipeline(
        self,
        arguments: Mapping[str, Any],
        samples: Sequence[Sample],
        held: HeldParts | None = None,
    ) -> torch.Tensor:
        """Return pixels [n, 3, side, side]. Each sample is drawn from its own noise."""
        import torch

        family = self.family
        generator = self.generator
        guidance = {}
        if generator.get("guidance_interval") is not None:
            guidance = guidance_of(generator, arguments)
        elif family.scale is not None:
            guidance = {family.scale: generator.guidance}
        begin = [0.0] * len(samples)
        for row, sample in enumerate(samples):
            if sample.between is not None and sample.between.by == "steps":
                begin[row] = 1 - sample.between.scale
        if any(begin):
            prompts = [self.encode(sample.prompt or "") for sample in samples]
            later = LaterPrompts(join_encoded(prompts), begin)
            guidance = called_back(guidance, later, tuple(later.prompts))
        if held is not None:
            guidance = called_back(guidance, held, ("latents",))
        noise = [torch.Generator("cpu").manual_seed(sample.seed) for sample in samples]
        used = contextlib.nullcontext()
        if self.loras is not None:
            used = self.loras.used(self._lora_scales(samples[0]))
        settings = {**family.sets, **family.sized(self.side), **generator.options}
        with self.computing("render"), torch.inference_mode(), used:
            pixels = self.pipeline(
                **settings,
                **arguments,
                **guidance,
                generator=noise[0] if family.prompts == "plain" else noise,
                num_inference_steps=generator.steps,
                output_type=family.output,
            ).images
        if family.output == "np":
            pixels = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        if pixels.shape[2:] != (self.side, self.side):
            high, wide = pixels.shape[2:]
            raise UserError(
                f"generator.size is {self.side}, but '{generator.model}' renders {wide} × {high}"
            )
        return pixels

    def _lora_scales(self, sample: Sample) -> dict[str, float]:
        """Return the scale of each LoRA for a sample.

        The scale is 0 for a LoRA that the sample's shift does not use. At a level of the shift, the
        scale is the share that the level gives.
        """
        level = 1 if sample.between is None else sample.between.scale
        scales = dict.fromkeys(self._lora_of.values(), 0.0)
        used = self._lora_of.get(sample.shift)
        if used is not None:
            scales[used] = level * self.generator.get("lora")[used].scale
        return scales

    def _vector(self, sample: Sample) -> np.ndarray | None:
        if self.embeddings is None:
            return None
        return self.embeddings.of(sample.shift, sample.class_id)

    def computing(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Turn exceptions of the pipeline into RunFailure. The message names the step by
        `doing`."""
        less_memory = (
            f"Set a generator.batch_size below {self.generator.batch_size} (another plan: build"
            " into a new directory)."
        )
        model = f"generator.model: '{self.generator.model}'"
        return explain_computing(model, doing, str(self.device), less_memory=less_memory)


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators on the CPU and on `device` within the block, and restore them
    afterwards."""
    import torch

    if device.type in ("cpu", "meta"):
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            yield
        return
    module = torch.get_device_module(device)
    index = device.index
    if index is None:
        index = torch.accelerator.current_device_index()
    with (
        torch.random.fork_rng([index], device_type=device.type),
        torch.accelerator.device_index(index),
    ):
        # torch.manual_seed would seed every GPU, and the state of the other GPUs would not be
        # restored.
        torch.default_generator.manual_seed(seed)
        module.manual_seed(seed)
        yield
