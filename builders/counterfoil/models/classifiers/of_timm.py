"""Load classifiers of timm: its own names, `hf-hub:`, `local-dir:` and `lab:`.

A model from elsewhere may be hostile, but timm trusts configurations: `pretrained_cfg` may name
other files, repositories or loaders, and `model_args` go to timm's factory unchanged. So only keys
that describe the model are used, the model's size is compared with its file (`trials`), and
`weights_files` reads the weights. `pretrained=True` is always passed, because without it timm
silently makes random weights for a folder.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, Strict

from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts, module_fields
from counterfoil.models.config_files import (
    LARGEST_NUMBER,
    LARGEST_SIDE,
    LONGEST_TEXT,
    MOST_CLASSES,
    Crop,
    Foreign,
    Label,
    declared_values,
    expected_words,
    fulfils,
    is_integer,
    is_text,
    known_to_timm,
    read_config,
    refuse_problems,
    refuse_unlike_sides,
    shown_key,
    shown_setting,
)
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.messages import refusal
from counterfoil.models.names import LAB, local_folder, resolve_name
from counterfoil.models.weights_files import (
    SAFE,
    prefix_note,
    read_pickled,
    read_safetensors,
    refuse_damaged,
    refuse_infinite,
    unwrapped,
    weights_choices,
    weights_misfit,
    without_prefix,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterfoil.recipe.prompts import RecipeClass

# The names of weights files that timm looks for, in timm's order. Other names come after these.
_PREFERRED = (
    "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth", "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth",
)  # fmt: skip
_ON_THE_HUB = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class TimmClassifier(Classifier):
    """A timm model in eval mode. sha256: of the architecture and every loaded tensor."""

    data_config: dict[str, Any]
    """timm's data configuration at the model's test size (input_size, interpolation, mean, std,
    crop_pct, crop_mode)."""
    model_args: dict[str, Any] = field(default_factory=dict)
    """The architecture's arguments in the folder's configuration."""

    def transform(self) -> Callable[[Any], Any]:
        return timm_transform(self.name, self.data_config)

    def stages(self) -> Any:
        return timm_stages(self.data_config)

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            scores = self.module(batch.to(device))
            return scores.float().cpu()

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """Return the inputs of the head's last layer, pooled as timm does: (b,
        head_hidden_size)."""
        import torch

        with torch.inference_mode():
            inner = self.module.forward_features(batch.to(device))
            vectors = self.module.forward_head(inner, pre_logits=True)
        if not isinstance(vectors, torch.Tensor) or vectors.ndim != 2 or len(vectors) != len(batch):
            where = f"model {self.name!r}"
            raise refusal("unfit-model.features", where, self.architecture)
        return vectors.float().cpu()


def timm_transform(model: str, data_config: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return timm's evaluation transform for a resolved data configuration: PIL image → float
    tensor (C, H, W)."""
    prepare = timm_stages(data_config)
    sides = _resized_sides(data_config["input_size"], data_config["crop_pct"])

    def transformed(image: Any) -> Any:
        refuse_unlike_sides(model, image.size, sides, data_config["crop_mode"])
        return prepare(image)

    return transformed


def timm_stages(data_config: Mapping[str, Any]) -> Any:
    """Return timm's evaluation transform, a Compose of torchvision."""
    from timm.data.transforms_factory import create_transform

    return create_transform(**data_config, is_training=False)


def describe(name: str, classes: Sequence[RecipeClass]) -> ClassifierFacts:
    return _locate(name).facts


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> TimmClassifier:
    from timm.data.config import resolve_model_data_config

    files = _locate(name)
    module, prefix = while_loading(name, lambda: _trained(name, files))
    data_config = as_document(resolve_model_data_config(module, use_test_size=True))
    outputs = int(getattr(module, "num_classes", 0))
    if outputs < 1:
        where = f"model {name!r}"
        raise refusal("unfit-model.headless", where)
    facts = replace(files.facts, num_classes=outputs)
    channels, height, width = data_config["input_size"]
    input_key = json.dumps(data_config, sort_keys=True, default=str)
    notes = [prefix_note(prefix)]
    model_args = {}
    if files.config is not None:
        model_args = dict(files.config.model_args)
        notes.append(unstated_note(files.config, data_config))
    if model_args:
        # Weights do not show all of them, such as the number of heads or the activation.
        input_key += f" {json.dumps(model_args, sort_keys=True)}"
    return TimmClassifier(
        **module_fields(facts, module, facts.architecture, device),
        input_key=input_key,
        input_size=(channels, height, width),
        crop_pct=float(data_config["crop_pct"]),
        interpolation=str(data_config["interpolation"]),
        data_config=data_config,
        model_args=model_args,
        read="; ".join(filter(None, notes)),
    )


def as_document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of timm as JSON has it: with lists instead of tuples."""
    document = dict(config)
    for key, value in config.items():
        if isinstance(value, tuple):
            document[key] = list(value)
    return document


@dataclass(frozen=True)
class _TimmFiles:
    """A model before its weights are loaded."""

    facts: ClassifierFacts
    config: ClassifierConfig | None = None
    folder: Path | None = None
    """The user's, or the cached folder of a commit of `repository`."""
    repository: str | None = None


def _locate(name: str) -> _TimmFiles:
    where = f"model {name!r}"
    folder = local_folder(name)
    resolved = resolve_name(name) if folder is None else f"local-dir:{folder}"
    source, _, identifier = resolved.partition(":")
    repository = None
    if folder is not None:
        file = folder / "config.json"
        if not file.exists():
            raise refusal(
                "missing-model-file.config",
                where,
                folder,
                "config.json",
                what="a folder of a timm model",
            )
        _local_weights(name, folder)
    elif source == "hf-hub":
        from huggingface_hub import hf_hub_download

        repository, _, revision = identifier.partition("@")
        commit = revision or None
        fetch = partial(hf_hub_download, repository, "config.json", revision=commit)
        file = Path(while_loading(name, fetch))
    elif os.path.isdir(resolved):  # noqa: PTH112 (false, where a Path raises for a name of 5,000 characters)
        raise refusal("unknown-model.folder", where, name)
    elif "/" in resolved:
        raise refusal("unknown-model.slash", where, name)
    else:
        return _TimmFiles(_listed_by_timm(name, resolved))
    config = checked_config(name, read_config(file, name))
    facts = config.facts(name, resolved)
    return _TimmFiles(facts, config, file.parent, repository)


def _listed_by_timm(name: str, resolved: str) -> ClassifierFacts:
    """Return the facts of a model of timm's own list. UserError if the list has no such weights."""
    import timm

    where = f"model {name!r}"
    architecture = resolved.partition(".")[0]
    if not timm.is_model(architecture):
        known = timm.list_models(pretrained=True) + timm.list_models()
        raise refusal("unknown-model.timm", where, resolved, known)
    tags = timm.list_models(f"{architecture}.*", pretrained=True)
    if not tags:
        raise refusal("unknown-model.untrained", where, architecture)
    if "." in resolved and resolved not in tags:
        raise refusal("unknown-model.tag", where, resolved, tags)
    listed = timm.get_pretrained_cfg(resolved)
    if listed is None or not listed.num_classes:
        raise refusal("unfit-model.headless", where)
    return ClassifierFacts(name, resolved, architecture, int(listed.num_classes), None)


def _trained(name: str, files: _TimmFiles) -> tuple[nn.Module, str]:
    """Return a model with its weights, and what was left out before the names of the weights,
    mostly ""."""
    import timm

    from counterfoil.models.trials import refuse_overgrown

    if files.config is None or files.folder is None:
        # Weights of timm's own list, from the repositories that it names.
        return timm.create_model(files.facts.resolved, pretrained=True), ""
    config = files.config
    if files.repository is None:
        file = _local_weights(name, files.folder)
    else:
        file = _hub_weights(name, files.repository, files.folder.name)

    def build(**weights: Any) -> nn.Module:
        described = {**config.pretrained_cfg, **weights}
        return timm.create_model(
            config.architecture,
            pretrained=bool(weights),
            pretrained_cfg=described,
            **config.model_args,
        )

    if file.suffix == SAFE:
        refuse_damaged(file, name)
        weights = read_safetensors(file)
        if config.wrapped:
            weights = {unwrapped(key): tensor for key, tensor in weights.items()}
    else:
        weights = read_pickled(file, name)
    prefix = ""
    expected = dict[str, Any]()
    if not name.startswith(LAB):
        expected = refuse_overgrown(name, [file], build).state_dict()
        weights, prefix = without_prefix(weights, expected)
    try:
        module: Any = build(state_dict=weights)
    except RuntimeError as error:
        if "state_dict" not in str(error):
            raise
        raise weights_misfit(
            name,
            file,
            weights,
            expected,
            config.num_classes,
        ) from error
    # timm keeps its arguments in the module, so the module would hold the weights twice.
    module.pretrained_cfg.pop("state_dict", None)
    refuse_infinite(name, module)
    return module, prefix


def _local_weights(name: str, folder: Path) -> Path:
    choices = weights_choices(folder, _PREFERRED)
    where = f"model {name!r}"
    if not choices:
        raise refusal("missing-model-file.weights", where, folder)
    if len(choices) > 1:
        names = [file.name for file in choices]
        raise refusal("missing-model-file.checkpoints", where, names, folder=folder)
    return choices[0]


def _hub_weights(name: str, repository: str, commit: str) -> Path:
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    unknown: Exception | None = None
    for file in _ON_THE_HUB:
        try:
            return Path(hf_hub_download(repository, file, revision=commit))
        except hub.LocalEntryNotFoundError as error:
            unknown = error  # offline, a file that is not in the cache may still exist on the Hub
        except hub.EntryNotFoundError:
            continue
    if unknown is not None:
        raise unknown
    where = f"model {name!r}"
    raise refusal("missing-model-file.hub-weights", where, None, _ON_THE_HUB)


# The largest whole number in a configuration: eight times the width of timm's widest layer.
_WIDEST = 65_536
_LONGEST_LIST = 64
_LARGEST_RESIZED_SIDE = 2 * LARGEST_SIDE
_LEAST_STD = 1e-6
_MOST_SHIFT = 1e6
# More arguments of timm's factory that decide how a model is made, and not which model.
_NOT_THE_MODELS = frozenset(
    {"pruned", "features_only", "feature_cls", "out_indices", "device", "dtype"}
)

Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
CropMode = Literal["center", "squash", "border"]
INTERPOLATIONS: tuple[str, ...] = get_args(Interpolation)
# What timm writes into each configuration.
_PREPARED = ("input_size", "crop_pct", "interpolation", "mean", "std")
_Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
_Size = Annotated[
    # Only the tuple is not strict, because JSON has lists. A literal 3 would accept 3.0.
    Annotated[tuple[Annotated[int, Field(ge=3, le=3)], _Side, _Side], Strict(False)] | None,
    expected_words(f"[3, height, width] with sides from 1 to {LARGEST_SIDE:,}"),
]
_Shift = Annotated[float, Field(ge=-_MOST_SHIFT, le=_MOST_SHIFT)]
_Deviation = Annotated[float, Field(ge=_LEAST_STD, le=_MOST_SHIFT)]


class InputForm(Foreign):
    """The keys of `pretrained_cfg` that say how images are prepared. null stands for the
    default."""

    input_size: _Size = None
    test_input_size: _Size = None
    fixed_input_size: Annotated[bool | None, expected_words("true or false")] = None
    interpolation: Annotated[
        Interpolation | None, expected_words(f"one of {', '.join(INTERPOLATIONS)}")
    ] = None
    crop_pct: Crop = None
    test_crop_pct: Crop = None
    crop_mode: Annotated[
        CropMode | None, expected_words(f"one of {', '.join(get_args(CropMode))}")
    ] = None
    mean: Annotated[
        Annotated[tuple[_Shift, _Shift, _Shift], Strict(False)] | None,
        expected_words("three finite numbers"),
    ] = None
    std: Annotated[
        Annotated[tuple[_Deviation, _Deviation, _Deviation], Strict(False)] | None,
        expected_words(f"three numbers from {_LEAST_STD:f} to {_MOST_SHIFT:,.0f}"),
    ] = None


class TimmDocument(Foreign):
    architecture: Annotated[
        str,
        fulfils(known_to_timm),
        expected_words(f"timm {version('timm')} does not know", "an architecture that "),
    ]
    num_classes: Annotated[
        int,
        Field(ge=1, le=MOST_CLASSES),
        expected_words(f"a whole number from 1 to {MOST_CLASSES:,}: it has no classification head"),
    ]
    label_names: Annotated[
        Annotated[tuple[Annotated[Label, expected_words("printable text")], ...], Strict(False)]
        | None,
        expected_words("a list of printable texts"),
    ] = None
    pretrained_cfg: Annotated[dict[str, Any] | None, expected_words("a mapping")] = None
    model_args: Annotated[dict[str, Any] | None, expected_words("a mapping")] = None


@dataclass(frozen=True)
class ClassifierConfig:
    """A checked configuration, which goes to timm unchanged. wrapped: whether transformers saved
    it."""

    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None
    pretrained_cfg: dict[str, Any]
    model_args: dict[str, Any]
    wrapped: bool

    def facts(self, name: str, resolved: str) -> ClassifierFacts:
        return ClassifierFacts(
            name,
            resolved,
            self.architecture,
            self.num_classes,
            self.label_names,
        )


def checked_config(
    model: str,
    document: Mapping[str, Any],
    kind: type[TimmDocument] = TimmDocument,
) -> ClassifierConfig:
    """Check a config.json, and return its configuration. Raise UserError with all problems."""
    described = document.get("pretrained_cfg")
    prefix = "pretrained_cfg."
    if not isinstance(described, dict) or not described:
        # Older exports have everything in one mapping.
        described = document
        prefix = ""
    arguments = document.get("model_args")
    if not isinstance(arguments, dict):
        arguments = {}
    num_classes = document.get("num_classes", described.get("num_classes"))
    labels = document.get("label_names") or described.get("label_names") or None
    stated = {**document, "num_classes": num_classes, "label_names": labels}
    model_facts, problems = declared_values(kind, stated)
    form = _input_form(described)
    _, form_problems = declared_values(InputForm, form, prefix)
    if not form_problems:
        size = form.get("test_input_size", form.get("input_size"))
        crop = form.get("test_crop_pct", form.get("crop_pct"))
        if size and crop:
            height, width = _resized_sides(size, crop)
            if max(height, width) > _LARGEST_RESIZED_SIDE:
                problems.append(
                    f"{prefix}input_size and crop_pct: images would be resized to {height:,} x"
                    f" {width:,} pixels, expected at most {_LARGEST_RESIZED_SIDE:,} a side"
                )
        colour = form.get("mean", ())
        if form.get("crop_mode") == "border" and not all(0 <= share <= 1 for share in colour):
            problems.append(
                f"{prefix}mean: found {shown_setting(colour)}, expected three numbers from 0 to 1,"
                " the colour of the border"
            )
    problems += form_problems
    problems += _argument_problems(arguments, num_classes)
    refuse_problems(model, problems, "config.json")
    assert model_facts is not None
    # Arguments override the input's form, because older exports kept the form of the weights that
    # training began with.
    any_size = arguments.get("dynamic_img_size") or arguments.get("use_naflex")
    if any_size or arguments.get("strict_img_size") is False:
        form["fixed_input_size"] = False
    side = arguments.get("img_size")
    if side is not None and form.get("fixed_input_size") and "input_size" in form:
        form["input_size"] = [3, *_two(side)]
    wrapped = document.get("model_type") == "timm_wrapper"
    if wrapped:
        # The image processor of transformers has only one size.
        form.pop("test_input_size", None)
        form.pop("test_crop_pct", None)
    return ClassifierConfig(
        architecture=model_facts.architecture,
        num_classes=model_facts.num_classes,
        label_names=model_facts.label_names,
        pretrained_cfg={**form, "num_classes": num_classes},
        model_args=dict(arguments),
        wrapped=wrapped,
    )


def unstated_note(config: ClassifierConfig, data_config: Mapping[str, Any]) -> str:
    """Say how images are prepared where a config.json does not say it, as where a person wrote it."""
    stated = {key.removeprefix("test_") for key in config.pretrained_cfg}
    taken = [f"{key} {data_config[key]}" for key in _PREPARED if key not in stated]
    if not taken:
        return ""
    return f"config.json does not say how images are prepared, so timm's default is taken: {', '.join(taken)}"


def _input_form(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a `pretrained_cfg` says of `InputForm`."""
    form = {}
    for key in InputForm.model_fields:
        value = config.get(key)
        if value is not None:
            form[key] = value
    return form


def _resized_sides(size: Sequence[int], crop: float) -> tuple[int, int]:
    return math.floor(size[1] / crop), math.floor(size[2] / crop)


def stored_config(classifier: TimmClassifier) -> dict[str, Any]:
    """Return a config.json that `checked_config` reads as this model; it names no files and no
    loader."""
    form = _input_form(classifier.module.pretrained_cfg)
    outputs = classifier.num_classes
    document: dict[str, Any] = {
        "architecture": classifier.architecture,
        "num_classes": outputs,
        "model_args": dict(classifier.model_args),
        "pretrained_cfg": {**as_document(form), "custom_load": False, "num_classes": outputs},
    }
    if classifier.label_names is not None:
        document["label_names"] = list(classifier.label_names)
    return document


def _argument_problems(arguments: Mapping[str, Any], num_classes: Any) -> list[str]:
    import timm

    problems = []
    for key, value in arguments.items():
        wanted = _expected_value(value)
        if key != "num_classes" and wanted is not None:
            shown = f"model_args.{shown_key(key)}: found {shown_setting(value)}"
            problems.append(f"{shown}, expected {wanted}")
    # Arguments of timm's factory itself: names of files, devices, whether all weights must fit.
    factory = timm.create_model
    builder = sys.modules[factory.__module__.rpartition(".")[0] + "._builder"]
    taken = {*_NOT_THE_MODELS}
    for function in (factory, builder.build_model_with_cfg):
        taken.update(inspect.signature(function).parameters)
    taken.discard("kwargs")
    for key in arguments:
        if key in taken:
            name = f"model_args.{shown_key(key)}"
            problems.append(f"{name} is set here and cannot come from a configuration")
    outputs = arguments.get("num_classes")
    if outputs not in (None, num_classes):
        shown = f"model_args.num_classes is {shown_setting(outputs)}"
        problems.append(f"{shown}, num_classes {shown_setting(num_classes)}")
    channels = arguments.get("in_chans")
    if channels not in (3, None):
        shown = f"model_args.in_chans: found {shown_setting(channels)}"
        problems.append(f"{shown}, expected 3: a dataset's are RGB")
    sides = arguments.get("img_size")
    both = () if sides is None else _two(sides)
    if not all(is_integer(side, 1, LARGEST_SIDE) for side in both):
        shown = f"model_args.img_size: found {shown_setting(sides)}"
        problems.append(f"{shown}, expected sides from 1 to {LARGEST_SIDE:,}")
    return problems


def _expected_value(value: Any, depth: int = 2) -> str | None:
    """Return None if a value is plain (a number, text, bool, null or short list), else words for a
    valid value."""
    if value is None or isinstance(value, bool) or value == "" or is_text(value):
        return None
    if isinstance(value, int):
        if abs(value) <= _WIDEST:
            return None
        return f"a whole number from -{_WIDEST:,} to {_WIDEST:,}"
    if isinstance(value, float):
        if abs(value) <= LARGEST_NUMBER:
            return None
        return f"a number from -{LARGEST_NUMBER:,} to {LARGEST_NUMBER:,}"
    if isinstance(value, str):
        return f"text of at most {LONGEST_TEXT} printable characters"
    if isinstance(value, list) and depth:
        if len(value) > _LONGEST_LIST:
            return f"a list of at most {_LONGEST_LIST} values"
        for item in value:
            wanted = _expected_value(item, depth - 1)
            if wanted is not None:
                return wanted
        return None
    return "a number, a text, true, false, or a short list of these"


def _two(sides: Any) -> list[Any]:
    if not isinstance(sides, list):
        return [sides, sides]
    return sides if len(sides) == 2 else [None]
