"""Devices, number types and the stack: what the bytes of a rendered image depend on."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, NoReturn

from counterfoil import __version__
from counterfoil.errors import UserError
from counterfoil.models import compiled as compilation
from counterfoil.models import cuda_settings
from counterfoil.models.quantized import absent_library, quantizing_libraries

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.schema_inputs import Generator

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
    """The one device of work that takes no more: of `auto` and `cuda` the first GPU, else the CPU.

    UserError for a device that is unknown or absent, and for a list of several. Makes no CUDA context.
    """
    first, *others = resolve_devices(device)
    if "," in device and others:
        raise UserError(f"device: found '{device[:80]}', expected one: this work takes a single device")
    return first


def resolve_devices(device: str = "auto") -> tuple[str, ...]:
    """The devices that work is dealt to, each once: `("cuda:0", "cuda:2")`, `("cpu",)`.

    `auto` is every visible GPU, or the CPU where there is none; `cuda` is every visible GPU; others are named, with
    commas between GPUs. UserError for one that is unknown, absent or named twice, and for other mixtures. GPUs are
    counted and nothing more: CUDA makes a context, which takes memory, only where work is done.
    """
    words = [word.strip() for word in device.split(",")]
    if words == ["auto"]:
        return _all_gpus() or ("cpu",)
    if words == ["cuda"]:
        gpus = _all_gpus()
        return gpus if gpus else _refuse(device, "no GPU is visible to torch here")
    numbers = [re.fullmatch(r"cuda:([0-9]{1,4})", word) for word in words]
    chosen = [f"cuda:{int(number[1])}" for number in numbers if number is not None]
    if len(chosen) == len(words):
        visible = _all_gpus()
        for gpu in chosen:
            if gpu not in visible:
                _refuse(device, _absent(gpu, len(visible)))
            if chosen.count(gpu) > 1:
                _refuse(device, f"{gpu} is named twice")
        return tuple(chosen)
    if len(words) > 1:
        _refuse(device, "only GPUs, each by its number, can be named together")
    return (_other_device(device),)


def _all_gpus() -> tuple[str, ...]:
    if "torch" not in sys.modules and not _may_have_gpus():
        return ()  # importing torch takes seconds
    import torch

    # Neither call makes a context on any GPU. That CUDA can be used at all is for `is_available` to say: NVML, by which
    # torch counts, also sees GPUs of a driver that is too old.
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()


def _may_have_gpus() -> bool:
    """Whether this machine may have a GPU: under Linux, every driver that torch knows has its files in /dev."""
    if not sys.platform.startswith("linux"):
        return True
    drivers = ("nvidia", "nvhost", "nvgpu", "nvmap", "kfd", "dxg", "dri")
    return any(name.startswith(drivers) for name in os.listdir("/dev"))  # noqa: PTH208 (names alone)


def _absent(gpu: str, visible: int) -> str:
    if visible == 0:
        return "no GPU is visible to torch here"
    there = "cuda:0 alone" if visible == 1 else f"{visible} GPUs, cuda:0 to cuda:{visible - 1}"
    return f"there is no {gpu}, but {there}"


def _other_device(device: str) -> str:
    try:
        touch(device)
    except (RuntimeError, AssertionError) as error:
        _refuse(device, str(error).splitlines()[0], error)
    return device


def _refuse(device: str, reason: str, error: BaseException | None = None) -> NoReturn:
    raise UserError(
        f"device '{device[:80]}' cannot be used: {reason}", "Use auto, cpu, cuda (every GPU), cuda:1 or cuda:0,cuda:2."
    ) from error


def holds_context(device: str) -> bool:
    """Whether work on a device leaves its process with a context there, which takes memory until the process ends."""
    return device.startswith("cuda")


def touch(device: str) -> None:
    """Use a device for an instant. What torch raises for one that is not there, or no longer, is raised."""
    import torch

    torch.empty(1, device=device)


def make_current(device: str) -> None:
    """Let this process take the GPU `device` where a library names none: it would make a context on GPU 0 else.

    Nothing for other devices, and without CUDA, which the work itself will meet. What CUDA raises for a GPU that is
    gone is raised.
    """
    if not holds_context(device):
        return  # without the seconds that torch takes to import
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(device)


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


def stack_of(
    device: str, dtype: str, batch_size: int, libraries: Sequence[str] = (), *, compiled: bool = False
) -> dict[str, Any]:
    """What bytes depend on beside the recipe and its inputs (CONTRIBUTING, “Same bytes”).

    `libraries` are packages that only some recipes use, such as those that quantise; `compiled`: whether a recipe has
    blocks of its generator compiled. UserError where they cannot be, and for a package that is absent.
    """
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
        | {name: metadata.version(name) for name in _LIBRARIES}
        | {name: _version_of_extra(name) for name in libraries},
        **hardware,
        "dtype": str(resolve_dtype(dtype, device)).removeprefix("torch."),
        "batch_size": batch_size,
        "threads": 1 if device == "cpu" else None,
        **cuda_settings.told(device),
        **compilation.told(device, compiled),
    }


def libraries_of(generator: Generator) -> tuple[str, ...]:
    """The packages that bytes depend on with this generator alone: what quantises weights, what corrupts rows."""
    return (*quantizing_libraries(generator.quantize), *(("scipy",) if generator.kind == "corrupt" else ()))


def _version_of_extra(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError as error:
        raise UserError(absent_library(package)) from error
