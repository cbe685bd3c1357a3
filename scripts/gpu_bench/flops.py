"""How many floating-point operations an image takes, and what a GPU could do at most.

Operations are counted on the architectures themselves without computing any. The most is that of
dense bf16 products on tensor cores, with sums in float32, by the maker's datasheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_bench.architectures import Architecture, parts


@dataclass(frozen=True)
class Flops:
    """Of one image: a pass of the UNet, the VAE's decoder, and CLIP; products and sums count as one
    each."""

    unet: int
    vae: int
    clip: int

    def image(self, passes: int) -> int:
        """Return the operations of a whole image with this many calls of the UNet. Prompts are
        encoded once for many images."""
        return passes * self.unet + self.vae + self.clip


def count(architecture: Architecture, clip: Mapping[str, Any]) -> Flops:
    """Count on tensors without content (`meta`), so that it takes seconds on any machine."""
    import open_clip
    import torch

    side = architecture.side // 8
    width = architecture.unet["cross_attention_dim"]
    with torch.device("meta"):
        made = parts(architecture)
        latents = torch.zeros(1, 4, side, side)
        states = torch.zeros(1, 77, width)
        more: dict[str, Any] = {}
        if "addition_embed_type" in architecture.unet:
            pooled = torch.zeros(1, architecture.texts[-1]["projection_dim"])
            more["added_cond_kwargs"] = {"text_embeds": pooled, "time_ids": torch.zeros(1, 6)}
        image = clip["vision_cfg"]["image_size"]
        model = open_clip.CLIP(**clip)
        return Flops(
            _of(
                lambda: made["unet"](latents, torch.tensor(1), encoder_hidden_states=states, **more)
            ),
            _of(lambda: made["vae"].decode(latents)),
            _of(lambda: model.encode_image(torch.zeros(1, 3, image, image))),
        )


def _of(forward: Callable[[], Any]) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counted:
        forward()
    return counted.get_total_flops()


# Name as torch gives it → (TFLOPS, source). Datasheets give twice as much "with sparsity"; dense is
# half of it.
PEAKS: tuple[tuple[str, float, str], ...] = (
    (r"H200 NVL", 835.5, "NVIDIA H200 datasheet: 1,671 with sparsity"),
    (r"H200", 989.5, "NVIDIA H200 datasheet: 1,979 with sparsity"),
    (r"H100 PCIe", 756.5, "NVIDIA H100 PCIe datasheet: 1,513 with sparsity"),
    (r"H100 NVL", 835.5, "NVIDIA H100 datasheet: 1,671 with sparsity"),
    (r"H100( SXM\S*)? 80GB HBM3", 989.5, "NVIDIA H100 datasheet, SXM: 1,979 with sparsity"),
    (r"GH200", 989.5, "NVIDIA GH200 datasheet: 1,979 with sparsity"),
    (r"A100", 312.0, "NVIDIA A100 datasheet: 312"),
    (r"L40S", 362.0, "NVIDIA L40S datasheet: 362.05"),
    (r"L4", 121.0, "NVIDIA L4 datasheet: 242 with sparsity"),
    (r"A40", 149.7, "NVIDIA A40 datasheet: 149.7"),
    (r"A10", 125.0, "NVIDIA A10 datasheet: 125"),
    (r"GeForce RTX 4090", 165.2, "NVIDIA Ada architecture whitepaper, appendix: 165.2"),
    (r"GeForce RTX 3090", 71.0, "NVIDIA GA102 architecture whitepaper: 71"),
)


def dense_bf16_peak(device: str) -> tuple[float, str] | None:
    """Return TFLOPS and their source for the name of a GPU; None for a CPU or a GPU that is not in
    the table."""
    for name, teraflops, source in PEAKS:
        # The whole name, but for memory and socket: a 4090 D or a laptop's is another chip.
        if re.fullmatch(rf"(NVIDIA )?({name})(-(SXM4|PCIE)-\d+GB| \d+GB PCIe)?", device):
            return teraflops, source
    return None
