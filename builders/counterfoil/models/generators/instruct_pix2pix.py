"""InstructPix2Pix: a prompt that says what to change of an image. How near it stays is `image_guidance_scale`."""

from counterfoil.models.generators.family import Family

INSTRUCT_PIX2PIX = Family(
    name="InstructPix2Pix",
    pipelines=("StableDiffusionInstructPix2PixPipeline",),
    prompts="plain",
    usual_steps=100,
    usual_guidance=7.5,
    sized=lambda side: {},  # as its image is
    output="np",
    edits="pipeline",
    needs_image=True,
)
