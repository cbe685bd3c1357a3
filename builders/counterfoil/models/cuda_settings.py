"""How a GPU computes: its kinds of arithmetic while a worker works, and the layout of what convolves.

Attention needs nothing here: diffusers asks torch's own (`scaled_dot_product_attention`), which chooses by the device.
Other settings are other bytes, so that all of them are of the stack (`told`). On a CPU nothing is set and nothing told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# What a stack says of a GPU beside its name. A change here is another stack, as the bytes are others.
_TOLD = {
    # Products of float32 by TF32: where a recipe asks for float32, and in CLIP. Convolutions have it by default.
    "float32": "tf32",
    # NHWC, which tensor cores read without turning it first.
    "layout": "channels last",
}
# Parts of a pipeline that convolve; transformers have a convolution or none.
_CONVOLVING = ("unet", "vae", "movq")


def told(device: str) -> dict[str, Any]:
    """What of a device's settings bytes depend on; nothing on a CPU."""
    return {"arithmetic": dict(_TOLD)} if device.startswith("cuda") else {}


@contextlib.contextmanager
def computing_on(device: str) -> Iterator[None]:
    """For the time of a GPU's work: TF32, and convolutions by an algorithm that no measurement chooses.

    A measurement (`cudnn.benchmark`) may end otherwise in the next process, and with it the bytes. Restored afterwards:
    what else this process computes on a GPU is remembered by names that say nothing of these settings.
    """
    if not device.startswith("cuda"):
        yield
        return
    with reproducible():
        yield


@contextlib.contextmanager
def reproducible() -> Iterator[None]:
    """The settings of `computing_on`, whatever there is to compute on."""
    import torch

    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
    torch.set_float32_matmul_precision("high")
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.benchmark, cudnn.deterministic = before[1:]


def lay_out(pipeline: Any, device: str) -> None:
    """Turn what convolves of a pipeline to the layout that its GPU reads fastest. Nothing on a CPU."""
    if device.startswith("cuda"):
        channels_last(pipeline)


def channels_last(pipeline: Any) -> None:
    """Turn what convolves of a pipeline to NHWC; what convolves over time as well (five axes) stays as it is."""
    import torch

    for name in _CONVOLVING:
        part = getattr(pipeline, name, None)
        if isinstance(part, torch.nn.Module) and all(weights.ndim < 5 for weights in part.parameters()):
            # torch 2.10 annotates no format alone.
            part.to(memory_format=torch.channels_last)  # pyrefly: ignore[no-matching-overload]
