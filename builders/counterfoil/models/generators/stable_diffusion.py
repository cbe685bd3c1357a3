"""Stable Diffusion with one CLIP text encoder (1, 2, unCLIP), two (XL), or two and T5 (3, 3.5);
InstructPix2Pix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterfoil.models.generators.family import Family, by_adapter

if TYPE_CHECKING:
    import torch

STABLE_DIFFUSION = Family(
    name="Stable Diffusion 1.x or 2.x",
    # model_index.json may name a pipeline for another task; diffusers opens it as text to image.
    # The last is distilled.
    pipelines=(
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "LatentConsistencyModelPipeline",
    ),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    interval=True,
    levels=True,
    takes_tokens=True,
    learns_tokens=True,
    takes="adapter",
    conditioned=by_adapter,
    lora="unet",
    pairs="unet",
    edits="inversion",
)


STABLE_DIFFUSION_XL = replace(
    STABLE_DIFFUSION,
    name="Stable Diffusion XL",
    pipelines=(
        "StableDiffusionXLPipeline",
        "StableDiffusionXLImg2ImgPipeline",
        "StableDiffusionXLInpaintPipeline",
    ),
    outputs=(
        "prompt_embeds",
        "negative_prompt_embeds",
        "pooled_prompt_embeds",
        "negative_pooled_prompt_embeds",
    ),
)

STABLE_DIFFUSION_3 = Family(
    name="Stable Diffusion 3 or 3.5",
    pipelines=(
        "StableDiffusion3Pipeline",
        "StableDiffusion3Img2ImgPipeline",
        "StableDiffusion3InpaintPipeline",
    ),
    outputs=(
        "prompt_embeds",
        "negative_prompt_embeds",
        "pooled_prompt_embeds",
        "negative_pooled_prompt_embeds",
    ),
    multiple=16,
    levels=True,
    lora="transformer",
    pairs="joint",
)


def _conditioned(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    # Even level 0 adds noise. It is drawn from each image's own generator, before the latents.
    return {"image_embeds": vectors, "noise_level": 0}


def _width(unet: Mapping[str, Any]) -> Any:
    # the embedding, and a noise level of the same width
    both = unet.get("projection_class_embeddings_input_dim")
    return both // 2 if isinstance(both, int) else None


STABLE_UNCLIP = Family(
    name="Stable unCLIP",
    pipelines=("StableUnCLIPImg2ImgPipeline",),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    takes="every",
    conditioned=_conditioned,
    width=_width,
    own_settings=("noise_level",),
    takes_tokens=True,
)

# The prompt is an instruction; the option `image_guidance_scale` decides how much of the image is
# kept.
INSTRUCT_PIX2PIX = Family(
    name="InstructPix2Pix",
    pipelines=("StableDiffusionInstructPix2PixPipeline",),
    prompts="plain",
    sized=lambda side: {},  # the size is that of its image
    output="np",
    edits="pipeline",
    needs_image=True,
)
