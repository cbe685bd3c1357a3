"""Sana: the states of Gemma, padded to a fixed length, and latents of a 32nd of a side."""

from counterfoil.models.generators.family import Family

SANA = Family(
    name="Sana",
    pipelines=("SanaPipeline",),
    outputs=(
        "prompt_embeds",
        "prompt_attention_mask",
        "negative_prompt_embeds",
        "negative_prompt_attention_mask",
    ),
    multiple=32,
    usual_steps=20,
    usual_guidance=4.5,
    # Bins would draw another size and scale it; a call's own negative prompt, "", may not come beside embeddings.
    sets={"use_resolution_binning": False, "negative_prompt": None},
)
