"""Classifiers of timm: its own names, `hf-hub:`, `local-dir:` and `lab:`.

A model from elsewhere may be hostile: its configuration is checked
(`classifier_config`), its size compared with its file (`trial_build`), and its weights chosen and read by us
(`weights_files`). Nothing here ever yields random weights: timm does so silently for a folder unless
`pretrained=True` is passed, so it always is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models import local_folder, resolve_name
from counterfoil.models.classifier_config import ClassifierConfig, checked_config
from counterfoil.models.classifiers.classifier import Classifier, ClassifierFacts
from counterfoil.models.config_files import read_config
from counterfoil.models.input_form import refuse_unlike_sides, resized_sides
from counterfoil.models.loading_errors import told_in_words
from counterfoil.models.names import LAB
from counterfoil.models.weights_files import (
    SAFE,
    choose_weights,
    read_pickled,
    refuse_damaged,
    refuse_infinite,
    weights_sha256,
)
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import nn

    from counterfoil.recipe.prompts import RecipeClass

# The names of weights files that timm looks for in a folder and on the Hub, in its order; other names come after them.
_PREFERRED = (
    "model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth", "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin", "open_clip_pytorch_model.pth",
)  # fmt: skip
_ON_THE_HUB = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class TimmClassifier(Classifier):
    """A timm model in eval mode. `data_config` is timm's, at the model's test size: input_size, interpolation, mean,
    std, crop_pct, crop_mode. `model_args` are what its folder's configuration gives the architecture beside that.
    `sha256` is over the architecture and every loaded tensor.
    """

    data_config: dict[str, Any]
    model_args: dict[str, Any] = field(default_factory=dict)

    def transform(self) -> Callable[[Any], Any]:
        """timm's evaluation transform for this model: a PIL image to a float tensor (C, H, W).

        It raises UserError for an image whose sides are so unlike that resizing would take it beyond memory.
        """
        from timm.data.transforms_factory import create_transform

        timms: Any = create_transform(**self.data_config, is_training=False)
        sides = resized_sides(self.data_config)

        def transformed(image: Any) -> Any:
            refuse_unlike_sides(self.name, image.size, sides, self.data_config["crop_mode"])
            return timms(image)

        return transformed

    def logits(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        import torch

        with torch.inference_mode():
            return self.module(batch.to(device)).float().cpu()

    def features(self, batch: torch.Tensor, device: str) -> torch.Tensor:
        """The input of the head's last layer, pooled as timm pools it: (b, head_hidden_size), not `num_features`.

        Raises UserError for an architecture whose head takes something else than one vector an image.
        """
        import torch

        with torch.inference_mode():
            inner = self.module.forward_features(batch.to(device))
            found = self.module.forward_head(inner, pre_logits=True)
        if not isinstance(found, torch.Tensor) or found.ndim != 2 or len(found) != len(batch):
            raise UserError(f"model {self.name!r}: the head of {self.architecture} does not take one vector an image")
        return found.float().cpu()


def describe(name: str, classes: Sequence[RecipeClass] = ()) -> ClassifierFacts:
    """Architecture and outputs of the model called `name`, read from its configuration only.

    Raises UserError, with the nearest name, for a model that does not exist or was never trained, and with all that is
    wrong with a configuration from which no classifier of images can be built.
    """
    return _found(name).facts


def load(name: str, device: str = "cpu", classes: Sequence[RecipeClass] = ()) -> TimmClassifier:
    """The trained model called `name` on `device`, in eval mode, its parameters without gradients.

    Raises UserError for a name or folder that cannot be a trained model, RunFailure when it
    cannot be fetched or its weights cannot be read.
    """
    from timm.data.config import resolve_model_data_config

    found = _found(name)
    module = told_in_words(name, lambda: _trained(name, found))
    module.eval().requires_grad_(False)
    resolved = resolve_model_data_config(module, use_test_size=True)
    data_config: dict[str, Any] = {key: list(v) if isinstance(v, tuple) else v for key, v in resolved.items()}
    num_classes = int(getattr(module, "num_classes", 0))
    if num_classes < 1:
        raise UserError(f"model {name!r} has no classification head")
    channels, height, width = data_config["input_size"]
    return TimmClassifier(
        name=name,
        architecture=found.facts.architecture,
        num_classes=num_classes,
        label_names=found.facts.label_names,
        param_count=sum(parameter.numel() for parameter in module.parameters()),
        sha256=weights_sha256(found.facts.architecture, module.state_dict()),
        input_key=json.dumps(data_config, sort_keys=True, default=str),
        input_size=(channels, height, width),
        crop_pct=float(data_config["crop_pct"]),
        interpolation=str(data_config["interpolation"]),
        module=told_in_words(name, lambda: module.to(device)),
        data_config=data_config,
        model_args=dict(found.config.model_args) if found.config else {},
    )


@dataclass(frozen=True)
class _Found:
    """A model before its weights: the facts, and where a folder or a repository brings them, its checked configuration.

    `folder` is the person's own, or the one commit of a repository in the cache, whose name is `repository`.
    """

    facts: ClassifierFacts
    config: ClassifierConfig | None = None
    folder: Path | None = None
    repository: str | None = None


def _found(name: str) -> _Found:
    folder = local_folder(name)
    resolved = resolve_name(name) if folder is None else f"local-dir:{folder}"
    source, _, identifier = resolved.partition(":")
    repository = None
    if folder is not None:
        file = _local_config(name, folder)
    elif source == "hf-hub":
        repository, file = _hub_config(name, identifier)
    elif os.path.isdir(resolved):  # noqa: PTH112 (false, where a Path raises for a name of 5,000 characters)
        raise UserError(f"model {name!r} is a folder", f"Write local-dir:{name} to load a timm model from it.")
    elif "/" in resolved:
        raise UserError(f"model {name!r} is no timm name", f"Write hf-hub:{name} if it is on the Hub.")
    else:
        return _Found(_timm_facts(name, resolved))
    config = checked_config(name, read_config(file, name))
    facts = ClassifierFacts(name, resolved, config.architecture, config.num_classes, config.label_names)
    return _Found(facts, config, file.parent, repository)


def _trained(name: str, found: _Found) -> nn.Module:
    """The module with its weights, all of them: timm is asked for trained ones, and its loading is strict."""
    import timm

    from counterfoil.models.trial_build import refuse_overgrown

    if found.config is None or found.folder is None:
        # Weights of timm's own list, from the repositories that it names.
        return timm.create_model(found.facts.resolved, pretrained=True)
    config = found.config
    file = (
        _hub_weights(name, found.repository, found.folder) if found.repository else _local_weights(name, found.folder)
    )

    def build(**weights: Any) -> nn.Module:
        described = {**config.pretrained_cfg, **weights}
        return timm.create_model(
            config.architecture, pretrained=bool(weights), pretrained_cfg=described, **config.model_args
        )

    weights: dict[str, Any] = {"file": str(file)}
    if file.suffix == SAFE:
        refuse_damaged(file, name)
    else:
        weights = {"state_dict": read_pickled(file, name)}
    if not name.startswith(LAB):  # what the package itself brings fits its file
        refuse_overgrown(name, [file], build)
    module: Any = build(**weights)
    # The weights are in the module now; timm would keep what it was given beside them.
    for key in weights:
        module.pretrained_cfg.pop(key, None)
    refuse_infinite(name, module)
    return module


def _timm_facts(name: str, resolved: str) -> ClassifierFacts:
    import timm

    architecture = resolved.partition(".")[0]
    if not timm.is_model(architecture):
        known = timm.list_models(pretrained=True) + timm.list_models()
        raise UserError(f"model {name!r} is not a timm model{did_you_mean(resolved, known)}")
    tags = timm.list_models(f"{architecture}.*", pretrained=True)
    if not tags:
        raise UserError(f"model {name!r}: timm has the architecture {architecture!r} but no trained weights for it")
    if "." in resolved and resolved not in tags:
        raise UserError(f"model {name!r}: timm has no such weights; it has {', '.join(tags)}")
    config = timm.get_pretrained_cfg(resolved)
    if config is None or not config.num_classes:
        raise UserError(f"model {name!r} has no classification head")
    return ClassifierFacts(name, resolved, architecture, int(config.num_classes), None)


def _local_config(name: str, folder: Path) -> Path:
    file = folder / "config.json"
    if not file.exists():
        raise UserError(f"model {name!r}: {folder} has no config.json, so it is no timm model folder")
    _local_weights(name, folder)
    return file


def _local_weights(name: str, folder: Path) -> Path:
    weights = choose_weights(folder, _PREFERRED)
    if weights is None:
        raise UserError(f"model {name!r}: {folder} has a config.json but no weights (model.safetensors)")
    return weights


def _hub_config(name: str, identifier: str) -> tuple[str, Path]:
    """The name of a repository and its configuration in the cache, in the folder of one commit."""
    from huggingface_hub import hf_hub_download

    repository, _, revision = identifier.partition("@")
    return repository, Path(
        told_in_words(name, lambda: hf_hub_download(repository, "config.json", revision=revision or None))
    )


def _hub_weights(name: str, repository: str, folder: Path) -> Path:
    """The weights of the commit whose folder in the cache holds the configuration."""
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    unknown: Exception | None = None
    for file in _ON_THE_HUB:
        try:
            return Path(hf_hub_download(repository, file, revision=folder.name))
        except hub.EntryNotFoundError as error:
            # Offline, a file that is not in the cache may be on the Hub all the same.
            unknown = error if isinstance(error, hub.LocalEntryNotFoundError) else unknown
    if unknown is not None:
        raise unknown
    raise UserError(f"model {name!r} has a config.json but none of {', '.join(_ON_THE_HUB)}")
