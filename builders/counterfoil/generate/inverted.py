"""Edits by inversion: noise from which a diffusion model draws a real image, drawn from again under another prompt.

DDIM inversion (Song et al. 2021, "Denoising diffusion implicit models", section 4.3) gives the noise, and the image's
own way from it. The edit is drawn from that noise beside the image, and attends to its keys and values. No step of a
model under guidance leads back exactly: after each the image is put back on its way (Ju et al. 2023, "Direct
inversion"), and what the step missed is added to the edit as well, as the noise that explains a real image is added to
its edit by Wu and De la Torre 2023, "CycleDiffusion". So the edit under the image's own prompt is the image, but for
what the autoencoder loses, whatever the guidance and the number of steps; for what rounding would leave of it, the
image itself is taken there. All steps are diffusers' own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.generate.paired_attention import paired_attention
from counterfoil.models.encoded_prompts import joined

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from counterfoil.generate.render import Renderer
    from counterfoil.plan import Sample


class InvertedRows:
    """Draws rows anew under prompts, in calls of one size: half of a batch are rows, the other half their edits."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.pipeline = renderer.pipeline
        self.half = renderer.generator.batch_size // 2

    def edited(self, samples: Sequence[Sample], sources: Sequence[Image.Image]) -> torch.Tensor:
        """Pixels [n, 3, side, side] of up to half a batch of samples, each from its row's image."""
        import torch

        missing = self.half - len(samples)
        rows = [*samples, *[samples[-1]] * missing]
        images = [*sources, *[sources[-1]] * missing]
        with self.renderer._told("edit"), torch.inference_mode():
            way = self.way(rows, self._latents(images))
            drawn = self._drawn(rows, way)
        # Under its own prompt the edit is its row but for what rounding leaves, and the row is in the call itself.
        own = [
            place if sample.prompt == sample.base_prompt else self.half + place for place, sample in enumerate(samples)
        ]
        return drawn[own]

    def _latents(self, images: Sequence[Image.Image]) -> torch.Tensor:
        """The mean of what the autoencoder makes of images, scaled as the model knows it."""
        import torch

        vae = self.pipeline.vae
        number_type = vae.dtype
        pixels = torch.from_numpy(np.stack([np.asarray(image.convert("RGB")) for image in images]))
        pixels = pixels.permute(0, 3, 1, 2).float() / 127.5 - 1
        # As diffusers decodes: XL's first autoencoder overflows in 16 bits.
        upcast = number_type == torch.float16 and vae.config.get("force_upcast")
        if upcast:
            vae.to(torch.float32)
        latents = vae.encode(pixels.to(device=self.pipeline._execution_device, dtype=vae.dtype)).latent_dist.mode()
        if upcast:
            vae.to(number_type)
        mean, std = (vae.config.get(name) for name in ("latents_mean", "latents_std"))
        if mean is not None and std is not None:
            own = {"device": latents.device, "dtype": latents.dtype}
            latents = (latents - torch.tensor(mean, **own).view(1, -1, 1, 1)) / torch.tensor(std, **own).view(
                1, -1, 1, 1
            )
        return (latents * vae.config.scaling_factor).to(self.pipeline.unet.dtype)

    def way(self, samples: Sequence[Sample], latents: torch.Tensor) -> list[torch.Tensor]:
        """The latents of real images from none of the noise to all of it, one more than there are steps."""
        way = [latents]

        def remember(_pipeline: Any, _step: int, _time: Any, held: Mapping[str, Any]) -> dict[str, Any]:
            way.append(held["latents"].clone())
            return {}

        encoded = joined([self.renderer.encode(sample.base_prompt or "") for sample in samples])
        alone = {name: value for name, value in encoded.items() if not name.startswith("negative")}
        with self._stepping("DDIMInverseScheduler"):
            self._call(alone, samples, latents, remember, guidance_scale=1.0, output_type="latent")
        return way

    def _drawn(self, samples: Sequence[Sample], way: Sequence[torch.Tensor]) -> torch.Tensor:
        import torch

        def put_back(_pipeline: Any, step: int, _time: Any, held: Mapping[str, Any]) -> dict[str, Any]:
            reached, edits = held["latents"].split(self.half)
            due = way[-2 - step]
            return {"latents": torch.cat([due, edits + (due - reached)])}

        prompts = [sample.base_prompt or "" for sample in samples] + [sample.prompt or "" for sample in samples]
        encoded = joined([self.renderer.encode(prompt) for prompt in prompts])
        renderer = self.renderer
        with self._stepping("DDIMScheduler"), paired_attention(self.pipeline, renderer.family, self.half):
            return self._call(
                encoded,
                [*samples, *samples],
                torch.cat([way[-1], way[-1]]),
                put_back,
                guidance_scale=renderer.generator.guidance,
                output_type=renderer.family.output,
            )

    def _call(
        self, encoded: Mapping[str, Any], samples: Sequence[Sample], latents: torch.Tensor, callback: Any, **own: Any
    ) -> torch.Tensor:
        import torch

        renderer = self.renderer
        return self.pipeline(
            **dict(renderer.family.sets) | renderer.generator.options,
            **encoded,
            **own,
            latents=latents,
            generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
            num_inference_steps=renderer.generator.steps,
            height=renderer.side,
            width=renderer.side,
            callback_on_step_end=callback,
            callback_on_step_end_tensor_inputs=["latents"],
        ).images

    @contextlib.contextmanager
    def _stepping(self, name: str) -> Iterator[None]:
        """Inside, the pipeline steps by this scheduler of diffusers, over the same times either way."""
        import diffusers

        before = self.pipeline.scheduler
        # Latents go beyond 1, and clipped ones lead nowhere back. Named beside the configuration, for what that has by
        # default is left out of it.
        same = {"clip_sample": False, "thresholding": False, "timestep_spacing": "leading"}
        self.pipeline.scheduler = getattr(diffusers, name).from_config(before.config, **same)
        try:
            yield
        finally:
            self.pipeline.scheduler = before
