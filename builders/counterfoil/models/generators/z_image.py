"""Z-Image: a list of the states of a language model, one tensor a prompt, each as long as its prompt."""

from __future__ import annotations

from collections.abc import Hashable

from counterfoil.models.generators.family import Encoded, Family

_STEP = 32  # SEQ_MULTI_OF of the transformer, which pads each prompt to a multiple of it


def _company(parts: Encoded) -> Hashable:
    """Return a key of the padded lengths: prompts of other lengths would be padded and masked in a batch."""
    return tuple((name, *(-(-len(states) // _STEP) for states in value)) for name, value in parts.items())


Z_IMAGE = Family(
    name="Z-Image",
    pipelines=("ZImagePipeline",),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    company=_company,
    above=0.0,
    multiple=16,
    lora="transformer",
)
