"""Load LoRA weights (Hu et al. 2021). They consist of two small matrices for each changed layer of
a generator.

The product of the two matrices, times the recipe's scale and the file's alpha ÷ rank, is added to
the layer's weights. At scale 0 the LoRA is switched off, so images are byte-identical to images
without the LoRA.

A LoRA file is not trusted. It must be a safetensors file, and its header is checked before anything
else loads. The file is refused unless diffusers uses every tensor of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from counterfoil.errors import CounterfoilError, UserError, collected_in, raise_together
from counterfoil.models.adapters import named_file, pin_adapter
from counterfoil.models.config_files import Foreign, declared_values, expected_words, read_config
from counterfoil.models.diffusion import INDEX, family_in, fetch_configurations, quiet_diffusers
from counterfoil.models.generators import family_of
from counterfoil.models.loading_errors import explain_loading
from counterfoil.models.messages import message, refusal
from counterfoil.models.names import LOCAL, Pin
from counterfoil.models.weights_files import read_safetensors
from counterfoil.recipe.names import is_local, without_folders
from counterfoil.regular_files import named_path, open_regular

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe.kinds.diffusers import Lora

LORA_FILE = "pytorch_lora_weights.safetensors"  # the name under which diffusers saves LoRA weights
# The largest LoRA files of the Hub, for FLUX.1 with rank 128, take 1.3 GB and have 3,000 tensors.
_MOST_BYTES = 1 << 32
_MOST_HEAD = 1 << 23
_MOST_TENSORS = 20_000
_MOST_RANK = 1024
# Keys must be plain names, because peft builds regular expressions from the keys.
_KEY = re.compile(r"(?=.{1,300}\Z)\w+(?:\.\w+)*", re.ASCII)
_DOWN = re.compile(r"(?P<layer>.+)(?:\.lora_A|\.lora_down|[._]lora\.down)\.weight")
_UP = re.compile(r"(?P<layer>.+)(?:\.lora_B|\.lora_up|[._]lora\.up)\.weight")
_ALPHA = ".alpha"
_TYPES = ("F32", "F16", "BF16")
# The key under which diffusers stores the settings of the training, in the header of the file.
_SETTINGS = "lora_adapter_metadata"


def pin_lora(name: str, lora: Lora) -> Pin:
    """Pin a recipe's LoRA to the sha256 of its file and, if the file is on the Hub, to a commit.

    name: the recipe's name of the LoRA. UserError for an unfit file.
    """
    import torch
    from safetensors import safe_open

    local = Pin(without_folders(lora.path), None, None, None)
    pin = local if is_local(lora.path) else pin_adapter(lora.path, lora.revision)
    file = lora_file(lora.path, pin.revision)
    _settings_of(name, file)
    with explain_loading(name), safe_open(file, framework="pt") as opened:
        keys = opened.keys()
        infinite = [key for key in keys if not bool(torch.isfinite(opened.get_tensor(key)).all())]
    _refuse(name, infinite, "invalid-adapter.infinite")
    return replace(pin, sha256=_sha256(file))


def wrong_loras(loras: Mapping[str, Lora], pins: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each LoRA whose local file is missing or differs from the pinned file."""
    for name, lora in loras.items():
        key = f"generator.lora.{name}.path"
        pinned = pins.get(name, {}).get("sha256")
        try:
            sha256 = _sha256(lora_file(lora.path, None)) if is_local(lora.path) else pinned
        except UserError as error:
            for problem in error.problems:
                yield problem.at(key).with_end(f"; --set {key}=/PATH says where the file is")
            continue
        if sha256 is None or sha256 != pinned:
            yield message("invalid-adapter.pinned", key, sha256, pinned, key=key)


def check_loras(
    generator: str,
    revision: str | None,
    loras: Mapping[str, Lora],
    pins: Mapping[str, Mapping[str, Any]],
) -> None:
    """Raise UserError, with all problems, if LoRA files do not fit the generator. Load no weights
    of the generator."""
    import diffusers
    import torch

    folder = fetch_configurations(generator, revision)
    family = family_in(folder, generator)
    if not loras or family.lora is None:
        return
    with explain_loading(generator), quiet_diffusers():
        index = read_config(folder / INDEX, generator)
        module_class = getattr(diffusers, index[family.lora][1])
        config = read_config(folder / family.lora / "config.json", generator)
        with torch.device("meta"):
            module = module_class.from_config(config)
    read = getattr(diffusers, index["_class_name"]).lora_state_dict
    pipeline = SimpleNamespace(**{family.lora: module, "lora_state_dict": read})
    errors: list[CounterfoilError] = []
    for name, lora in loras.items():
        file = lora_file(lora.path, pins[name]["revision"] or lora.revision)
        with collected_in(errors):
            _weights_of(pipeline, family.lora, name, file, _layers(module))
    raise_together(errors)


def lora_file(path: str, revision: str | None) -> Path:
    if is_local(path) and named_path(path.removeprefix(LOCAL)).is_file():
        return named_path(path.removeprefix(LOCAL))
    return named_file(path, revision, "LoRA", LORA_FILE)


@dataclass(slots=True)
class Loras:
    """The LoRA weights that are loaded into a model."""

    model: Any
    constant: Mapping[str, float]
    """The recipe's scale of each LoRA, by name."""
    inside: Mapping[str, str]
    """The name of each LoRA in peft, by name."""
    _now: dict[str, float] | None = field(default=None, init=False)

    @contextlib.contextmanager
    def used(self, scales: Mapping[str, float] | None = None) -> Iterator[None]:
        """Set the scale of every LoRA: from `scales`, or from the recipe if `scales` lacks the
        name.

        The scales stay set after the block. KeyError for unknown names.
        """
        named = sorted({**self.constant, **(scales or {})}.items())
        wanted = {self.inside[name]: float(scale) for name, scale in named if scale != 0}
        if wanted != self._now:
            self._now = None
            if wanted:
                # One number for each LoRA: with a scale for each block, diffusers 0.42 would leave
                # layers outside of attention at scale 1.
                self.model.set_adapters(list(wanted), list(wanted.values()))
                self.model.enable_lora()
            else:
                self.model.disable_lora()
            self._now = wanted
        yield


def load_loras(
    pipeline: Any, loras: Mapping[str, Lora], pins: Mapping[str, Mapping[str, Any]]
) -> Loras | None:
    """Load a recipe's LoRA weights into a pipeline. Return None if the recipe has no LoRA.

    UserError if a file differs from the pinned file (`pin_lora`) or does not fit this pipeline;
    RunFailure if a file cannot be read.
    """
    family = family_of(type(pipeline).__name__)
    if not loras or family is None or family.lora is None:
        return None
    part = family.lora
    model = getattr(pipeline, part)
    layers = _layers(model)
    inside = {name: f"own{number}" for number, name in enumerate(sorted(loras))}
    for name, adapter in inside.items():
        pinned = pins[name]
        file = lora_file(loras[name].path, pinned["revision"] or loras[name].revision)
        sha256 = _sha256(file)
        if sha256 != pinned["sha256"]:
            where = f"LoRA '{name}': {file.name}"
            raise refusal(
                "invalid-adapter.sha256",
                where,
                sha256,
                pinned["sha256"],
            )
        state, alpha_of = _weights_of(pipeline, part, name, file, layers)
        with explain_loading(name), quiet_diffusers(), warnings.catch_warnings(action="ignore"):
            model.load_lora_adapter(
                state, prefix=None, adapter_name=adapter, low_cpu_mem_usage=True
            )
        for layer, alpha in alpha_of.items():
            # diffusers would set an alpha computed from the most common rank
            model.get_submodule(layer).lora_alpha[adapter] = alpha
    model.eval().requires_grad_(False)
    weights = Loras(model, {name: loras[name].scale for name in inside}, inside)
    with weights.used():
        return weights


def _layers(model: Any) -> dict[str, Any]:
    """Return the layers of a model that LoRA weights may change, by name."""
    from torch import nn

    return {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv2d)
    }


def _sha256(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _settings_of(name: str, file: Path) -> dict[str, Any]:
    """Check the header of a LoRA file. Return the training settings in the header. Read no
    tensor."""
    from safetensors import safe_open

    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        head = int.from_bytes(stream.read(8), "little")
    if size > _MOST_BYTES or head > min(_MOST_HEAD, size):
        where = f"LoRA '{name}': {file.name}"
        raise refusal(
            "invalid-adapter.size",
            where,
            size,
            _MOST_BYTES,
            head=head,
            most_head=_MOST_HEAD,
        )
    with explain_loading(name), safe_open(file, framework="pt") as opened:
        keys = list(opened.keys())
        if not 0 < len(keys) <= _MOST_TENSORS:
            where = f"LoRA '{name}'"
            raise refusal("invalid-adapter.tensors", where, len(keys), _MOST_TENSORS)
        slices = {key: opened.get_slice(key) for key in keys}
        metadata = opened.metadata() or {}
        settings = dict(json.loads(metadata.get(_SETTINGS, "{}")).items())
    unknown = []
    for key, part in slices.items():
        shape = tuple(part.get_shape())
        number_type = part.get_dtype()
        if key.endswith(_ALPHA):
            fits = math.prod(shape) == 1
        else:
            axes = [axis for axis, side in enumerate((_DOWN, _UP)) if side.fullmatch(key)]
            fits = len(shape) in (2, 4) and any(1 <= shape[axis] <= _MOST_RANK for axis in axes)
        if not fits or not _KEY.fullmatch(key) or number_type not in _TYPES:
            unknown.append(key)
    _refuse(name, unknown, "invalid-adapter.unknown", expected=_MOST_RANK, types=_TYPES)
    layer_of = {}
    for key in keys:
        half = _DOWN.fullmatch(key) or _UP.fullmatch(key)
        if half:
            layer_of[key] = half["layer"]
    halves = Counter(layer_of.values())
    alone = [key for key, layer in layer_of.items() if halves[layer] < 2]
    _refuse(name, alone, "invalid-adapter.half")
    return settings


def _refuse(name: str, keys: Sequence[str], sentence: str, **values: object) -> None:
    if keys:
        shown = [key[:120] for key in keys]
        where = f"LoRA '{name}'"
        raise refusal(sentence, where, shown, **values)


class TrainingDocument(Foreign):
    lora_alpha: float | None = None
    alpha_pattern: Annotated[dict[str, float], expected_words("none: one alpha for all")] = Field(
        {}, max_length=0
    )
    use_rslora: Annotated[Literal[False], expected_words("false")] = False


def _by_layer(
    name: str,
    tensors: Mapping[str, torch.Tensor],
    pipeline: Any,
    part: str,
    layers: Mapping[str, Any],
) -> dict[str, dict[str, str]]:
    """Return layer → side (A or B) → key of the tensor in the file, in the way that diffusers reads
    the file."""
    from diffusers.utils import convert_unet_state_dict_to_peft

    more = {"unet_config": pipeline.unet.config} if part == "unet" else {}
    with explain_loading(name), quiet_diffusers():
        read = pipeline.lora_state_dict(dict(tensors), **more)
        if isinstance(read, tuple):
            read = read[0]
        read = convert_unet_state_dict_to_peft(read)
    key_of = {id(tensor): key for key, tensor in tensors.items()}
    taken = {key_of.get(id(tensor)) for tensor in read.values()}
    unread = [key for key in tensors if key not in taken]
    _refuse(name, unread, "invalid-adapter.unread")
    sides_of: dict[str, dict[str, str]] = {}
    unused = []
    for key, tensor in read.items():
        match = re.fullmatch(rf"{part}\.(.+)\.lora_([AB])\.weight", key)
        if match is not None and match[1] in layers and id(tensor) in key_of:
            sides_of.setdefault(match[1], {})[match[2]] = key_of[id(tensor)]
        else:
            unused.append(key_of.get(id(tensor), key))
    _refuse(name, unused, "invalid-adapter.layer", part=part)
    alone: list[str] = []
    for sides in sides_of.values():
        if len(sides) < 2:
            alone += sides.values()
    _refuse(name, alone, "invalid-adapter.half")
    return sides_of


def _weights_of(
    pipeline: Any, part: str, name: str, file: Path, layers: Mapping[str, Any]
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Read the LoRA weights of a file. Return the matrices by their names in peft, and the alpha of
    each layer.

    The matrices have the number type of the model.
    """
    import torch

    number_type = getattr(pipeline, part).dtype
    settings = {}
    for key, value in _settings_of(name, file).items():
        settings[key.removeprefix(f"{part}.")] = value
    training, problems = declared_values(TrainingDocument, settings, f"{_SETTINGS}.")
    if training is None:
        where = f"LoRA '{name}'"
        raise UserError([message("invalid-adapter.settings", where, line) for line in problems])
    with explain_loading(name):
        tensors: dict[str, torch.Tensor] = read_safetensors(file)
    alphas = {}
    for key in list(tensors):
        if key.endswith(_ALPHA):
            alphas[key.removesuffix(_ALPHA)] = float(tensors.pop(key))
    state: dict[str, torch.Tensor] = {}
    alpha_of: dict[str, float] = {}
    for layer, sides in _by_layer(name, tensors, pipeline, part, layers).items():
        down = tensors[sides["A"]]
        up = tensors[sides["B"]]
        shape = tuple(layers[layer].weight.shape)
        out, *inputs = shape
        rank = down.shape[0]
        of_kernel = (1,) * len(inputs[1:])
        fits = down.shape == (rank, *inputs) and up.shape == (out, rank, *of_kernel)
        if not fits or getattr(layers[layer], "groups", 1) != 1:
            shapes = f"{tuple(down.shape)} and {tuple(up.shape)}"
            _refuse(name, [*sides.values()], "invalid-adapter.shape", shapes=shapes, layer=shape)
        stem = _DOWN.fullmatch(sides["A"])
        default = rank if training.lora_alpha is None else training.lora_alpha
        alpha_of[layer] = alphas.pop(stem["layer"] if stem else "", default)
        alpha = alpha_of[layer]
        if not 0 < alpha < math.inf:
            _refuse(name, [sides["A"]], "invalid-adapter.alpha", alpha=alpha)
        for side, key in sides.items():
            state[f"{layer}.lora_{side}.weight"] = tensors[key].to(number_type)
    _refuse(name, list(alphas), "invalid-adapter.alphas")
    infinite = [key for key, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
    _refuse(name, infinite, "invalid-adapter.overflow", type=number_type)
    return state, alpha_of
