"""Set how torch computes: one thread, TF32, reproducible convolutions, the layout of tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# Part of the stack on a GPU, because these settings change the bytes of images.
_ARITHMETIC = {
    # Matrix products of float32 use TF32, in CLIP and in recipes with float32. Convolutions use
    # TF32 by default.
    "float32": "tf32",
    # The NHWC layout, which tensor cores read without a copy.
    "layout": "channels last",
}

# The parts of a pipeline that have many convolutions.
_CONVOLVING = ("unet", "vae", "movq")


def arithmetic(device: str) -> dict[str, Any]:
    """Return the settings of a GPU that the bytes of images depend on. Return an empty mapping for
    a CPU."""
    if device.startswith("cuda"):
        return {"arithmetic": dict(_ARITHMETIC)}
    return {}


@contextlib.contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Set a GPU to TF32 and to reproducible convolutions inside the block. Do nothing for a CPU.

    `cudnn.benchmark` is off: it would choose convolution algorithms by measuring their speed.
    """
    with reproducible() if device.startswith("cuda") else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def reproducible() -> Iterator[None]:
    """Make the settings of `computing_on` inside the block, whatever the device is."""
    import torch

    cudnn = torch.backends.cudnn
    precision = torch.get_float32_matmul_precision()
    benchmark = cudnn.benchmark
    deterministic = cudnn.deterministic
    torch.set_float32_matmul_precision("high")
    cudnn.benchmark = False
    cudnn.deterministic = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        cudnn.benchmark = benchmark
        cudnn.deterministic = deterministic


def channels_last(pipeline: Any) -> None:
    """Change the layout of a pipeline's convolutions to NHWC.

    Parts that convolve over time, whose weights have five axes, stay unchanged.
    """
    import torch

    for name in _CONVOLVING:
        part = getattr(pipeline, name, None)
        if not isinstance(part, torch.nn.Module):
            continue
        if all(weights.ndim < 5 for weights in part.parameters()):
            # torch 2.10 has no type annotation for a call with only a memory format.
            part.to(memory_format=torch.channels_last)  # pyrefly: ignore[no-matching-overload]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread inside the block, as CPU workers do."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
