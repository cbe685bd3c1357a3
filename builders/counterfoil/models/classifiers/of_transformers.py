"""Classifiers of transformers: `transformers:NAME`, a model of the Hub, or `transformers:FOLDER`.

What `AutoModelForImageClassification` and its image processor would make of the files, without what they would do for
a stranger: no code of an author runs, pickled weights are not read, nothing outside the files of one commit or folder
is followed. The configuration is checked first (`transformers_config`), its size compared with the weights before
memory is taken (`trial_build`), and the weights are safetensors, all of which have to fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.loading_errors import told_in_words
from counterfoil.models.transformers_config import PROCESSORS, TransformersConfig, checked_transformers
from counterfoil.models.transformers_files import (
    ModelFiles,
    as_configuration,
    found_files,
    image_processor_of,
    prepared_by,
    quiet,
    trained_module,
)
from counterfoil.models.weights_files import weights_sha256

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterfoil.recipe.prompts import RecipeClass

PREFIX = "transformers:"


@dataclass(frozen=True, kw_only=True)
class TransformersClassifier(Classifier):
    """A model of transformers in eval mode with its image processor. `sha256` is over configuration and tensors."""

    processor: Any

    def transform(self) -> Callable[[Any], torch.Tensor]:
        """The image processor, one image at a time: a PIL image to a float tensor (C, H, W)."""
        return prepared_by(self.name, self.processor)

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            return self.module(pixel_values=batch.to(device)).logits.float().cpu()


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Architecture and outputs of the model, read from its configuration only.

    Raises UserError, with all that is wrong with a configuration, RunFailure where it cannot be fetched.
    """
    _, config = _configured(name)
    return ClassifierFacts(name, name.removeprefix(PREFIX), config.architecture, config.num_classes, config.label_names)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> TransformersClassifier:
    """The trained model on `device`, in eval mode, its parameters without gradients, in float32.

    Raises UserError for a folder that cannot be a trained classifier, RunFailure when it cannot be fetched or its
    weights cannot be read.
    """
    place, config = _configured(name)
    module: Any = told_in_words(name, lambda: _trained(name, place, config))
    processor = image_processor_of(name, config.processor, module.config)
    module.eval().requires_grad_(False)
    tensors = weights_sha256(f"{config.architecture}\n{config.text()}", module.state_dict())
    form = {"processor": type(processor).__name__, **processor.to_dict()}
    return TransformersClassifier(
        name=name,
        architecture=config.architecture,
        num_classes=config.num_classes,
        label_names=config.label_names,
        param_count=sum(parameter.numel() for parameter in module.parameters()),
        sha256=tensors,
        input_key=f"transformers {version('transformers')} {json.dumps(form, sort_keys=True, default=str)}",
        input_size=_input_size(name, processor),
        crop_pct=_crop_share(processor),
        interpolation=_interpolation(processor),
        module=told_in_words(name, lambda: module.to(device)),
        processor=processor,
    )


def _configured(name: str) -> tuple[ModelFiles, TransformersConfig]:
    place = found_files(name, name.removeprefix(PREFIX), PROCESSORS)
    return place, checked_transformers(name, place.folder)


def _trained(name: str, place: ModelFiles, config: TransformersConfig) -> nn.Module:
    """The module with its weights, all of them."""
    import transformers

    with quiet():
        described = as_configuration(name, config.model_type, config.document)
    module = trained_module(name, place, getattr(transformers, config.architecture), described)
    if getattr(module, "main_input_name", None) != "pixel_values":
        raise UserError(f"model {name!r}: {config.architecture} does not take images alone")
    return module


def _input_size(name: str, processor: Any) -> tuple[int, int, int] | None:
    """[C, H, W] of what the processor makes of any image; None where it follows the image's sides."""
    from PIL import Image

    prepare = prepared_by(name, processor)
    sizes = {tuple(prepare(Image.new("RGB", sides, "grey")).shape) for sides in ((48, 32), (32, 48))}
    shape = sizes.pop()
    if len(shape) != 3:
        raise UserError(f"model {name!r}: its image processor gives {list(shape)}, expected [channels, height, width]")
    return None if sizes else (shape[0], shape[1], shape[2])


def _crop_share(processor: Any) -> float:
    """timm's crop_pct: the side that is cut out over the side that is resized to."""
    settings = processor.to_dict()
    if settings.get("crop_pct"):
        return float(settings["crop_pct"])
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    edge, cut = size.get("shortest_edge") or size.get("height"), crop.get("height")
    return round(cut / edge, 4) if settings.get("do_center_crop") and edge and cut else 1.0


def _interpolation(processor: Any) -> str | None:
    from PIL import Image

    resample: Any = getattr(processor, "resample", None)
    return Image.Resampling(int(resample)).name.lower() if resample in set(Image.Resampling) else None
