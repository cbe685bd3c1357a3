"""FLUX.1: T5's states and CLIP's pooled text. The recipe's guidance is what its weights were distilled with.

Guidance that draws twice, with a negative prompt, is the option `true_cfg_scale`.
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
    takes_tokens=True,  # into its CLIP; T5 reads a placeholder's letters
    pairs="flux",
)
