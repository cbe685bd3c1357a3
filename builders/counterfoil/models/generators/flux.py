"""FLUX.1 draws from T5's states and CLIP's pooled text. Kontext edits an image by a prompt, or
draws without an image.

The weights are distilled, and take the recipe's guidance as an input. The option `true_cfg_scale`
turns on guidance that also draws with a negative prompt.
"""

from counterfoil.models.generators.family import Family

FLUX = Family(
    name="FLUX.1",
    pipelines=("FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline"),
    # The third output, positions of text tokens, is zeros, which a call makes itself.
    outputs=("prompt_embeds", "pooled_prompt_embeds", None),
    apart=True,
    blank="",
    led_by="true_cfg_scale",
    multiple=16,
    levels=True,
    takes_tokens=True,  # CLIP takes them; T5 reads a token's name as ordinary letters
    lora="transformer",
    pairs="flux",
)


FLUX_KONTEXT = Family(
    name="FLUX.1 Kontext",
    pipelines=("FluxKontextPipeline",),
    prompts="plain",
    blank="",
    led_by="true_cfg_scale",
    multiple=16,
    # By default, a call resizes given and drawn images to the area of training images, 1024²
    # pixels.
    sized=lambda side: {
        "height": side,
        "width": side,
        "max_area": side * side,
        "_auto_resize": False,
    },
    output="np",
    edits="pipeline",
)
