"""Choose devices and number types, and prepare a worker's device."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

from counterfoil.models.memory import keep_freed_memory
from counterfoil.models.messages import refusal

if TYPE_CHECKING:
    import torch


def resolve_device(device: str) -> str:
    """Return one device. `auto` and `cuda` give the first GPU; `auto` gives the CPU if there is no
    GPU.

    UserError if `device` names several devices.
    """
    first, *others = resolve_devices(device)
    if "," in device and others:
        raise refusal("unusable-device.several", "device", device)
    return first


def resolve_devices(device: str) -> tuple[str, ...]:
    """Return the devices that a setting names, such as `("cuda:0", "cuda:2")` or `("cpu",)`.

    `auto` means every visible GPU, or the CPU if no GPU is visible. `cuda` means every visible GPU.
    Commas separate the names of several GPUs. UserError if a device is unknown, absent or named
    twice, or if the list names anything except GPUs. GPUs are counted without making a CUDA
    context.
    """
    words = [word.strip() for word in device.split(",")]
    if words == ["auto"]:
        gpus = _all_gpus()
        if gpus:
            return gpus
    if words in (["auto"], ["cpu"]):
        keep_freed_memory()
        return ("cpu",)
    numbers = [re.fullmatch(r"cuda:([0-9]{1,4})", word) for word in words]
    chosen = [f"cuda:{int(number[1])}" for number in numbers if number is not None]
    if words == ["cuda"] or len(chosen) == len(words):
        visible = _all_gpus()
        if not visible:
            _refuse(device, "no GPU is visible to torch here")
        for gpu in chosen:
            if gpu not in visible:
                available = "cuda:0 alone"
                if len(visible) > 1:
                    available = f"{len(visible)} GPUs, cuda:0 to {visible[-1]}"
                _refuse(device, f"there is no {gpu}, but {available}")
            if chosen.count(gpu) > 1:
                _refuse(device, f"{gpu} is named twice")
        return tuple(chosen) or visible
    if len(words) > 1:
        _refuse(device, "only GPUs, each by its number, can be named together")
    try:
        touch_device(device)
    except (RuntimeError, AssertionError) as error:
        _refuse(device, str(error).splitlines()[0], error)
    return (device,)


def _all_gpus() -> tuple[str, ...]:
    if "torch" not in sys.modules and sys.platform.startswith("linux"):
        # Importing torch takes seconds. Under Linux, every driver that it knows has files in /dev.
        drivers = ("nvidia", "nvhost", "nvgpu", "nvmap", "kfd", "dxg", "dri")
        if not any(name.startswith(drivers) for name in os.listdir("/dev")):  # noqa: PTH208 (names alone)
            return ()
    import torch

    # Neither call makes a CUDA context. `device_count` alone would also count GPUs whose driver is
    # too old.
    if not torch.cuda.is_available():
        return ()
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))


def _refuse(device: str, reason: str, error: BaseException | None = None) -> NoReturn:
    where = f"device '{device[:80]}'"
    raise refusal("unusable-device.name", where, reason) from error


def holds_context(device: str) -> bool:
    """Return whether work on a device makes a context, which takes memory until the process
    ends."""
    return device.startswith("cuda")


def touch_device(device: str) -> None:
    """Allocate one number on a device. If the device is absent or lost, torch raises its error."""
    import torch

    torch.empty(1, device=device)


def prepare_worker(device: str) -> None:
    """Prepare a worker process: set one thread and reuse freed memory on a CPU, or make its GPU the
    default device."""
    if device == "cpu":
        if "torch" in sys.modules:  # else it reads the variables that the process was started with
            sys.modules["torch"].set_num_threads(1)
        keep_freed_memory()
    elif holds_context(device):
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(device)


def resolve_dtype(dtype: str, device: str) -> torch.dtype:
    """Return the recipe's number type; `auto` is bfloat16 on CUDA and float32 elsewhere."""
    import torch

    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
