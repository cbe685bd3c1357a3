"""Load classifiers of transformers: `transformers:NAME`, a model of the Hub, or
`transformers:FOLDER`.

The results are those of `AutoModelForImageClassification` and its image processor, but no code of
the model's author runs, and no file outside one commit or folder is read. The configuration is
checked first (`config_files`), the model's size is compared with the weights (`trials`), and every
tensor of the safetensors weights must fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, module_fields
from counterfoil.models.config_files import (
    CONFIG,
    MOST_CLASSES,
    MOST_JSON_BYTES,
    PROCESSORS,
    Foreign,
    Label,
    checked_processor,
    declared_values,
    expected_words,
    followed_problems,
    number_problems,
    read_config,
    refuse_problems,
    shown_setting,
    without_places,
)
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.messages import refusal
from counterfoil.models.transformers_files import (
    CheckedConfig,
    found_files,
    image_processor_of,
    input_key_of,
    prepared_by,
    trained_module,
)
from counterfoil.models.weights_files import prefix_note
from counterfoil.recipe.names import TRANSFORMERS

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.prompts import RecipeClass

_LABELS = ("id2label", "label2id")


@dataclass(frozen=True)
class ModelKind:
    """A kind of models of transformers.

    what: its name in messages. listed: the name of transformers' mapping from model types to
    classes. followed: yields a problem for each key of a configuration that leads to code or other
    files.
    """

    what: str
    listed: str
    followed: Callable[[Any], Iterable[str]] = followed_problems

    def classes(self, model_type: Any) -> tuple[str, ...]:
        """Return the names of a model type's classes, the usual class first. A type of another kind
        has none."""
        from transformers.models.auto import modeling_auto

        listed: Mapping[str, str | tuple[str, ...]] = getattr(modeling_auto, self.listed)
        if not isinstance(model_type, str):
            return ()
        names = listed.get(model_type, ())
        return (names,) if isinstance(names, str) else tuple(names)


CLASSIFIERS = ModelKind("image classifier", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES")


class TransformersDocument(Foreign):
    """The keys of a config.json that every classifier and detector has."""

    id2label: Annotated[
        Annotated[
            dict[str, Annotated[Label, expected_words("printable text")]],
            Field(min_length=1, max_length=MOST_CLASSES),
        ]
        | None,
        expected_words("printable text for each output: it has no classification head"),
    ] = None
    num_labels: Annotated[
        int | None, Field(ge=1, le=MOST_CLASSES), expected_words("a number of outputs")
    ] = None
    architectures: Any = None
    num_channels: Annotated[Literal[3], expected_words("3: a dataset's images are RGB")] = 3

    def labels(self) -> tuple[str, ...] | str:
        """Return the names of the outputs in order, or a text that says why there are none."""
        if self.id2label is None:
            # transformers does not write its default, which is two outputs without names. A model
            # without a head has it too, and the name of its class says so.
            by_default = "id2label" not in self.model_fields_set
            headed = by_default and "For" in str(self.architectures)
            if self.num_labels is None and not headed:
                return "it has no classification head (id2label is null)"
            return tuple(f"LABEL_{output}" for output in range(self.num_labels or 2))
        count = len(self.id2label)
        if self.num_labels not in (None, count):
            return f"num_labels is {self.num_labels}, and id2label has {count} names"
        names = []
        for output in range(count):
            if str(output) not in self.id2label:
                return f"id2label has {count} names and none for output {output}"
            names.append(self.id2label[str(output)])
        return tuple(names)


@dataclass(frozen=True)
class TransformersConfig(CheckedConfig):
    """The checked configuration of a model with named outputs."""

    label_names: tuple[str, ...]

    def text(self) -> str:
        """Return the part of the configuration that decides the answers, as canonical JSON without
        names of outputs."""
        return json.dumps(_without_labels(self.document), sort_keys=True)

    def facts(self, name: str) -> ClassifierFacts:
        labels = self.label_names
        resolved = name.removeprefix(TRANSFORMERS)
        return ClassifierFacts(
            name,
            resolved,
            self.architecture,
            len(labels),
            labels,
        )

    def fields(self, name: str, module: Any, device: str) -> dict[str, Any]:
        """Return the fields that every model has, with the model in eval mode on `device`."""
        content = f"{self.architecture}\n{self.text()}"
        return module_fields(self.facts(name), module, content, device)


def _without_labels(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in _LABELS}


def checked_transformers(
    model: str,
    folder: Path,
    kind: ModelKind = CLASSIFIERS,
) -> TransformersConfig:
    """Check the configuration of the model in `folder`, and return it. Raise UserError with all
    problems."""
    document = read_config(folder / CONFIG, model, MOST_JSON_BYTES)
    model_type = document.get("model_type")
    of_timm = model_type == "timm_wrapper" or (model_type is None and "architecture" in document)
    if of_timm and kind is CLASSIFIERS:
        where = f"model {model!r}"
        raise refusal("unfit-model.of-timm", where)
    common, problems = declared_values(TransformersDocument, document)
    problems += number_problems(_without_labels(document), "config")
    problems += kind.followed(document)
    classes = kind.classes(model_type)
    if not classes:
        problems.append(
            f"model_type: found {shown_setting(model_type)}, and transformers has no {kind.what} of that"
            " kind"
        )
    labels = () if common is None else common.labels()
    if isinstance(labels, str):
        problems.append(labels)
    refuse_problems(model, problems, CONFIG)
    assert isinstance(model_type, str) and not isinstance(labels, str)
    # A model type may have several classes.
    saved = document.get("architectures")
    named = [name for name in classes if isinstance(saved, list) and name in saved]
    return TransformersConfig(
        model_type=model_type,
        architecture=(*named, *classes)[0],
        label_names=labels,
        document=without_places(document),
        processor=checked_processor(model, folder),
    )


@dataclass(frozen=True, kw_only=True)
class TransformersClassifier(Classifier):
    """A model of transformers with its image processor. sha256: of configuration and tensors."""

    processor: Any

    def transform(self) -> Callable[[Any], torch.Tensor]:
        return prepared_by(self.name, self.processor)

    def stages(self) -> Any:
        return self.processor

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            answer = self.module(pixel_values=batch.to(device))
            return answer.logits.float().cpu()


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    files = found_files(name, name.removeprefix(TRANSFORMERS), PROCESSORS)
    return checked_transformers(name, files.folder).facts(name)


def load(name: str, device: str, classes: Sequence[RecipeClass]) -> TransformersClassifier:
    from PIL import Image

    fields, processor, prefix = load_transformers(name, device, CLASSIFIERS)
    resample: Any = getattr(processor, "resample", None)
    prepare = prepared_by(name, processor)
    # Two images of different shapes show whether the input size depends on the image.
    wide = Image.new("RGB", (48, 32), "grey")
    shape = tuple(prepare(wide).shape)
    other_shape = tuple(prepare(wide.rotate(90, expand=True)).shape)
    if len(shape) != 3:
        where = f"model {name!r}"
        raise refusal("invalid-config.prepared", where, list(shape))
    settings = processor.to_dict()
    size = settings.get("size") or {}
    crop = settings.get("crop_size") or {}
    resized = size.get("shortest_edge") or size.get("height")
    cropped = crop.get("height")
    crop_share = 1.0  # timm's crop_pct: the cropped side divided by the resized side
    if settings.get("crop_pct"):
        crop_share = float(settings["crop_pct"])
    elif settings.get("do_center_crop") and resized and cropped:
        crop_share = round(cropped / resized, 4)
    interpolation = None
    if resample in set(Image.Resampling):
        interpolation = Image.Resampling(int(resample)).name.lower()
    return TransformersClassifier(
        **fields,
        input_key=input_key_of(processor),
        input_size=(shape[0], shape[1], shape[2]) if shape == other_shape else None,
        crop_pct=crop_share,
        interpolation=interpolation,
        processor=processor,
        read=prefix_note(prefix),
    )


def load_transformers(name: str, device: str, kind: ModelKind) -> tuple[dict[str, Any], Any, str]:
    """Load a model of a kind on `device`, in eval mode, without gradients, in float32.

    Return its fields of a `Classifier`, its image processor, and what was left out before the names
    of its weights. Raise UserError for a folder that cannot be such a model, RunFailure if it
    cannot be fetched or its weights cannot be read.
    """
    files = found_files(name, name.removeprefix(TRANSFORMERS), PROCESSORS)
    config = checked_transformers(name, files.folder, kind)
    module, prefix = while_loading(name, lambda: trained_module(name, files, config))
    if getattr(module, "main_input_name", None) != "pixel_values":
        where = f"model {name!r}"
        raise refusal("unfit-model.inputs", where, config.architecture)
    processor = image_processor_of(name, config, module.config)
    return config.fields(name, module, device), processor, prefix
