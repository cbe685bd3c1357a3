"""Compile the blocks that a generator repeats (regional compilation), and tell the stack by what.

diffusers' models name their repeated blocks. Each is compiled for the very sizes that it gets and for no others: code
for sizes that vary would be made once a second size comes, and take the place of the first, so that the bytes of an
image would depend on what was drawn before it.
"""

from __future__ import annotations

import subprocess
from importlib import metadata
from typing import Any

from counterfoil.errors import UserError

# Kinds of blocks (width, length, and batches with and without guidance) that torch keeps code for; its own limit is 8,
# and Stable Diffusion has as many.
_KINDS = 64


def compile_blocks(pipeline: Any, name: str, device: str) -> None:
    """Have the repeated blocks of a pipeline's UNet or transformer compiled when they are first called.

    UserError for a model that names none, and where this machine lacks what torch compiles with.
    """
    import torch

    compiler_of(device)  # says so
    model = getattr(pipeline, "unet", None) or pipeline.transformer
    blocks = getattr(model, "_repeated_blocks", None) or []
    if not any(type(part).__name__ in blocks for part in model.modules()):
        raise UserError(
            f"generator.compile: '{name}' draws by a {type(model).__name__} without blocks that repeat,"
            " so there is nothing to compile",
            "Leave generator.compile out.",
        )
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _KINDS)
    if not device.startswith("cuda"):
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # every other core has a worker of its own
    model.compile_repeated_blocks(fullgraph=True, dynamic=False)


def told(device: str, compiled: bool) -> dict[str, Any]:
    """What of compiled blocks bytes depend on beside torch's version; nothing where none are."""
    return {"compiled": compiler_of(device)} if compiled else {}


def compiler_of(device: str) -> str:
    """What torch compiles with for a device, and its version. UserError where this machine lacks it."""
    hint = "Install it, or leave generator.compile out."
    if device.startswith("cuda"):
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UserError(f"generator.compile: torch compiles for {device} by Triton, which does not work here", hint)
        return f"Triton {metadata.version('triton')}"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UserError(
            f"generator.compile: torch compiles for {device} by a C++ compiler, and none works here", hint
        ) from error
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].strip()
