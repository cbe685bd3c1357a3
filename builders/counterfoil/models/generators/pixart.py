"""PixArt-α and PixArt-Σ: T5's states, padded to a fixed length; Sana: Gemma's, and latents of a 32nd of a side."""

from dataclasses import replace

from counterfoil.models.generators.family import Family

PIXART = Family(
    name="PixArt",
    pipelines=("PixArtSigmaPipeline", "PixArtAlphaPipeline"),
    outputs=(
        "prompt_embeds",
        "prompt_attention_mask",
        "negative_prompt_embeds",
        "negative_prompt_attention_mask",
    ),
    multiple=16,
    # With bins it draws another size and resizes; the default negative prompt, "", may not be passed with embeddings.
    sets={"use_resolution_binning": False, "negative_prompt": None},
)

SANA = replace(PIXART, name="Sana", pipelines=("SanaPipeline",), multiple=32, lora="transformer")
