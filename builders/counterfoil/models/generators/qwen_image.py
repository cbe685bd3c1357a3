"""Qwen-Image: the states of a language model that reads the prompt, as many as the prompt has tokens.

Qwen-Image-Edit edits an image by a prompt, which the language model reads beside it at 1024² whatever is drawn.
"""

from __future__ import annotations

from counterfoil.models.generators.family import Encoded, Family

# Most prompts are shorter, so that almost all share a batch; beside an image's 4,096 tokens these cost little.
_STEP = 64


def _settled(parts: Encoded) -> Encoded:
    """Padded to whole steps, the last of them never full.

    The pipeline pads to the longest prompt of a batch, and drops the mask where no prompt is padded: either would let a
    picture depend on its neighbours.
    """
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
    blank=" ",  # without a negative prompt its guidance does nothing
    settled=_settled,
    scale="true_cfg_scale",
    multiple=16,
    usual_steps=50,
    usual_guidance=4.0,
    lora="transformer",
)


QWEN_IMAGE_EDIT = Family(
    name="Qwen-Image-Edit",
    pipelines=("QwenImageEditPipeline", "QwenImageEditPlusPipeline"),
    prompts="plain",
    blank=" ",  # it is guided only where it has a negative prompt
    scale="true_cfg_scale",
    multiple=16,
    usual_steps=50,
    usual_guidance=4.0,
    output="np",
    edits="pipeline",
    needs_image=True,
)
