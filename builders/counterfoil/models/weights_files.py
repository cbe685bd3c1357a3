"""Which file of a model's folder its weights are, and how they are read: no pickle of a stranger ever runs.

Safetensors hold numbers and nothing else. Where there are none, a file of torch is read with `weights_only=True`, which
makes tensors and plain containers and refuses whatever else the pickle in it asks for.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError, some_of
from counterfoil.models.loading_errors import one_line

if TYPE_CHECKING:
    import torch
    from torch import nn

SAFE = ".safetensors"
# A file of an index lies beside it; its name leads nowhere else.
_SHARD = re.compile(r"[\w-][\w.-]*\.(safetensors|bin)")
_MOST_SHARDS = 1_000
# timm's order for the rest; the first that is there.
_PICKLED = (".pth", ".pth.tar", ".bin")
# Where a training checkpoint keeps the weights, in timm's order: averaged ones first.
_INSIDE = ("state_dict_ema", "model_ema", "state_dict", "model")
# What distributed and compiled training, and transformers' wrapper of timm's models, put before every name.
_WRAPPERS = ("_orig_mod.", "module.", "_orig_mod.", "timm_model.")


def choose_weights(folder: Path, preferred: Sequence[str]) -> Path | None:
    """The weights file of a folder: safetensors before pickles, `preferred` names before others; None without any.

    Only regular files count: a pipe of the name model.safetensors would be waited for.
    """
    for suffixes in ((SAFE,), _PICKLED):
        named = [folder / name for name in preferred if name.endswith(suffixes)]
        others = [file for suffix in suffixes for file in sorted(folder.glob(f"*{suffix}"))]
        for file in [*named, *others]:
            if file.is_file():
                return file
    return None


def shard_problems(index: Mapping[str, Any]) -> Iterator[str]:
    """A line where a file lists weights (`weight_map`) that do not lie beside it; none where it lists nothing."""
    listed = index.get("weight_map")
    if listed is None:
        return
    names = set(map(str, listed.values())) if isinstance(listed, Mapping) else set()
    odd = sorted(name for name in names if not _SHARD.fullmatch(name))
    if not names or odd or len(names) > _MOST_SHARDS:
        yield (
            f"it lists {odd[0] if odd else 'no weights'!r:.80}, expected files in the same folder, at most"
            f" {_MOST_SHARDS:,}"
        )


def refuse_damaged(file: Path, model: str) -> None:
    """RunFailure for a safetensors file whose head does not describe what follows."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise RunFailure(f"model {model!r}: its weights file is damaged: {file.name}: {one_line(error)}") from error


def read_pickled(file: Path, model: str) -> dict[str, torch.Tensor]:
    """The weights of a .bin, .pth or .pth.tar file by name, on the CPU.

    UserError where the file holds anything that is no weight: it is not run, and nothing of it is used.
    """
    import torch

    refuse_packed(file, model)
    try:
        # timm's own training checkpoints hold their arguments as a Namespace, which can do nothing.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file of any content makes the reader raise
        reason = "it holds more than weights, or is damaged" if "eights" in str(error) else one_line(error)
        raise UserError(
            f"model {model!r}: {file.name} cannot be read as weights alone: {reason}",
            "A pickle may run its author's code, so nothing else of it is read. Name a model with safetensors.",
        ) from error
    weights = _inner(found)
    if not weights or not all(isinstance(key, str) and _is_plain(one, file) for key, one in weights.items()):
        raise UserError(f"model {model!r}: {file.name} holds no weights by name, which a model's file does")
    if sum(one.numel() * one.element_size() for one in weights.values()) > 2 * file.stat().st_size:
        raise UserError(f"model {model!r}: {file.name} declares more numbers than it holds")
    return {unwrapped(key): one for key, one in weights.items()}


# Where torch's own allocator puts tensors. The matrix products of a CPU take another path, with other last bits, for a
# matrix that lies elsewhere, and a file's tensors are mapped at whatever address the length of its head gives.
_ALIGNMENT = 64


def read_safetensors(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file by name, on the CPU, at addresses that do not depend on the file."""
    from safetensors.torch import load_file

    return {name: _aligned(tensor) for name, tensor in load_file(file).items()}


def align_weights(module: nn.Module) -> None:
    """Copy every parameter and buffer of a module that lies where only its file's layout put it."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = _aligned(tensor.data)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself where its address is right, else a copy of it."""
    return tensor.clone() if tensor.device.type == "cpu" and tensor.data_ptr() % _ALIGNMENT else tensor


def refuse_infinite(model: str, module: nn.Module) -> None:
    """UserError naming the weights that hold NaN or infinite numbers, whose scores would mean nothing."""
    import torch

    wrong = [
        name
        for name, one in module.state_dict().items()
        if one.is_floating_point() and one.numel() and not bool(torch.isfinite(one).all())
    ]
    if wrong:
        raise UserError(
            f"model {model!r}: its weights hold numbers that are not finite: {some_of(wrong, 3)}",
            "Name another model, or repair this one's weights.",
        )


def weights_sha256(architecture: str, state: Mapping[str, Any]) -> str:
    """SHA-256 over what is built and every tensor of it, by name: equal where they compute the same, and only there."""
    import torch

    digest = hashlib.sha256(architecture.encode())
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"\0{key}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def refuse_packed(file: Path, model: str) -> None:
    """UserError for a packed archive: torch writes its own unpacked, and a packed one may unpack to any size."""
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise RunFailure(f"model {model!r}: its weights file is damaged: {file.name}: {one_line(error)}") from error
    if packed:
        raise UserError(
            f"model {model!r}: {file.name} is a packed archive, and torch's own are not packed",
            "Save the weights again, as safetensors.",
        )


def _inner(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        return {}
    for key in _INSIDE:
        if isinstance(found.get(key), dict):
            return found[key]
    return found


def _is_plain(one: Any, file: Path) -> bool:
    """Whether a value is an ordinary tensor whose numbers are all there, not one number repeated a million times."""
    import torch

    if not isinstance(one, torch.Tensor) or one.layout != torch.strided or one.is_quantized or one.is_meta:
        return False
    return one.numel() * one.element_size() <= one.untyped_storage().nbytes()


def unwrapped(key: str) -> str:
    """Return the name of a weight as the model itself calls it."""
    for prefix in _WRAPPERS:
        key = key.removeprefix(prefix)
    return key
