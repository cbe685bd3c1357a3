"""Z-Image draws from a language model's states: a list with a tensor for each prompt, as long as
the prompt."""

from __future__ import annotations

import math
from collections.abc import Hashable

from counterfoil.models.generators.family import Encoded, Family

_STEP = 32  # the transformer pads each prompt to a multiple of it (SEQ_MULTI_OF)


def _company(parts: Encoded) -> Hashable:
    """Return a key of the padded lengths. A batch of unequal padded lengths would add padding and
    masks."""
    key = []
    for name, value in parts.items():
        key.append((name, *(math.ceil(len(states) / _STEP) for states in value)))
    return tuple(key)


Z_IMAGE = Family(
    name="Z-Image",
    pipelines=("ZImagePipeline",),
    outputs=("prompt_embeds", "negative_prompt_embeds"),
    company=_company,
    above=0.0,
    multiple=16,
    lora="transformer",
)
