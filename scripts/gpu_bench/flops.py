"""How many floating-point operations an image takes, counted on the architectures themselves without computing any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_bench.architectures import Architecture, parts


@dataclass(frozen=True)
class Flops:
    """Of one image: a pass of the UNet, the VAE's decoder, and CLIP; products and sums count as one each."""

    unet: int
    vae: int
    clip: int

    def image(self, passes: int) -> int:
        """Of a whole image that the UNet is asked about so many times. Prompts are encoded once for many images."""
        return passes * self.unet + self.vae + self.clip


def count(architecture: Architecture, clip: Mapping[str, Any]) -> Flops:
    """Counted on tensors without content (`meta`), so that it takes seconds on any machine."""
    import open_clip
    import torch

    side = architecture.side // 8
    width = architecture.unet["cross_attention_dim"]
    with torch.device("meta"):
        made = parts(architecture)
        latents, states = torch.zeros(1, 4, side, side), torch.zeros(1, 77, width)
        more: dict[str, Any] = {}
        if "addition_embed_type" in architecture.unet:
            pooled = torch.zeros(1, architecture.texts[-1]["projection_dim"])
            more["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": torch.zeros(1, 6)}
        image = clip["vision_cfg"]["image_size"]
        model = open_clip.CLIP(**clip)
        return Flops(
            _of(lambda: made["unet"](latents, torch.tensor(1), encoder_hidden_states=states, **more)),
            _of(lambda: made["vae"].decode(latents)),
            _of(lambda: model.encode_image(torch.zeros(1, 3, image, image))),
        )


def _of(forward: Callable[[], Any]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        forward()
    return counted.get_total_flops()
