"""Stable Diffusion XL: two CLIP text encoders, and the second one's pooled text beside the states."""

from counterfoil.models.generators.family import Family, by_adapter

STABLE_DIFFUSION_XL = Family(
    name="Stable Diffusion XL",
    pipelines=("StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline"),
    outputs=("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds"),
    interval=True,
    usual_steps=50,
    usual_guidance=5.0,
    takes_tokens=True,
    learns_tokens=True,
    takes="adapter",
    conditioned=by_adapter,
    pairs="unet",
    edits="inversion",
)
