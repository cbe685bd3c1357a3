"""FLUX.1: T5's states and CLIP's pooled text; Kontext edits an image by a prompt, and draws without one too.

The recipe's guidance is the one that the weights were distilled with. The option `true_cfg_scale` turns on guidance
that draws twice, with a negative prompt.
"""

from counterfoil.models.generators.family import Family

FLUX = Family(
    name="FLUX.1",
    pipelines=("FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline"),
    # The third output, the positions of text tokens, is zeros; a call makes it itself.
    outputs=("prompt_embeds", "pooled_prompt_embeds", None),
    apart=True,
    blank="",
    led_by="true_cfg_scale",
    multiple=16,
    levels=True,
    takes_tokens=True,  # in its CLIP; T5 reads the placeholder as ordinary letters
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
    # By default its call resizes images, given and drawn, to the area of 1024² of its training.
    sized=lambda side: {"height": side, "width": side, "max_area": side * side, "_auto_resize": False},
    output="np",
    edits="pipeline",
)
