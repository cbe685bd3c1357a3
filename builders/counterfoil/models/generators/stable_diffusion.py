"""Stable Diffusion 1 and 2: one CLIP text encoder, whose states the UNet attends to."""

from counterfoil.models.generators.family import Family

STABLE_DIFFUSION = Family(
    name="Stable Diffusion 1.x or 2.x",
    pipelines=("StableDiffusionPipeline",),
    embeddings=("prompt_embeds", "negative_prompt_embeds"),
)
