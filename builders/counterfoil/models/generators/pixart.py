"""PixArt-α and PixArt-Σ draw from T5's states, padded to a fixed length, and Sana from those of
Gemma."""

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
    # With bins, it would draw another size and resize. The default negative prompt is not allowed
    # with embeddings.
    sets={"use_resolution_binning": False, "negative_prompt": None},
)

SANA = replace(PIXART, name="Sana", pipelines=("SanaPipeline",), multiple=32, lora="transformer")
