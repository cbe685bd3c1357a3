"""Qwen-Image: a language model's states of the prompt, one a token; Qwen-Image-Edit edits an image by a prompt."""

from __future__ import annotations

from counterfoil.models.generators.family import Encoded, Family

# Most prompts are shorter, so almost all can share a batch; an image has 4,096 tokens, so the padding costs little.
_STEP = 64


def _settled(parts: Encoded) -> Encoded:
    """Pad to a multiple of `_STEP`, by at least one token, so that the padding and the mask ignore the batch."""
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


QWEN_IMAGE_EDIT = Family(
    name="Qwen-Image-Edit",
    pipelines=("QwenImageEditPipeline", "QwenImageEditPlusPipeline"),
    prompts="plain",
    blank=" ",  # as above
    scale="true_cfg_scale",
    multiple=16,
    output="np",
    edits="pipeline",
    needs_image=True,
)
