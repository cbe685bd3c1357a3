"""Stable Diffusion 1 and 2: one CLIP text encoder, whose states the UNet attends to."""

from counterfoil.models.generators.family import Family, by_adapter

STABLE_DIFFUSION = Family(
    name="Stable Diffusion 1.x or 2.x",
    # What diffusers opens as text to image (an index may name a pipeline for another task), and distilled models.
    pipelines=(
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "LatentConsistencyModelPipeline",
    ),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    interval=True,
    usual_steps=50,
    usual_guidance=7.5,
    takes_tokens=True,
    learns_tokens=True,
    takes="adapter",
    conditioned=by_adapter,
    pairs="unet",
    edits="inversion",
)
