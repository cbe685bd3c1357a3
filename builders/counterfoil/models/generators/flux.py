"""FLUX.1: T5's states and CLIP's pooled text; Kontext edits an image by a prompt, and draws without one too.

The recipe's guidance is what its weights were distilled with. Guidance that draws twice, with a negative prompt, is the
option `true_cfg_scale`.
"""

from counterfoil.models.generators.family import Family

FLUX = Family(
    name="FLUX.1",
    pipelines=("FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline"),
    # The places of the text's tokens are zeros, which a call makes again.
    outputs=("prompt_embeds", "pooled_prompt_embeds", None),
    apart=True,
    blank="",
    led_by="true_cfg_scale",
    multiple=16,
    usual_steps=28,
    usual_guidance=3.5,
    levels=True,
    takes_tokens=True,  # into its CLIP; T5 reads a placeholder's letters
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
    usual_steps=28,
    usual_guidance=3.5,
    # Its call would bring images, drawn and given, to the area of 1024² that it learned from.
    sized=lambda side: {"height": side, "width": side, "max_area": side * side, "_auto_resize": False},
    output="np",
    edits="pipeline",
)
