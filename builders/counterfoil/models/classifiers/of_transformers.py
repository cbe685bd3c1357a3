"""Classifiers of transformers: `transformers:NAME`, a model of the Hub, or `transformers:FOLDER`.

What `AutoModelForImageClassification` and its image processor would make of the files, without what they would do for
a stranger: no code of an author runs, pickled weights are not read, nothing outside the files of one commit or folder
is followed. The configuration is checked first (`config_files`), its size compared with the weights before
memory is taken (`trials`), and the weights are safetensors, all of which have to fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from counterfoil.errors import UserError
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, module_fields
from counterfoil.models.config_files import (
    CONFIG,
    MOST_CLASSES,
    MOST_JSON_BYTES,
    PROCESSORS,
    Foreign,
    Label,
    checked_processor,
    declared,
    expected,
    followed_problems,
    number_problems,
    read_config,
    refuse_problems,
    without_places,
)
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.transformers_files import (
    ModelFiles,
    as_configuration,
    found_files,
    image_processor_of,
    input_key_of,
    prepared_by,
    quiet,
    trained_module,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterfoil.recipe.prompts import RecipeClass

PREFIX = "transformers:"
_LABELS = ("id2label", "label2id")


@cache
def _known_models() -> Mapping[str, tuple[str, ...]]:
    """transformers' image classifiers by model type: the classes of each, of which the first is the usual one."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as NAMES

    return {str(kind): (one,) if isinstance(one, str) else tuple(one) for kind, one in NAMES.items()}


def _known(model_type: str) -> str:
    if model_type not in _known_models():
        raise ValueError
    return model_type


class TransformersDocument(Foreign):
    """What a config.json says of a classifier, beside the sizes of its own kind."""

    model_type: Annotated[
        str, AfterValidator(_known), expected("transformers has no image classifier of that kind", "and ")
    ]
    id2label: Annotated[
        Annotated[dict[str, Annotated[Label, expected("printable text")]], Field(min_length=1, max_length=MOST_CLASSES)]
        | None,
        expected("printable text for each output: it has no classification head"),
    ] = None
    num_labels: Annotated[int | None, Field(ge=1, le=MOST_CLASSES), expected("a number of outputs")] = None
    num_channels: Annotated[Literal[3], expected("3: a dataset's images are RGB")] = 3

    def labels(self) -> tuple[str, ...] | str:
        """The names of the outputs, in their order, or why there are none."""
        if self.id2label is None:
            if self.num_labels is None:
                return "it has no classification head (id2label is null)"
            return tuple(f"LABEL_{place}" for place in range(self.num_labels))
        count = len(self.id2label)
        if self.num_labels not in (None, count):
            return f"num_labels is {self.num_labels}, and id2label has {count} names"
        missing = next((place for place in range(count) if str(place) not in self.id2label), None)
        if missing is not None:
            return f"id2label has {count} names and none for output {missing}"
        return tuple(self.id2label[str(place)] for place in range(count))


@dataclass(frozen=True)
class TransformersConfig:
    """A checked configuration. `document` and `processor` hold plain values and go to transformers as they are."""

    model_type: str
    architecture: str
    label_names: tuple[str, ...]
    document: dict[str, Any]
    processor: dict[str, Any]

    def text(self) -> str:
        """What decides the answers beside the weights, as canonical JSON; names of outputs do not."""
        return json.dumps({key: self.document[key] for key in self.document if key not in _LABELS}, sort_keys=True)


def checked_transformers(model: str, folder: Path) -> TransformersConfig:
    """The configuration of the classifier whose files lie in `folder`. UserError with all that is wrong with it."""
    document = read_config(folder / CONFIG, model, MOST_JSON_BYTES)
    found = document.get("model_type")
    if found == "timm_wrapper" or (found is None and "architecture" in document):
        refuse_problems(model, [f"{CONFIG}: it is a timm model: name it hf-hub:NAME, or local-dir:FOLDER"])
    said, problems = declared(TransformersDocument, document)
    problems += number_problems({key: value for key, value in document.items() if key not in _LABELS}, "config")
    problems += followed_problems(document)
    labels = () if said is None else said.labels()
    if isinstance(labels, str):
        problems.append(labels)
    refuse_problems(model, [f"{CONFIG}: {problem}" for problem in problems])
    assert said is not None and not isinstance(labels, str)
    classes, asked = _known_models()[said.model_type], document.get("architectures")
    return TransformersConfig(
        model_type=said.model_type,
        # The class that was saved, where a kind of model has several.
        architecture=next((one for one in classes if isinstance(asked, list) and one in asked), classes[0]),
        label_names=labels,
        document=without_places(document),
        processor=checked_processor(model, folder),
    )


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
    return _facts(name, _configured(name)[1])


def _facts(name: str, config: TransformersConfig) -> ClassifierFacts:
    labels = config.label_names
    return ClassifierFacts(name, name.removeprefix(PREFIX), config.architecture, len(labels), labels)


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> TransformersClassifier:
    """Load the trained model on `device`, in eval mode, its parameters without gradients, in float32.

    Raises UserError for a folder that cannot be a trained classifier, RunFailure when it cannot be fetched or its
    weights cannot be read.
    """
    from PIL import Image

    place, config = _configured(name)
    module: Any = while_loading(name, lambda: _trained(name, place, config))
    processor = image_processor_of(name, config.processor, module.config)
    resample: Any = getattr(processor, "resample", None)
    prepare = prepared_by(name, processor)
    # Of two forms of an image: the processor may follow the image's sides.
    sizes = {tuple(prepare(Image.new("RGB", sides, "grey")).shape) for sides in ((48, 32), (32, 48))}
    shape = sizes.pop()
    if len(shape) != 3:
        raise UserError(f"model {name!r}: its image processor gives {list(shape)}, expected [channels, height, width]")
    return TransformersClassifier(
        **module_fields(_facts(name, config), module, f"{config.architecture}\n{config.text()}", device),
        input_key=input_key_of(processor),
        input_size=None if sizes else (shape[0], shape[1], shape[2]),
        crop_pct=_crop_share(processor),
        interpolation=Image.Resampling(int(resample)).name.lower() if resample in set(Image.Resampling) else None,
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


def _crop_share(processor: Any) -> float:
    """timm's crop_pct: the side that is cut out over the side that is resized to."""
    settings = processor.to_dict()
    if settings.get("crop_pct"):
        return float(settings["crop_pct"])
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    edge, cut = size.get("shortest_edge") or size.get("height"), crop.get("height")
    return round(cut / edge, 4) if settings.get("do_center_crop") and edge and cut else 1.0
