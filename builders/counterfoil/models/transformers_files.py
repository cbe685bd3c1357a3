"""Load models of transformers from a folder or from one commit of the Hub, without running the code
of an author."""

from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import CounterfoilError
from counterfoil.models.config_files import (
    CONFIG,
    PROCESSORS,
    read_config,
    refuse_problems,
    refuse_unlike_sides,
)
from counterfoil.models.loading_errors import error_line, while_loading
from counterfoil.models.messages import failure, refusal
from counterfoil.models.names import HUB, local_folder, pin_model, refuse_shadowed
from counterfoil.models.weights_files import (
    SAFE,
    read_safetensors,
    refuse_damaged,
    refuse_infinite,
    shard_problems,
    weights_misfit,
    without_prefix,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Matches the keys of layers. If weights have more layers than the configuration, they belong to
# another model.
_LAYER = re.compile(r"\.(layers?|blocks?|stages?)\.\d+\.")


@dataclass(frozen=True)
class CheckedConfig:
    """A checked configuration. `document` and `processor` hold plain values and go to transformers
    unchanged."""

    model_type: str
    architecture: str
    """transformers' name of the model's class."""
    document: dict[str, Any]
    """The content of config.json."""
    processor: dict[str, Any]
    """The settings of the image processor, empty for a model without one."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model: in a folder of the user, or in the cached folder of one commit of a Hub
    `repository`."""

    folder: Path
    repository: str | None = None

    def file(self, name: str) -> Path | None:
        """Return the path of a file, fetched if it is on the Hub. Return None if the model has no
        such file."""
        from huggingface_hub import errors as hub
        from huggingface_hub import hf_hub_download

        if self.repository is None:
            return self.folder / name if (self.folder / name).is_file() else None
        try:
            return Path(hf_hub_download(self.repository, name, revision=self.folder.name))
        except hub.LocalEntryNotFoundError:
            raise
        except hub.EntryNotFoundError:
            return None


def found_files(name: str, rest: str, wanted: Sequence[str]) -> ModelFiles:
    """Find the model `name`, and fetch its `wanted` files.

    rest: the model's name without the prefix for the kind of model. UserError for a folder without
    a config.json.
    """
    from huggingface_hub import hf_hub_download

    folder = local_folder(rest)
    if folder is not None:
        if not (folder / CONFIG).exists():
            where = f"model {name!r}"
            raise refusal(
                "missing-model-file.config", where, folder, CONFIG, what="a model of transformers"
            )
        return ModelFiles(folder)
    repository, _, revision = rest.removeprefix(HUB).partition("@")
    refuse_shadowed(repository, "model")

    def fetched() -> ModelFiles:
        # All files are fetched by commit, because a branch may change between two requests.
        commit = pin_model(repository, revision or None).revision
        files = ModelFiles(
            Path(hf_hub_download(repository, CONFIG, revision=commit)).parent, repository
        )
        for file in wanted:
            files.file(file)
        return files

    return while_loading(name, fetched)


def trained_module(
    name: str, model_files: ModelFiles, config: CheckedConfig
) -> tuple[nn.Module, str]:
    """Build a module and load its weights, in float32, on the CPU. Return it, and what was left out
    before their names.

    UserError if configuration and weights belong to different models; RunFailure if weights are
    missing or damaged.
    """
    import torch
    import transformers

    from counterfoil.models.trials import refuse_overgrown

    described = as_configuration(name, config)
    built = getattr(transformers, config.architecture)
    files = _weights(name, model_files)
    for file in files:
        refuse_damaged(file, name)
    with quiet_transformers():
        expected = refuse_overgrown(name, files, lambda: built(described)).state_dict()
        state: dict[str, torch.Tensor] = {}
        for file in files:
            state |= read_safetensors(file)
        state, prefix = without_prefix(state, expected)
        # Because no folder is given, transformers cannot read other files, such as adapters.
        try:
            module, keys = built.from_pretrained(
                None,
                config=described,
                state_dict=dict(state),
                dtype=torch.float32,
                output_loading_info=True,
            )
        except RuntimeError as error:
            if all(expected[key].shape == state[key].shape for key in expected if key in state):
                raise
            raise weights_misfit(
                name, files[0], state, expected, getattr(described, "num_labels", 0)
            ) from error
    where = f"model {name!r}"
    missing = sorted(keys["missing_keys"])
    if missing:
        raise failure("misfit-weights.missing", where, missing)
    left = sorted(key for key in keys["unexpected_keys"] if _LAYER.search(key))
    if left:
        raise refusal("misfit-weights.layers", where, left[0])
    refuse_infinite(name, module)
    return module, prefix


def as_configuration(name: str, config: CheckedConfig) -> Any:
    """Build a configuration object of transformers. UserError if transformers refuses the
    document."""
    from transformers import CONFIG_MAPPING

    try:
        with quiet_transformers():
            return CONFIG_MAPPING[config.model_type].from_dict(dict(config.document))
    except Exception as error:  # a damaged configuration may raise anything
        where = f"model {name!r}"
        raise refusal("invalid-config.built", where, error_line(error)) from error


def _weights(name: str, model_files: ModelFiles) -> list[Path]:
    """Return the safetensors files with the weights: a single file, or the files that an index
    lists."""
    single = model_files.file(_WEIGHTS)
    if single is not None:
        return [single]
    where = f"model {name!r}"
    index = model_files.file(_INDEX)
    if index is None:
        raise refusal("missing-model-file.safetensors", where, _WEIGHTS)
    listed = {"weight_map": {}} | read_config(index, name, 1 << 24)
    refuse_problems(name, list(shard_problems(listed)), _INDEX)
    shards = sorted(set(listed["weight_map"].values()))
    if not all(file.endswith(SAFE) for file in shards):
        raise refusal("unreadable-model.shard", where, shards[0], index=_INDEX)
    paths = []
    for shard in shards:
        path = model_files.file(shard)
        if path is None:
            raise failure("missing-model-file.shard", where, shard, index=_INDEX)
        paths.append(path)
    return paths


def prepared_by(name: str, processor: Any) -> Callable[[Any], torch.Tensor]:
    prepare = inputs_prepared_by(name, processor)
    return lambda image: prepare(image)["pixel_values"]


def inputs_prepared_by(name: str, processor: Any) -> Callable[[Any], dict[str, torch.Tensor]]:
    """Return a function that prepares a PIL image.

    The function returns the image's `pixel_values` and, if the processor makes one, a `pixel_mask`.
    """
    settings = processor.to_dict()
    size = settings.get("size") or {}
    crop = settings.get("crop_pct") or 1.0
    edge = size.get("shortest_edge")

    def transformed(image: Any) -> dict[str, torch.Tensor]:
        if edge is not None and size.get("longest_edge") is None:
            side = int(edge / crop)
            refuse_unlike_sides(name, image.size, (side, side))
        try:
            prepared = processor(images=image, return_tensors="pt")
            inputs = {"pixel_values": prepared["pixel_values"][0]}
            if "pixel_mask" in prepared:
                inputs["pixel_mask"] = prepared["pixel_mask"][0]
            return inputs
        except CounterfoilError:
            raise
        except Exception as error:  # odd settings may raise anything
            shown = f"{image.size[0]:,} x {image.size[1]:,}"
            reason = error_line(error)
            where = f"model {name!r}"
            raise refusal("unfit-input.image", where, shown, reason=reason) from error

    return transformed


def image_processor_of(name: str, config: CheckedConfig, of_model: Any) -> Any:
    """Build an image processor from its settings, by a temporary folder that contains nothing
    else. of_model: the configuration object of the model, or of its encoder."""
    from transformers import AutoImageProcessor

    with tempfile.TemporaryDirectory() as folder, quiet_transformers():
        (Path(folder) / PROCESSORS[1]).write_text(json.dumps(config.processor), encoding="utf-8")
        try:
            return AutoImageProcessor.from_pretrained(
                folder, config=of_model, trust_remote_code=False
            )
        except Exception as error:  # odd settings may raise anything
            reason = error_line(error)
            made = "image processor of transformers"
            where = f"model {name!r}"
            raise refusal("invalid-config.made", where, reason, made) from error


def input_key_of(processor: Any, **more: Any) -> str:
    """Return a key of the processor's settings and the version of transformers. Equal keys mean
    equal input tensors."""
    form = {"processor": type(processor).__name__, **more, **processor.to_dict()}
    return f"transformers {version('transformers')} {json.dumps(form, sort_keys=True, default=str)}"


def never_ask_for_code() -> None:
    """Stop transformers from asking at the terminal whether an author's code may run.

    If the time for an answer is 0, transformers refuses without asking.
    """
    from transformers import dynamic_module_utils

    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0  # pyrefly: ignore[bad-assignment]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence the progress bars, reports, warnings and questions of transformers inside the
    block."""
    from transformers.utils import logging

    never_ask_for_code()
    level = logging.get_verbosity()
    shown = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
