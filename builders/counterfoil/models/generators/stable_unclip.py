"""Stable unCLIP: Stable Diffusion 2 that also draws from a CLIP image embedding, which every image needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.models.generators.family import Family

if TYPE_CHECKING:
    import torch


def _conditioned(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    # The least noise is still some: it comes from each image's own generator, before the latents.
    return {"image_embeds": vectors, "noise_level": 0}


def _width(unet: Mapping[str, Any]) -> Any:
    both = unet.get("projection_class_embeddings_input_dim")  # the embedding, and as many numbers for its noise
    return both // 2 if isinstance(both, int) else None


STABLE_UNCLIP = Family(
    name="Stable unCLIP",
    pipelines=("StableUnCLIPImg2ImgPipeline",),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    takes="every",
    conditioned=_conditioned,
    width=_width,
    usual_steps=20,
    usual_guidance=10.0,
    own=("noise_level",),
    takes_tokens=True,
)
