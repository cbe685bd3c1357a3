"""Load IP-Adapters (Ye et al. 2023): weights that let a text-to-image model also attend to an image
embedding.

An adapter file is not trusted. Its header is checked before any weight of the generator loads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.models.diffusion import quiet_diffusers
from counterfoil.models.loading_errors import while_loading
from counterfoil.models.messages import failure, refusal
from counterfoil.models.names import HUB, Pin, local_folder, pin_model, refuse_shadowed
from counterfoil.models.weights_files import read_safetensors
from counterfoil.regular_files import open_regular

if TYPE_CHECKING:
    import torch

ADAPTER_FILE = "ip_adapter.safetensors"
_SAFE = ".safetensors"
_PROJECTION = "image_proj."
_LAYERS = "ip_adapter."
_NORM = {"norm.weight", "norm.bias"}
# Each entry is a known form of the projection of one embedding: the names of its tensors, and the
# name of the tensor whose second dimension is the width of the embedding.
_FORMS = (
    ({"proj.weight", "proj.bias"} | _NORM, "proj.weight"),
    ({"proj.0.weight", "proj.0.bias", "proj.2.weight", "proj.2.bias"} | _NORM, "proj.0.weight"),
)


def pin_adapter(name: str, revision: str | None) -> Pin:
    """Pin an adapter to a commit of the Hub, or to the content of a folder. Raises the same errors
    as `pin_model`."""
    repository, file = _in_repository(name)
    if file is None or local_folder(name) is not None:
        return pin_model(name, revision)
    pin = pin_model(repository, revision)
    return Pin(name, pin.revision, pin.sha256, pin.license)


def adapter_width(name: str, revision: str | None = None) -> int:
    """Read the width of an adapter's embeddings from the file's header. Raises the same errors as
    `load_adapter`."""
    from safetensors import safe_open

    file = named_file(name, revision)

    def read() -> int:
        with open_regular(file):
            pass
        with safe_open(file, framework="pt") as opened:
            shapes = {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
        return _checked_width(name, shapes)

    return while_loading(name, read)


@dataclass(frozen=True, slots=True)
class _State:
    processors: Mapping[str, Any]
    projection: Any
    kind: str | None

    @classmethod
    def of(cls, unet: Any) -> _State:
        return cls(
            dict(unet.attn_processors), unet.encoder_hid_proj, unet.config.encoder_hid_dim_type
        )

    def put_into(self, unet: Any) -> None:
        unet.set_attn_processor(dict(self.processors))
        unet.encoder_hid_proj = self.projection
        unet.config.encoder_hid_dim_type = self.kind


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter of a pipeline. The pipeline uses the adapter only inside a `used` block."""

    unet: Any
    without: _State
    within: _State

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        self.within.put_into(self.unet)
        try:
            yield
        finally:
            self.without.put_into(self.unet)


def load_adapter(pipeline: Any, name: str, revision: str | None = None) -> Adapter:
    """Load an adapter for a loaded pipeline. UserError for an unfit file, RunFailure for another
    model's adapter."""
    import torch

    tensors: dict[str, torch.Tensor] = while_loading(
        name, lambda: read_safetensors(named_file(name, revision))
    )
    _checked_width(name, {key: tuple(tensor.shape) for key, tensor in tensors.items()})
    for key, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            where = f"adapter '{name}'"
            raise refusal("invalid-adapter.numbers", where, key)
    unet = pipeline.unet
    crossed = sum(key.endswith("attn2.processor") for key in unet.attn_processors)
    layers = sum(key.startswith(_LAYERS) for key in tensors) // 2
    if layers != crossed:
        where = f"adapter '{name}'"
        raise failure("invalid-adapter.layers", where, layers, crossed)
    without = _State.of(unet)
    state = {part[:-1]: _below(tensors, part) for part in (_PROJECTION, _LAYERS)}
    with quiet_diffusers():
        while_loading(
            name,
            lambda: pipeline.load_ip_adapter(
                state, subfolder="", weight_name="", image_encoder_folder=None
            ),
        )

    def embeddings_on(
        image: Any, embeddings: list[torch.Tensor], device: Any, *_: Any
    ) -> list[torch.Tensor]:
        assert image is None
        return [embedding.to(device) for embedding in embeddings]

    # diffusers 0.42 repeats the embeddings of a batch by the size of the batch, so every picture
    # would attend to the embeddings of the other pictures. Here each image has one embedding
    # already: [batch, 1, width], or [2 × batch, 1, width] with guidance.
    pipeline.prepare_ip_adapter_image_embeds = embeddings_on
    within = _State.of(unet)
    unet.eval().requires_grad_(False)
    without.put_into(unet)
    return Adapter(unet, without, within)


def _checked_width(name: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the width of an adapter's embeddings.

    UserError unless the tensors are the tensors of an adapter that takes one image embedding.
    """
    projection = _below(shapes, _PROJECTION)
    layers = _below(shapes, _LAYERS)
    form = next((weight for parts, weight in _FORMS if parts == set(projection)), None)
    others = len(shapes) - len(projection) - len(layers)
    numbers = sorted({key.partition(".")[0] for key in layers})
    complete = {f"{number}.{part}.weight" for number in numbers for part in ("to_k_ip", "to_v_ip")}
    whole = layers and set(layers) == complete
    if form is None or others or not whole or len(projection[form]) != 2:
        first = ", ".join(sorted(shapes)[:3])
        where = f"adapter '{name}'"
        raise refusal("invalid-adapter.form", where, first, tensors=len(shapes))
    return projection[form][1]


def _below(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)
    }


def _in_repository(name: str) -> tuple[str, str | None]:
    parts = name.removeprefix(HUB).split("/", 2)
    if len(parts) < 3:
        return name, None
    return "/".join(parts[:2]), parts[2]


def named_file(
    name: str, revision: str | None, what: str = "adapter", usual: str = ADAPTER_FILE
) -> Path:
    """Return the safetensors file that a name means, in a folder or fetched from the Hub.

    usual: the name of the file to take if `name` does not say which. UserError for another file
    format, and for a folder without `usual` unless the folder has exactly one safetensors file.
    """
    folder = local_folder(name)
    if folder is not None:
        files = sorted(file for file in folder.glob(f"*{_SAFE}") if file.is_file())
        named = [file for file in files if file.name == usual] or files
        if len(named) != 1:
            where = f"{what} '{name}': {folder}"
            raise refusal("invalid-adapter.files", where, len(files), usual)
        return named[0]
    repository, file = _in_repository(name)
    repository = repository.removeprefix(HUB)
    refuse_shadowed(repository, what)
    file = file or usual
    if not file.endswith(_SAFE):
        who = f"{what} '{name}'"
        raise refusal("invalid-adapter.ending", who, file)
    from huggingface_hub import hf_hub_download

    return Path(while_loading(name, lambda: hf_hub_download(repository, file, revision=revision)))
