"""Let torch compile the repeated blocks of a pipeline."""

from __future__ import annotations

import subprocess
from importlib import metadata
from typing import Any

from counterfoil.models.messages import refusal

# The number of block shapes that torch keeps compiled code for. torch's default, 8, is only just
# enough for Stable Diffusion.
_KINDS = 64


def compile_blocks(pipeline: Any, name: str, device: str) -> None:
    """Let torch compile the repeated blocks of a pipeline's model at their first call.

    UserError if the model has no such blocks, or if this machine has no compiler.
    """
    import torch

    compiler_of(device)  # raises UserError if this machine has no compiler
    model = getattr(pipeline, "unet", None) or pipeline.transformer
    blocks = getattr(model, "_repeated_blocks", None) or []
    if not any(type(part).__name__ in blocks for part in model.modules()):
        kind = type(model).__name__
        raise refusal("unfit-model.blocks", "generator.compile", name, kind=kind)
    dynamo = torch._dynamo.config
    dynamo.recompile_limit = max(dynamo.recompile_limit, _KINDS)
    if not device.startswith("cuda"):
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # the other cores are for other workers
    model.compile_repeated_blocks(fullgraph=True, dynamic=False)


def compiler_of(device: str) -> str:
    """Return the name and version of the compiler that torch uses for a device. UserError if it is
    absent here."""
    if device.startswith("cuda"):
        from torch.utils._triton import has_triton

        if not has_triton():
            raise refusal("unusable-device.compiler", "generator.compile", device, "Triton")
        return f"Triton {metadata.version('triton')}"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise refusal(
            "unusable-device.compiler", "generator.compile", device, "a C++ compiler"
        ) from error
    process = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return process.stdout.splitlines()[0].strip()
