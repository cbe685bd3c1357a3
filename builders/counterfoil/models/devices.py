"""Devices, number types and the stack: what the bytes of a rendered image depend on beside the recipe.

How a GPU computes, weights in fewer bits and compiled blocks are here too: each is another stack, as its bytes are
others. Attention needs nothing: diffusers asks torch's own, which chooses by the device.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from counterfoil.errors import UserError
from counterfoil.recipe.kinds import kind_of

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.schema_inputs import Generator

# The version of Counterfoil that last changed the bytes of an image or a row. The stack holds it, and no later version:
# a directory that one version began, another resumes. Whoever changes such a byte writes the version that does so here.
RENDERING_VERSION = "0.2.0"

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

# What quantises → its package, and the extra of this one that installs it.
_QUANTISERS = {
    "bnb-8bit": ("bitsandbytes", "bnb"),
    "bnb-4bit": ("bitsandbytes", "bnb"),
    "torchao-int8": ("torchao", "torchao"),
}


def resolve_device(device: str = "auto") -> str:
    """The one device of work that takes no more: of `auto` and `cuda` the first GPU, else the CPU.

    UserError for a device that is unknown or absent, and for a list of several. Makes no CUDA context.
    """
    first, *others = resolve_devices(device)
    if "," in device and others:
        raise UserError(f"device: found '{device[:80]}', expected one: this work takes a single device")
    return first


def resolve_devices(device: str = "auto") -> tuple[str, ...]:
    """Return the devices that work is dealt to, each once: `("cuda:0", "cuda:2")`, `("cpu",)`.

    `auto` is every visible GPU, or the CPU where there is none; `cuda` is every visible GPU; others are named, with
    commas between GPUs. UserError for one that is unknown, absent or named twice, and for other mixtures. GPUs are
    counted and nothing more: CUDA makes a context, which takes memory, only where work is done.
    """
    words = [word.strip() for word in device.split(",")]
    if words == ["auto"] and (gpus := _all_gpus()):
        return gpus
    if words in (["auto"], ["cpu"]):
        keep_freed_memory()
        return ("cpu",)
    if words == ["cuda"]:
        gpus = _all_gpus()
        return gpus if gpus else _refuse(device, "no GPU is visible to torch here")
    numbers = [re.fullmatch(r"cuda:([0-9]{1,4})", word) for word in words]
    chosen = [f"cuda:{int(number[1])}" for number in numbers if number is not None]
    if len(chosen) == len(words):
        visible = _all_gpus()
        for gpu in chosen:
            if not visible:
                _refuse(device, "no GPU is visible to torch here")
            if gpu not in visible:
                count = len(visible)
                there = "cuda:0 alone" if count == 1 else f"{count} GPUs, cuda:0 to cuda:{count - 1}"
                _refuse(device, f"there is no {gpu}, but {there}")
            if chosen.count(gpu) > 1:
                _refuse(device, f"{gpu} is named twice")
        return tuple(chosen)
    if len(words) > 1:
        _refuse(device, "only GPUs, each by its number, can be named together")
    try:
        touch(device)
    except (RuntimeError, AssertionError) as error:
        _refuse(device, str(error).splitlines()[0], error)
    return (device,)


def _all_gpus() -> tuple[str, ...]:
    if "torch" not in sys.modules and sys.platform.startswith("linux"):
        # Under Linux every driver that torch knows has its files in /dev; importing torch takes seconds.
        drivers = ("nvidia", "nvhost", "nvgpu", "nvmap", "kfd", "dxg", "dri")
        if not any(name.startswith(drivers) for name in os.listdir("/dev")):  # noqa: PTH208 (names alone)
            return ()
    import torch

    # Neither call makes a context on any GPU. That CUDA can be used at all is for `is_available` to say: NVML, by which
    # torch counts, also sees GPUs of a driver that is too old.
    return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()


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


# What glibc's `mallopt` calls its settings (malloc.h), and the largest value of one.
_TRIM_THRESHOLD, _MMAP_MAX, _LARGEST = -1, -4, 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process reuse large blocks of memory that it freed. Return whether its C library, glibc, can.

    By default each block of 32 MB or more, such as what a layer makes of a batch, is mapped when it is allocated and
    unmapped when it is freed, and the kernel clears all of its pages again: a third of the time of many networks. Where
    memory lies changes no result. Up to 2 GB that are free at the heap's end stay with the process.
    """
    libc = _glibc()
    return libc is not None and bool(libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, _LARGEST))


def give_back_memory() -> None:
    """Return what `keep_freed_memory` kept to the machine, after work that took much."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """This process's C library, if it is glibc."""
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return libc if hasattr(libc, "gnu_get_libc_version") else None


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
    """Return what bytes depend on beside the recipe and its inputs (CONTRIBUTING, “Same bytes”).

    `libraries` are packages that only some recipes use, such as those that quantise; `compiled`: whether a recipe has
    blocks of its generator compiled. UserError where they cannot be, and for a package that is absent.
    """
    import torch

    if device.startswith("cuda"):
        hardware = {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        hardware = {"device": device, "cpu_capability": capability, "kernels": kernels_digest()}
    versions = {
        "counterfoil": RENDERING_VERSION,
        "python": platform.python_version_tuple()[0] + "." + platform.python_version_tuple()[1],
    } | {name: metadata.version(name) for name in _LIBRARIES}
    for name in libraries:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise UserError(absent_library(name)) from error
    return {
        "versions": versions,
        **hardware,
        "dtype": str(resolve_dtype(dtype, device)).removeprefix("torch."),
        "batch_size": batch_size,
        "threads": 1 if device == "cpu" else None,
        **arithmetic(device),
        **({"compiled": compiler_of(device)} if compiled else {}),
    }


@cache
def kernels_digest() -> str:
    """Return a digest of what this processor makes of a few operations of every network, in float32, one thread.

    Two processors of one capability may take other kernels in MKL or oneDNN, by their maker and model, and then the
    last bits differ. Other digests prove other arithmetic; one digest does not prove that all operations agree.
    """
    import torch
    from torch.nn import functional

    def numbers(*shape: int) -> torch.Tensor:
        # Products and whole parts, which every processor rounds alike.
        return torch.arange(math.prod(shape), dtype=torch.float32).mul(0.61803399).frac().sub(0.5).reshape(shape)

    with one_thread(), torch.inference_mode():
        words, image = numbers(2, 77, 128), numbers(2, 32, 24, 24)
        heads = words.reshape(2, 77, 4, 32).transpose(1, 2)
        results = [
            words @ numbers(128, 320),
            numbers(1, 1280) @ numbers(1280, 320),
            torch.bmm(heads.flatten(0, 1), heads.flatten(0, 1).transpose(1, 2)),
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


def libraries_of(generator: Generator) -> tuple[str, ...]:
    """The packages that bytes depend on with this generator alone: to quantise weights, to add others, its kind's."""
    quantiser = () if generator.quantize is None else (_QUANTISERS[generator.quantize][0],)
    return (*quantiser, *(("peft",) if generator.lora else ()), *kind_of(generator).libraries)


# Limit and use of a container's memory, in version 2 of control groups and in version 1.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes(device: str = "cpu") -> int:
    """Bytes that can be taken on a device. In a container the machine may have more than the container may use."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    free = psutil.virtual_memory().available
    for limit, used in _CGROUPS:
        # No such files, or the word "max": no limit. What the kernel keeps of files counts as used and is given back,
        # so a quarter of the limit is always thought free.
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(limit).read_text(encoding="ascii"))
            free = min(free, max(most - int(Path(used).read_text(encoding="ascii")), most // 4))
    return free


# What a stack says of a GPU beside its name. A change here is another stack, as the bytes are others.
_ARITHMETIC = {
    # Products of float32 by TF32: where a recipe asks for float32, and in CLIP. Convolutions have it by default.
    "float32": "tf32",
    # NHWC, which tensor cores read without turning it first.
    "layout": "channels last",
}
# Parts of a pipeline that convolve; transformers have a convolution or none.
_CONVOLVING = ("unet", "vae", "movq")


def arithmetic(device: str) -> dict[str, Any]:
    """What of a device's settings bytes depend on; nothing on a CPU."""
    return {"arithmetic": dict(_ARITHMETIC)} if device.startswith("cuda") else {}


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
            f"generator.compile: '{name}' draws with a {type(model).__name__} without repeated blocks, so there"
            f" is nothing to compile",
            "Leave generator.compile out.",
        )
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _KINDS)
    if not device.startswith("cuda"):
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # every other core has a worker of its own
    model.compile_repeated_blocks(fullgraph=True, dynamic=False)


def compiler_of(device: str) -> str:
    """What torch compiles with for a device, and its version. UserError where this machine lacks it."""
    hint = "Install it, or leave generator.compile out."
    if device.startswith("cuda"):
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UserError(
                f"generator.compile: torch compiles for {device} with Triton, which does not work here", hint
            )
        return f"Triton {metadata.version('triton')}"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UserError(
            f"generator.compile: torch compiles for {device} with a C++ compiler, and none works here", hint
        ) from error
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].strip()


def absent_library(package: str, needing: str = "the recipe") -> str:
    """What to tell where one of these packages is not installed; `needing` is what needs it."""
    key, extras = ("lora", {"peft": "lora"}) if package == "peft" else ("quantize", dict(_QUANTISERS.values()))
    extra = f": pip install 'counterfoil[{extras[package]}]'" if package in extras else ""
    return f"generator.{key}: {needing} needs {package}, which is not installed{extra}"


def quantize_problem(quantize: str | None, device: str | None = None) -> str | None:
    """Why weights cannot be quantised here, and what to do, or None. `device` is where, as far as it is known."""
    if quantize is None:
        return None
    package, _ = _QUANTISERS[quantize]
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return absent_library(package, quantize)
    if package == "bitsandbytes" and device is not None and not device.startswith("cuda"):
        return f"generator.quantize: {quantize} needs a GPU, and this is {device}; expected torchao-int8 or null"
    return None


def quantized_parts(index: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a pipeline that are quantised, by its index of part → [library, class].

    The large matrices are: the UNet's or transformer's, and those of text encoders that are no CLIP (T5, Gemma, Qwen),
    which are as large. Autoencoders and CLIP's encoders stay as they are.
    """
    classes = {part: value[1] for part, value in index.items() if isinstance(value, list) and len(value) == 2}
    return tuple(
        part
        for part, class_name in classes.items()
        if class_name is not None
        and (
            part in ("unet", "transformer")
            or (part.startswith("text_encoder") and isinstance(class_name, str) and not class_name.startswith("CLIP"))
        )
    )


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which parts of a pipeline are quantised while it loads, and by what settings; none where `parts` is empty."""

    parts: tuple[str, ...]
    settings: Any
    device: str

    @classmethod
    def of(cls, quantize: str | None, index: Mapping[str, Any], number_type: torch.dtype, device: str) -> Quantization:
        """That of a recipe's setting, for a pipeline of this index on `device`; weights compute in `number_type`.

        UserError where the library is absent or does not run there.
        """
        if quantize is None:
            return cls((), None, device)
        if (problem := quantize_problem(quantize, device)) is not None:
            raise UserError(problem)
        from diffusers.quantizers import PipelineQuantizationConfig

        parts = quantized_parts(index)
        # diffusers and transformers have a class of the same name each, and take only their own.
        mapping = {part: _setting(quantize, importlib.import_module(index[part][0]), number_type) for part in parts}
        return cls(parts, PipelineQuantizationConfig(quant_mapping=mapping), device)

    @contextlib.contextmanager
    def loading(self, options: dict[str, Any]) -> Iterator[None]:
        """While a pipeline loads with these options of `from_pretrained`, to which the settings are added."""
        if not self.parts:
            yield
            return
        import torch

        options["quantization_config"] = self.settings
        # bitsandbytes quantises on the current GPU, which else is the first one, whichever this worker has.
        with torch.cuda.device(self.device) if self.device.startswith("cuda") else contextlib.nullcontext():
            yield


def _setting(quantize: str, library: Any, number_type: torch.dtype) -> Any:
    if quantize == "bnb-8bit":
        return library.BitsAndBytesConfig(load_in_8bit=True)
    if quantize == "bnb-4bit":
        # NormalFloat, the type made for weights of networks (Dettmers et al. 2023, section 3).
        return library.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=number_type
        )
    weights_alone = importlib.import_module("torchao.quantization").Int8WeightOnlyConfig
    return library.TorchAoConfig(weights_alone())
