"""Weights in fewer bits: which parts of a pipeline, by which library, and what to install where it is absent.

The large matrices are quantised while they load: the UNet's or transformer's, and those of text encoders that are no
CLIP (T5, Gemma, Qwen), which are as large. Autoencoders and CLIP's encoders stay as they are.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError

if TYPE_CHECKING:
    import torch

# What quantises → its package, and the extra of this one that installs it.
_LIBRARIES = {
    "bnb-8bit": ("bitsandbytes", "bnb"),
    "bnb-4bit": ("bitsandbytes", "bnb"),
    "torchao-int8": ("torchao", "torchao"),
}
_DRAWING = ("unet", "transformer")
_ENCODER, _SMALL = "text_encoder", "CLIP"


def quantizing_libraries(quantize: str | None) -> tuple[str, ...]:
    """The packages whose versions bytes depend on with this setting."""
    return () if quantize is None else (_LIBRARIES[quantize][0],)


def absent_library(package: str, needing: str = "the recipe") -> str:
    """What to tell where one of these packages is not installed; `needing` is what needs it."""
    extras = [f": pip install 'counterfoil[{extra}]'" for name, extra in _LIBRARIES.values() if name == package]
    return f"generator.quantize: {needing} needs {package}, which is not installed{''.join(extras[:1])}"


def quantize_problem(quantize: str | None, device: str | None = None) -> str | None:
    """Why weights cannot be quantised here, and what to do, or None. `device` is where, as far as it is known."""
    if quantize is None:
        return None
    package, _ = _LIBRARIES[quantize]
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return absent_library(package, quantize)
    if package == "bitsandbytes" and device is not None and not device.startswith("cuda"):
        return f"generator.quantize: {quantize} needs a GPU, and this is {device}; expected torchao-int8 or null"
    return None


def quantized_parts(index: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of a pipeline that are quantised, by its index of part → [library, class]."""

    def large(part: str, class_name: Any) -> bool:
        if part in _DRAWING:
            return True
        return part.startswith(_ENCODER) and isinstance(class_name, str) and not class_name.startswith(_SMALL)

    classes = {part: value[1] for part, value in index.items() if isinstance(value, list) and len(value) == 2}
    return tuple(part for part, class_name in classes.items() if class_name is not None and large(part, class_name))


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
        """While a pipeline loads with these options of `from_pretrained`, which are told of the settings."""
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
