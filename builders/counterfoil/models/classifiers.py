"""Load trained image classifiers by name: timm names, `hf-hub:`, `local-dir:` and `lab:`.

Two steps, because a run over many models should report every wrong name before it downloads
anything: `describe_classifier` reads a model's outputs from its configuration alone, and
`load_classifier` loads the weights. Nothing here ever yields random weights: timm does so
silently for a `local-dir:` unless `pretrained=True` is passed, so it always is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models import local_folder, resolve_name
from counterfoil.recipe.names import did_you_mean

# What timm's config.json files may be accompanied by, safest first.
_WEIGHT_PATTERNS = ("*.safetensors", "*.pth", "*.pth.tar", "*.bin")


@dataclass(frozen=True)
class ClassifierFacts:
    """What a classifier's configuration says, before any weight is loaded."""

    name: str
    resolved: str
    architecture: str
    num_classes: int
    label_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Classifier:
    """A trained timm model in eval mode, with what its input must look like.

    `data_config` is timm's, at the model's test size: input_size, interpolation, mean, std,
    crop_pct, crop_mode. `sha256` is over the architecture and every loaded tensor, so two
    models are equal when, and only when, they compute the same thing.
    """

    name: str
    module: Any
    data_config: dict[str, Any]
    num_classes: int
    architecture: str
    param_count: int
    sha256: str

    @property
    def input_key(self) -> str:
        """Models with equal keys see the same tensors: a canonical text of the data configuration."""
        return json.dumps(self.data_config, sort_keys=True, default=str)

    def transform(self) -> Callable[[Any], Any]:
        """timm's evaluation transform for this model: a PIL image to a float tensor (C, H, W)."""
        from timm.data.transforms_factory import create_transform

        return create_transform(**self.data_config, is_training=False)  # type: ignore[return-value]


def describe_classifier(name: str) -> ClassifierFacts:
    """Architecture and outputs of the model called `name`, read from its configuration only.

    Raises UserError, with the nearest name, for a model that does not exist or was never trained.
    """
    import timm

    folder = local_folder(name)
    resolved = resolve_name(name) if folder is None else f"local-dir:{folder}"
    source, _, identifier = resolved.partition(":")
    if folder is not None:
        config = _local_config(name, folder)
    elif source == "hf-hub":
        config = _hub_config(name, identifier)
    elif Path(resolved).is_dir():
        raise UserError(f"model {name!r} is a folder", f"Write local-dir:{name} to load a timm model from it.")
    elif "/" in resolved:
        raise UserError(f"model {name!r} is no timm name", f"Write hf-hub:{name} if it is on the Hub.")
    else:
        return _timm_facts(name, resolved)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or not timm.is_model(architecture):
        raise UserError(
            f"model {name!r}: its config.json names the architecture {architecture!r}, which timm "
            f"{timm.__version__} does not know"
        )
    pretrained = config.get("pretrained_cfg") or config
    num_classes = config.get("num_classes", pretrained.get("num_classes"))
    if not isinstance(num_classes, int) or num_classes < 1:
        raise UserError(f"model {name!r} has no classification head (num_classes is {num_classes!r})")
    names = config.get("label_names") or pretrained.get("label_names")
    labels = tuple(str(label) for label in names) if isinstance(names, list) else None
    return ClassifierFacts(name, resolved, architecture, num_classes, labels)


def load_classifier(name: str, device: str = "cpu") -> Classifier:
    """The trained model called `name` on `device`, in eval mode, its parameters without gradients.

    Raises UserError for a name or folder that cannot be a trained model, RunFailure when it
    cannot be fetched or its weights cannot be read.
    """
    import timm
    from timm.data.config import resolve_model_data_config

    facts = describe_classifier(name)
    module = _guarded(name, lambda: timm.create_model(facts.resolved, pretrained=True))
    module.eval().requires_grad_(False)
    data_config = resolve_model_data_config(module, use_test_size=True)
    num_classes = int(getattr(module, "num_classes", 0))
    if num_classes < 1:
        raise UserError(f"model {name!r} has no classification head")
    return Classifier(
        name=name,
        module=module.to(device),
        data_config={key: list(v) if isinstance(v, tuple) else v for key, v in data_config.items()},
        num_classes=num_classes,
        architecture=facts.architecture,
        param_count=sum(parameter.numel() for parameter in module.parameters()),
        sha256=_weights_sha256(facts.architecture, module.state_dict()),
    )


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


def _local_config(name: str, folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        raise UserError(f"model {name!r}: {folder} has no config.json, so it is no timm model folder")
    if not any(True for pattern in _WEIGHT_PATTERNS for _ in folder.glob(pattern)):
        raise UserError(f"model {name!r}: {folder} has a config.json but no weights (model.safetensors)")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"model {name!r}: {file} is not readable JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"model {name!r}: {file} should hold a JSON mapping, not {type(config).__name__}")
    return config


def _hub_config(name: str, identifier: str) -> dict[str, Any]:
    from huggingface_hub import hf_hub_download

    repository, _, revision = identifier.partition("@")
    file = _guarded(name, lambda: hf_hub_download(repository, "config.json", revision=revision or None))
    return json.loads(Path(file).read_text(encoding="utf-8"))


def _guarded(name: str, load: Callable[[], Any]) -> Any:
    """`load()`, with what goes wrong on the way (network, disk, file format) told in one line."""
    import safetensors
    from huggingface_hub import errors as hub

    try:
        return load()
    except CounterfoilError:
        raise
    except hub.HFValidationError as error:
        raise UserError(f"model {name!r}: {error}") from error
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError) as error:
        raise UserError(
            f"model {name!r} is not on the Hub, or is private",
            "Check the name and revision, or run `hf auth login`.",
        ) from error
    except (hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled) as error:
        raise RunFailure(
            f"model {name!r} is not in the local cache and the Hub cannot be reached",
            "Connect once to fetch it, or name models that are here: lab:… or local-dir:…",
        ) from error
    except (safetensors.SafetensorError, EOFError) as error:
        raise RunFailure(f"model {name!r}: its weights file is damaged: {error}") from error
    except (OSError, hub.HfHubHTTPError) as error:
        raise RunFailure(f"model {name!r} could not be fetched or read: {error}") from error
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        # timm and torch report weights that do not fit their architecture in these.
        reason = " ".join(str(error).split())[:300]
        raise RunFailure(f"model {name!r} could not be loaded: {reason}") from error


def _weights_sha256(architecture: str, state: dict[str, Any]) -> str:
    import torch

    digest = hashlib.sha256(architecture.encode())
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"\0{key}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
