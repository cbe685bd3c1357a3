"""Quantise the weights of a pipeline while it loads, and say which packages that needs."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from counterfoil.errors import ProblemLine, UserError
from counterfoil.models.messages import message

if TYPE_CHECKING:
    import torch

# Value of the setting `quantize` → the package that quantises, and the extra of Counterfoil that
# installs it.
QUANTISERS = {
    "bnb-8bit": ("bitsandbytes", "bnb"),
    "bnb-4bit": ("bitsandbytes", "bnb"),
    "torchao-int8": ("torchao", "torchao"),
}


def absent_library(package: str, needing: str = "the recipe") -> ProblemLine:
    """Return the problem of a package that is not installed. `needing` names what needs the
    package."""
    key = "lora" if package == "peft" else "quantize"
    extras = {"peft": "lora", **dict(QUANTISERS.values())}
    install = f": pip install 'counterfoil[{extras[package]}]'" if package in extras else ""
    return message("missing-package", f"generator.{key}", package, needing=needing, install=install)


def quantize_problem(quantize: str | None, device: str | None) -> ProblemLine | None:
    """Return why this machine cannot quantise weights, or None if it can. `device` is None if it is
    not yet known."""
    if quantize is None:
        return None
    package, _ = QUANTISERS[quantize]
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return absent_library(package, quantize)
    if package == "bitsandbytes" and device is not None and not device.startswith("cuda"):
        return message("unusable-device.quantize", "generator.quantize", device, quantize=quantize)
    return None


def quantized_parts(index: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a pipeline to quantise: the UNet or transformer, and text encoders other
    than CLIP."""
    parts = []
    for part, value in index.items():
        if not isinstance(value, list) or len(value) != 2 or value[1] is None:
            continue
        class_name = value[1]
        draws = part in ("unet", "transformer")
        encodes = part.startswith("text_encoder") and isinstance(class_name, str)
        if draws or (encodes and not class_name.startswith("CLIP")):
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
        problem = quantize_problem(quantize, device)
        if problem is not None:
            raise UserError(problem)
        from diffusers.quantizers import PipelineQuantizationConfig

        parts = quantized_parts(index)
        settings = {}
        for part in parts:
            # diffusers and transformers have classes of the same names. Each library accepts only
            # its own class.
            library = importlib.import_module(index[part][0])
            settings[part] = _setting(quantize, library, number_type)
        return cls(parts, PipelineQuantizationConfig(quant_mapping=settings), device)

    @contextlib.contextmanager
    def loading(self, options: dict[str, Any]) -> Iterator[None]:
        """Add the quantisation settings to the options of `from_pretrained` while a pipeline
        loads."""
        if not self.parts:
            yield
            return
        import torch

        options["quantization_config"] = self.settings
        if not self.device.startswith("cuda"):
            yield
            return
        # bitsandbytes quantises on the current GPU, which may not be this worker's.
        with torch.cuda.device(self.device):
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
