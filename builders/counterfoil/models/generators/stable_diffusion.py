"""Stable Diffusion 1 and 2: one CLIP text encoder, whose states the UNet attends to."""

from counterfoil.models.generators.family import Family

STABLE_DIFFUSION = Family(
    name="Stable Diffusion 1.x or 2.x",
    # The index of a pipeline for another task names its class; its parts are those of text to image.
    pipelines=(
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "LatentConsistencyModelPipeline",
    ),
    embeddings=("prompt_embeds", "negative_prompt_embeds"),
)
