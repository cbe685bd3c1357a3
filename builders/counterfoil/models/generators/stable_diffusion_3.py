"""Stable Diffusion 3 and 3.5: two CLIP text encoders and, where the model brings it, T5, whose states follow theirs."""

from counterfoil.models.generators.family import Family

STABLE_DIFFUSION_3 = Family(
    name="Stable Diffusion 3 or 3.5",
    pipelines=("StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline", "StableDiffusion3InpaintPipeline"),
    outputs=("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds"),
    multiple=16,
    usual_steps=28,
    usual_guidance=7.0,
    pairs="joint",
)
