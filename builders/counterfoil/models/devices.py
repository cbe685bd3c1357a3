"""Devices, number types and the stack: what the bytes of a rendered image depend on."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.errors import UserError

if TYPE_CHECKING:
    import torch

# What takes part in making, judging and encoding an image.
_LIBRARIES = (
    "torch",
    "diffusers",
    "transformers",
    "open-clip-torch",
    "timm",
    "numpy",
    "pillow",
    "pyarrow",
    "webdataset",
)


def resolve_device(device: str = "auto") -> str:
    """`auto` is CUDA where there is one, else the CPU. UserError for a device that is unknown or absent."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device '{device}' cannot be used: {reason}", "Use auto, cpu, cuda or cuda:1.") from error
    return device


def resolve_dtype(dtype: str, device: str) -> torch.dtype:
    """The recipe's number type; `auto` is bfloat16 on CUDA and float32 elsewhere."""
    import torch

    if dtype == "auto":
        return torch.bfloat16 if device.startswith("cuda") else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, as every worker runs on a CPU; restored afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def stack_of(device: str, dtype: str, batch_size: int) -> dict[str, Any]:
    """What bytes depend on beside the recipe and its inputs (CONTRIBUTING, “Same bytes”)."""
    import torch

    if device.startswith("cuda"):
        hardware = {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    else:
        hardware = {"device": device, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    return {
        "versions": {
            "counterfoil": __version__,
            "python": platform.python_version_tuple()[0] + "." + platform.python_version_tuple()[1],
        }
        | {name: metadata.version(name) for name in _LIBRARIES},
        **hardware,
        "dtype": str(resolve_dtype(dtype, device)).removeprefix("torch."),
        "batch_size": batch_size,
        "threads": 1 if device == "cpu" else None,
    }
