"""Render fixed batches of samples: each prompt encoded once, each sample with its own noise and image embedding.

In a batch each kind of sample, by prompt alone or by a vector, fills a batch of its own, and an adapter is taken out
for the first, bit for bit.

Each image has a CPU generator of its own and is drawn in a batch of one size, which is padded where it is short, so
neighbours and place change no bit. Batches may therefore run across shards: how shards are dealt is in no hash and
may change even amid a build. A quota's full batches are of its cell alone. Prompts that a pipeline would pad by each
other share no batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.pictures import DrawnAhead, as_pictures
from counterfoil.generate.steps import (
    HeldParts,
    LaterPrompts,
    called_back,
    guidance_of,
    paired_attention,
)
from counterfoil.models.adapters import Adapter
from counterfoil.models.diffusion import native_size
from counterfoil.models.generators import Family, family_of
from counterfoil.models.generators.family import bytes_of, company, encode_prompt, interpolated, join_encoded
from counterfoil.models.loading_errors import computing
from counterfoil.models.loras import Loras
from counterfoil.models.pipeline_settings import pipeline_problems

if TYPE_CHECKING:
    import torch

    from counterfoil.plan import Sample
    from counterfoil.recipe import Recipe

# What the prompts that are kept may take: a thousand of XL's, or sixty of FLUX.1's in 16 bits.
_REMEMBERED = 2**28


class Renderer:
    """Turns batches of samples into images with one loaded pipeline.

    The noise of a sample comes from a CPU generator of its own seed, and short batches are padded to
    the recipe's batch size, so an image depends on its batch's size and on nothing else around it.
    `embeddings` are those that some samples are drawn from; `adapter` is by which the pipeline takes them, if by one.
    `loras` are the weights that are added to it.
    """

    def __init__(
        self,
        pipeline: Any,
        recipe: Recipe,
        embeddings: ImageEmbeddings | None = None,
        adapter: Adapter | None = None,
        loras: Loras | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.embeddings = embeddings
        self.adapter = adapter
        self.loras = loras
        self._lora_of = {shift.name: shift.lora for shift in recipe.all_shifts() if shift.lora is not None}
        self.generator = recipe.generator
        self.held = recipe.samples.held
        self.family = self._family(recipe)
        if self.generator.lora and loras is None:
            raise ValueError("the recipe has LoRA weights, and none are loaded")
        self.side = recipe.generator.size or native_size(pipeline)
        self.guided = self.family.guided(self.generator.guidance, self.generator.options)
        self._encoded: dict[str, dict[str, Any]] = {}
        self._negative: dict[str, Any] = {}

    def _family(self, recipe: Recipe) -> Family:
        """Return the family that drives the pipeline. UserError for settings without effect."""
        name, unet = type(self.pipeline).__name__, getattr(self.pipeline, "unet", None)
        problems = list(pipeline_problems(recipe, {"_class_name": name}, None if unet is None else dict(unet.config)))
        if problems:
            raise UserError(problems)
        family = family_of(name)
        assert family is not None  # else there was a problem
        return family

    def encode(self, prompt: str) -> dict[str, Any]:
        """Return the embeddings of a prompt, encoded alone (its neighbours change no bit) and remembered for a while.

        The negative prompt's are encoded once: they do not depend on the prompt.
        """
        if prompt not in self._encoded:
            import torch

            negative_too = self.guided and not self._negative
            with self.computing("encode a prompt"), self._ids_in_bounds(), torch.inference_mode():
                parts = encode_prompt(
                    self.family,
                    self.pipeline,
                    prompt,
                    self.generator.negative_prompt,
                    guided=negative_too,
                    options=self.generator.options,
                )
            if negative_too:
                self._negative = {name: part for name, part in parts.items() if name.startswith("negative")}
            taken = sum(bytes_of(each) for each in self._encoded.values())
            while self._encoded and taken + bytes_of(parts) > _REMEMBERED:
                taken -= bytes_of(self._encoded.pop(next(iter(self._encoded))))  # the oldest: one prompt after another
            self._encoded[prompt] = parts | self._negative
        return self._encoded[prompt]

    def conditioning(self, sample: Sample) -> dict[str, Any]:
        """Return the encoded prompt of a sample's first step: its own, or one on the way from its base's."""
        own, between = self.encode(sample.prompt or ""), sample.between
        if between is None or between.by == "lora":
            return own
        try:
            return interpolated(self.encode(between.base_prompt), own, 0 if between.by == "steps" else between.scale)
        except ValueError as error:
            raise RunFailure(
                f"{sample.key}: there is no way from the base's prompt to its own: {error}",
                "Shorten the longer prompt, or take the levels out of this shift.",
            ) from error

    def _ids_in_bounds(self) -> contextlib.AbstractContextManager[None]:
        """Bound the ids that text encoders look up by their tables."""
        import torch

        from counterfoil.models.trials import ids_in_bounds

        parts = [part for name, part in self.pipeline.components.items() if name.startswith("text_encoder")]
        return ids_in_bounds(self.generator.model, *[part for part in parts if isinstance(part, torch.nn.Module)])

    def render(self, samples: Sequence[Sample]) -> list[np.ndarray | None]:
        """uint8 [side, side, 3] of each sample; None where the pipeline gave no finite numbers.

        Raises ValueError for more samples than a batch, RunFailure when memory runs out or the model cannot do it.
        """
        return self.ahead(samples)()

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """Start `render`; the returned function waits for the GPU."""
        count = len(samples)
        if not 0 < count <= self.generator.batch_size:
            raise ValueError(f"{count} samples, expected 1 to {self.generator.batch_size}")
        drawn = list(self._lots(samples))  # all of them, before any is waited for

        def pictures() -> list[np.ndarray | None]:
            images: list[np.ndarray | None] = [None] * count
            for indices, wait in drawn:
                for index, image in zip(indices, wait(), strict=True):
                    images[index] = image
            return images

        return pictures

    def _lots(self, samples: Sequence[Sample]) -> Iterator[tuple[list[int], DrawnAhead]]:
        """Yield the indices of samples that are drawn together, and their pictures under way."""
        companies: dict[Hashable, list[int]] = {}
        for index, sample in enumerate(samples):
            companies.setdefault(self._company(sample), []).append(index)
        # Each in a full batch of its own: a picture must not depend on whether its neighbours are of its kind.
        for indices in companies.values():
            yield indices, self._drawn([samples[index] for index in indices])

    def _company(self, sample: Sample) -> Hashable:
        """Return what samples must have in common to share a batch: kind, and prompts that join as they are."""
        if sample.base_prompt is not None:
            encoded = self.encode(sample.base_prompt), self.conditioning(sample)
            return "pair", *(company(self.family, parts) for parts in encoded)
        drawn_from = self._vector(sample) is not None
        if self.family.prompts != "encoded":
            return drawn_from
        return drawn_from, company(self.family, self.conditioning(sample)), *self._lora_scales(sample).values()

    def _drawn(self, samples: Sequence[Sample]) -> DrawnAhead:
        """Draw samples that share a batch."""
        import torch

        if samples[0].base_prompt is not None:
            half = self.generator.batch_size // 2
            pairs = [samples[start : start + half] for start in range(0, len(samples), half)]
            return as_pictures(torch.cat([self._beside_bases(some) for some in pairs]))
        if self.family.prompts == "plain":
            drawn = []
            for sample in samples:
                # An unknown pipeline may draw from torch's global state.
                with self._ids_in_bounds(), own_randomness(sample.seed, self.pipeline._execution_device):
                    drawn.append(self._called(self._plain(sample), [sample]))
            return as_pictures(torch.cat(drawn))
        padded = [*samples, *[samples[-1]] * (self.generator.batch_size - len(samples))]
        arguments: dict[str, Any] = {}
        if self.family.prompted:
            arguments = join_encoded([self.conditioning(sample) for sample in padded])
        vectors = [vector for sample in padded if (vector := self._vector(sample)) is not None]
        if vectors:
            arguments |= self._conditioned(vectors)
        with self.adapter.used() if vectors and self.adapter is not None else contextlib.nullcontext():
            return as_pictures(self._called(arguments, padded)[: len(samples)])

    def _beside_bases(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Draw shifted images, each beside its base in one full batch: bases first, from the same noise."""
        half = self.generator.batch_size // 2
        padded = [*samples, *[samples[-1]] * (half - len(samples))]
        bases = [replace(sample, prompt=sample.base_prompt, base_prompt=None, between=None) for sample in padded]
        arguments = join_encoded([self.conditioning(sample) for sample in (*bases, *padded)])
        held = HeldParts(half, self.held.share, self.held.until)
        with paired_attention(self.pipeline, self.family, half):
            return self._called(arguments, [*bases, *padded], held)[half : half + len(samples)]

    def _plain(self, sample: Sample) -> dict[str, Any]:
        """Return the arguments of a prompt that the pipeline encodes itself."""
        negative = self.generator.negative_prompt
        if negative is None and self.guided:
            negative = self.family.blank
        return {"prompt": sample.prompt or ""} | ({} if negative is None else {"negative_prompt": negative})

    def _called(
        self, arguments: Mapping[str, Any], samples: Sequence[Sample], held: HeldParts | None = None
    ) -> torch.Tensor:
        """Call the pipeline: pixels [n, 3, side, side] of each sample, each from its own noise."""
        import torch

        family, generator = self.family, self.generator
        guidance = {} if family.scale is None else {family.scale: generator.guidance}
        if generator.guidance_interval is not None:
            guidance = guidance_of(generator, arguments)
        if (later := self._later(samples)) is not None:
            guidance = called_back(guidance, later, tuple(later.own))
        if held is not None:
            guidance = called_back(guidance, held, ("latents",))
        noise = [torch.Generator("cpu").manual_seed(sample.seed) for sample in samples]
        used = contextlib.nullcontext() if self.loras is None else self.loras.used(self._lora_scales(samples[0]))
        with self.computing("render"), torch.inference_mode(), used:
            pixels = self.pipeline(
                **dict(family.sets) | dict(family.sized(self.side)) | generator.options,
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
            raise UserError(f"generator.size is {self.side}, but '{generator.model}' renders {wide} × {high}")
        return pixels

    def _later(self, samples: Sequence[Sample]) -> LaterPrompts | None:
        """Return the prompts that come in only after some steps, or None."""
        ways = [sample.between for sample in samples]
        begin = [1 - way.scale if way is not None and way.by == "steps" else 0.0 for way in ways]
        if not any(begin):
            return None
        return LaterPrompts(join_encoded([self.encode(sample.prompt or "") for sample in samples]), begin)

    def _lora_scales(self, sample: Sample) -> dict[str, float]:
        """Return the scales of the LoRA weights that levels are of: a share for a level of this one, none for any other
        image.

        Samples of other scales share no call.
        """
        level = 1 if sample.between is None else sample.between.scale
        scales = {name: level * self.generator.lora[name].scale for name in self._lora_of.values()}
        return {name: scale if name == self._lora_of.get(sample.shift) else 0.0 for name, scale in scales.items()}

    def _vector(self, sample: Sample) -> np.ndarray | None:
        return None if self.embeddings is None else self.embeddings.of(sample.shift, sample.class_id)

    def _conditioned(self, vectors: Sequence[Any]) -> Mapping[str, Any]:
        """Return the arguments of image embeddings."""
        import torch

        assert self.family.conditioned is not None
        unet = self.pipeline.unet
        guided = self.guided and unet.config.get("time_cond_proj_dim") is None
        stacked = torch.from_numpy(np.stack(vectors)).to(device=self.pipeline._execution_device, dtype=unet.dtype)
        return self.family.conditioned(stacked, guided)

    def computing(self, doing: str) -> contextlib.AbstractContextManager[None]:
        """Raise RunFailure for whatever the pipeline raises; `doing` is what it was about to do."""
        return computing(
            f"generator.model: '{self.generator.model}'",
            doing,
            str(self.pipeline._execution_device),
            less_memory=f"Set a generator.batch_size below {self.generator.batch_size} (another plan: build into a new"
            " directory).",
        )


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch's global generators begin at `seed`, on the CPU and on `device`; afterwards they are as before."""
    import torch

    if device.type in ("cpu", "meta"):
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            yield
        return
    module = torch.get_device_module(device)
    place = device.index if device.index is not None else torch.accelerator.current_device_index()
    with torch.random.fork_rng([place], device_type=device.type), torch.accelerator.device_index(place):
        # Not torch.manual_seed, which seeds every GPU: only what is set back may change.
        torch.default_generator.manual_seed(seed)
        module.manual_seed(seed)
        yield
