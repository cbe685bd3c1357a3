"""Choose devices and number types, and describe the stack.

The stack is everything besides the recipe that decides the bytes of an image.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import math
import os
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

# Value of the setting `quantize` → the package that quantises, and the extra of Counterfoil that
# installs it.
_QUANTISERS = {
    "bnb-8bit": ("bitsandbytes", "bnb"),
    "bnb-4bit": ("bitsandbytes", "bnb"),
    "torchao-int8": ("torchao", "torchao"),
}


def resolve_device(device: str = "auto") -> str:
    """Return one device. `auto` and `cuda` give the first GPU; `auto` gives the CPU if there is no
    GPU.

    UserError if `device` names several devices.
    """
    first, *others = resolve_devices(device)
    if "," in device and others:
        raise UserError(
            f"device: found '{device[:80]}', expected one: this work takes a single device"
        )
    return first


def resolve_devices(device: str = "auto") -> tuple[str, ...]:
    """Return the devices that a setting names, such as `("cuda:0", "cuda:2")` or `("cpu",)`.

    `auto` means every visible GPU, or the CPU if no GPU is visible. `cuda` means every visible GPU.
    Commas separate the names of several GPUs. UserError if a device is unknown, absent or named
    twice, or if the list names anything except GPUs. GPUs are counted without making a CUDA
    context.
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
                available = (
                    "cuda:0 alone" if count == 1 else f"{count} GPUs, cuda:0 to cuda:{count - 1}"
                )
                _refuse(device, f"there is no {gpu}, but {available}")
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
        # Importing torch takes seconds. Under Linux, every driver that it knows has files in /dev.
        drivers = ("nvidia", "nvhost", "nvgpu", "nvmap", "kfd", "dxg", "dri")
        if not any(name.startswith(drivers) for name in os.listdir("/dev")):  # noqa: PTH208 (names alone)
            return ()
    import torch

    # Neither call makes a CUDA context. `device_count` alone would also count GPUs whose driver is
    # too old.
    return (
        tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        if torch.cuda.is_available()
        else ()
    )


def _refuse(device: str, reason: str, error: BaseException | None = None) -> NoReturn:
    raise UserError(
        f"device '{device[:80]}' cannot be used: {reason}",
        "Use auto, cpu, cuda (every GPU), cuda:1 or cuda:0,cuda:2.",
    ) from error


def holds_context(device: str) -> bool:
    """Return whether work on a device makes a context, which takes memory until the process
    ends."""
    return device.startswith("cuda")


def touch(device: str) -> None:
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
        return torch.bfloat16 if device.startswith("cuda") else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]


# Parameters of glibc's `mallopt` (malloc.h), and the largest value of one.
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process reuse large blocks of freed memory. Return False if its C library is not
    glibc.

    By default, glibc maps each block of 32 MB or more anew, and unmaps a freed block. The kernel
    clears the pages of every new block, which takes a third of the time of many networks. With this
    setting, the process keeps up to 2 GB of freed memory.
    """
    libc = _glibc()
    return libc is not None and bool(
        libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, _LARGEST)
    )


def give_back_memory() -> None:
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return libc if hasattr(libc, "gnu_get_libc_version") else None


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
    return {
        "versions": _versions((*_OF_MODELS, *_LIBRARIES, *libraries)),
        **hardware,
        "dtype": str(resolve_dtype(dtype, device)).removeprefix("torch."),
        "batch_size": batch_size,
        "threads": 1 if device == "cpu" else None,
        **arithmetic(device),
        **({"compiled": compiler_of(device)} if compiled else {}),
    }


def _versions(libraries: Sequence[str]) -> dict[str, str]:
    versions = {
        "counterfoil": RENDERING_VERSION,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    for name in libraries:
        try:
            versions[name] = metadata.version(name)
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
        return (
            torch.arange(math.prod(shape), dtype=torch.float32)
            .mul(0.61803399)
            .frac()
            .sub(0.5)
            .reshape(shape)
        )

    with one_thread(), torch.inference_mode():
        words = numbers(2, 77, 128)
        image = numbers(2, 32, 24, 24)
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


def libraries_of(generator: GeneratorKind) -> tuple[str, ...]:
    """Return the packages that only some generators need: for quantising, for LoRA, and for the
    generator's kind."""
    quantize = generator.get("quantize")
    quantiser = () if quantize is None else (_QUANTISERS[quantize][0],)
    return (*quantiser, *(("peft",) if generator.get("lora") else ()), *generator.libraries)


def rendering_stack(device: str, recipe: Recipe) -> dict[str, Any]:
    """Return the stack (`stack_of`) of a device that renders a recipe's images.

    Without a model, images depend on a few libraries alone, on every processor and device.
    """
    generator = recipe.generator
    libraries = (
        *libraries_of(generator),
        *sorted({plugin.package for plugin in recipe.plugins.values()}),
    )
    if not recipe.runs_models:
        return {"versions": _versions((*_LIBRARIES, *libraries))}
    return stack_of(
        device,
        generator.dtype,
        generator.batch_size,
        libraries,
        compiled=generator.get("compile", False),
    )


# The files with the limit and the use of a container's memory, in control groups of version 2 and
# of version 1.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes(device: str = "cpu") -> int:
    """Return the free memory of a device in bytes. In a container, return at most the container's
    free memory."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    free = psutil.virtual_memory().available
    for limit, used in _CGROUPS:
        # There is no limit if the file is absent or contains the word "max". The kernel counts its
        # cache of files as used memory, but can free it. So at least a quarter of the limit counts
        # as free here.
        with contextlib.suppress(OSError, ValueError):
            most = int(Path(limit).read_text(encoding="ascii"))
            free = min(free, max(most - int(Path(used).read_text(encoding="ascii")), most // 4))
    return free


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
    return {"arithmetic": dict(_ARITHMETIC)} if device.startswith("cuda") else {}


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
    before = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
    torch.set_float32_matmul_precision("high")
    cudnn.benchmark = False
    cudnn.deterministic = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.benchmark, cudnn.deterministic = before[1:]


def channels_last(pipeline: Any) -> None:
    """Change the layout of a pipeline's convolutions to NHWC.

    Parts that convolve over time, whose weights have five axes, stay unchanged.
    """
    import torch

    for name in _CONVOLVING:
        part = getattr(pipeline, name, None)
        if isinstance(part, torch.nn.Module) and all(
            weights.ndim < 5 for weights in part.parameters()
        ):
            # torch 2.10 has no type annotation for a call with only a memory format.
            part.to(memory_format=torch.channels_last)  # pyrefly: ignore[no-matching-overload]


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
        raise UserError(
            f"generator.compile: '{name}' draws with a {type(model).__name__} without repeated"
            " blocks, so there"
            f" is nothing to compile",
            "Leave generator.compile out.",
        )
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _KINDS)
    if not device.startswith("cuda"):
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1  # the other cores are for other workers
    model.compile_repeated_blocks(fullgraph=True, dynamic=False)


def compiler_of(device: str) -> str:
    """Return the name and version of the compiler that torch uses for a device. UserError if it is
    absent here."""
    hint = "Install it, or leave generator.compile out."
    if device.startswith("cuda"):
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UserError(
                f"generator.compile: torch compiles for {device} with Triton, which does not work"
                " here",
                hint,
            )
        return f"Triton {metadata.version('triton')}"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        compiler = get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise UserError(
            f"generator.compile: torch compiles for {device} with a C++ compiler, and none works"
            " here",
            hint,
        ) from error
    output = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True
    ).stdout
    return output.splitlines()[0].strip()


def absent_library(package: str, needing: str = "the recipe") -> str:
    """Return the message for a package that is not installed. `needing` names what needs the
    package."""
    key, extras = (
        ("lora", {"peft": "lora"})
        if package == "peft"
        else ("quantize", dict(_QUANTISERS.values()))
    )
    extra = f": pip install 'counterfoil[{extras[package]}]'" if package in extras else ""
    return f"generator.{key}: {needing} needs {package}, which is not installed{extra}"


def quantize_problem(quantize: str | None, device: str | None = None) -> str | None:
    """Return why this machine cannot quantise weights, or None if it can. `device` is None if it is
    not yet known."""
    if quantize is None:
        return None
    package, _ = _QUANTISERS[quantize]
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return absent_library(package, quantize)
    if package == "bitsandbytes" and device is not None and not device.startswith("cuda"):
        return (
            f"generator.quantize: {quantize} needs a GPU, and this is {device}; expected"
            " torchao-int8 or null"
        )
    return None


def quantized_parts(index: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a pipeline to quantise: the UNet or transformer, and text encoders other
    than CLIP."""
    parts = []
    for part, value in index.items():
        class_name = value[1] if isinstance(value, list) and len(value) == 2 else None
        encodes = (
            part.startswith("text_encoder")
            and isinstance(class_name, str)
            and not class_name.startswith("CLIP")
        )
        if encodes or (part in ("unet", "transformer") and class_name is not None):
            parts.append(part)
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class Quantization:
    """The parts of a pipeline to quantise while the pipeline loads, and the settings for diffusers.

    `parts` is empty if no part is quantised.
    """

    parts: tuple[str, ...]
    settings: Any
    device: str

    @classmethod
    def of(
        cls, quantize: str | None, index: Mapping[str, Any], number_type: torch.dtype, device: str
    ) -> Quantization:
        """Make the settings for a recipe's `quantize`. UserError if its library is absent or cannot
        use the device."""
        if quantize is None:
            return cls((), None, device)
        if (problem := quantize_problem(quantize, device)) is not None:
            raise UserError(problem)
        from diffusers.quantizers import PipelineQuantizationConfig

        parts = quantized_parts(index)
        # diffusers and transformers have classes of the same names. Each library accepts only its
        # own class.
        mapping = {
            part: _setting(quantize, importlib.import_module(index[part][0]), number_type)
            for part in parts
        }
        return cls(parts, PipelineQuantizationConfig(quant_mapping=mapping), device)

    @contextlib.contextmanager
    def loading(self, options: dict[str, Any]) -> Iterator[None]:
        """Add the quantisation settings to the options of `from_pretrained` while a pipeline
        loads."""
        if not self.parts:
            yield
            return
        import torch

        options["quantization_config"] = self.settings
        # bitsandbytes quantises on the current GPU, which may not be this worker's.
        with (
            torch.cuda.device(self.device)
            if self.device.startswith("cuda")
            else contextlib.nullcontext()
        ):
            yield


def _setting(quantize: str, library: Any, number_type: torch.dtype) -> Any:
    if quantize == "bnb-8bit":
        return library.BitsAndBytesConfig(load_in_8bit=True)
    if quantize == "bnb-4bit":
        # nf4 is NormalFloat (Dettmers et al. 2023, section 3).
        return library.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=number_type
        )
    return library.TorchAoConfig(
        importlib.import_module("torchao.quantization").Int8WeightOnlyConfig()
    )
