"""Qwen-Image draws from a language model's states of a prompt's tokens. Qwen-Image-Edit edits an
image by a prompt."""

from __future__ import annotations

from counterfoil.models.generators.family import Encoded, Family

# Most prompts have fewer tokens, so most can share a batch. Beside an image's 4,096 tokens, padding
# costs little.
_STEP = 64


def _settled(parts: Encoded) -> Encoded:
    """Pad by at least a token, to a multiple of `_STEP`, so that padding and mask do not depend on
    the batch."""
    from torch.nn import functional

    states = parts["prompt_embeds"]
    length = states.shape[1]
    mask = parts.get("prompt_embeds_mask")
    mask = states.new_ones(states.shape[:2], dtype=int) if mask is None else mask
    more = (length // _STEP + 1) * _STEP - length
    return {
        "prompt_embeds": functional.pad(states, (0, 0, 0, more)),
        "prompt_embeds_mask": functional.pad(mask, (0, more)),
    }


QWEN_IMAGE = Family(
    name="Qwen-Image",
    pipelines=("QwenImagePipeline",),
    outputs=("prompt_embeds", "prompt_embeds_mask"),
    apart=True,
    blank=" ",  # without a negative prompt its guidance has no effect
    settled=_settled,
    scale="true_cfg_scale",
    multiple=16,
    lora="transformer",
)


# A call resizes the given image to an area of 1,024² pixels, whatever it draws: only at that side do
# the positions of the given and of the drawn image agree.
QWEN_IMAGE_EDIT = Family(
    name="Qwen-Image-Edit",
    pipelines=("QwenImageEditPipeline", "QwenImageEditPlusPipeline"),
    prompts="plain",
    blank=" ",  # as for Qwen-Image
    scale="true_cfg_scale",
    multiple=16,
    output="np",
    edits="pipeline",
    needs_image=True,
)
