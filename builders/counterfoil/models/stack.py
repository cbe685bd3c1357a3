"""Describe the stack: everything besides the recipe that decides the bytes of an image."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.arithmetic import arithmetic, one_thread
from counterfoil.models.compiling import compiler_of
from counterfoil.models.devices import resolve_dtype
from counterfoil.models.quantizing import QUANTISERS, absent_library

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe
    from counterfoil.recipe.kinds import GeneratorKind

# The version of Counterfoil that last changed the bytes of an image or a row. Raise this number
# with every such change. The stack has this number instead of the installed version, so that later
# versions can resume a directory.
RENDERING_VERSION = "0.2.0"

# The libraries that draw and score images, and those that encode and store them.
_OF_MODELS = ("torch", "diffusers", "transformers", "open-clip-torch", "timm")

_LIBRARIES = ("numpy", "pillow", "pyarrow", "webdataset")


def stack_of(
    device: str,
    dtype: str,
    batch_size: int,
    libraries: Sequence[str] = (),
    *,
    compiled: bool = False,
) -> dict[str, Any]:
    """Return the stack: everything besides the recipe and its inputs that images depend on, to the
    byte.

    CONTRIBUTING explains it under “Same bytes”. `libraries` are packages that only some recipes
    use. UserError if such a package is absent, or if `compiled` is set and this machine has no
    compiler.
    """
    import torch

    if device.startswith("cuda"):
        hardware = {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        hardware = {"device": device, "cpu_capability": capability, "kernels": kernels_digest()}
    stack = {
        "versions": _versions((*_OF_MODELS, *_LIBRARIES, *libraries)),
        **hardware,
        "dtype": str(resolve_dtype(dtype, device)).removeprefix("torch."),
        "batch_size": batch_size,
        "threads": 1 if device == "cpu" else None,
        **arithmetic(device),
    }
    if compiled:
        stack["compiled"] = compiler_of(device)
    return stack


@cache
def _version(read: Callable[[str], str], name: str) -> str:
    """Return a package's version, which is read from files once in a process."""
    return read(name)


def _versions(libraries: Sequence[str]) -> dict[str, str]:
    versions = {
        "counterfoil": RENDERING_VERSION,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    for name in libraries:
        try:
            versions[name] = _version(metadata.version, name)
        except metadata.PackageNotFoundError as error:
            raise UserError(absent_library(name)) from error
    return versions


@cache
def kernels_digest() -> str:
    """Hash the results of some common operations on this processor, in float32, with one thread.

    MKL and oneDNN choose kernels by the maker and the model of the processor. So two processors
    with the same instruction set may give results that differ in the last bits.
    """
    import torch
    from torch.nn import functional

    def numbers(*shape: int) -> torch.Tensor:
        # Every processor rounds these operations in the same way.
        counted = torch.arange(math.prod(shape), dtype=torch.float32)
        return counted.mul(0.61803399).frac().sub(0.5).reshape(shape)

    with one_thread(), torch.inference_mode():
        words = numbers(2, 77, 128)
        image = numbers(2, 32, 24, 24)
        heads = words.reshape(2, 77, 4, 32).transpose(1, 2)
        flat = heads.flatten(0, 1)
        results = [
            words @ numbers(128, 320),
            numbers(1, 1280) @ numbers(1280, 320),
            torch.bmm(flat, flat.transpose(1, 2)),
            functional.scaled_dot_product_attention(heads, heads, heads),
            functional.conv2d(image, numbers(48, 32, 3, 3), padding=1),
            functional.conv2d(image, numbers(64, 32, 1, 1)),
            functional.group_norm(image, 8),
            functional.layer_norm(words, (128,)),
            functional.gelu(words),
            functional.silu(words),
            words.softmax(-1),
            words.exp(),
            words.sin(),
        ]
    digest = hashlib.sha256()
    for result in results:
        digest.update(result.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def libraries_of(generator: GeneratorKind) -> tuple[str, ...]:
    """Return the packages that only some generators need: for quantising, for LoRA, and for the
    generator's kind."""
    libraries = []
    quantize = generator.get("quantize")
    if quantize is not None:
        libraries.append(QUANTISERS[quantize][0])
    if generator.get("lora"):
        libraries.append("peft")
    return (*libraries, *generator.libraries)


def rendering_stack(device: str, recipe: Recipe) -> dict[str, Any]:
    """Return the stack (`stack_of`) of a device that renders a recipe's images.

    Without a model, images depend on a few libraries alone, on every processor and device.
    """
    generator = recipe.generator
    plugins = {plugin.package for plugin in recipe.plugins.values()}
    libraries = (*libraries_of(generator), *sorted(plugins))
    if not recipe.runs_models:
        return {"versions": _versions((*_LIBRARIES, *libraries))}
    return stack_of(
        device,
        generator.dtype,
        generator.batch_size,
        libraries,
        compiled=generator.get("compile", False),
    )
