"""Choose and read the weights of a model: safetensors, or pickles with `weights_only=True`, which
run no code."""

from __future__ import annotations

import argparse
import hashlib
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import Problems, UserError
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, message, refusal

if TYPE_CHECKING:
    import torch
    from torch import nn

SAFE = ".safetensors"
# Matches the name of a weights file in the folder of its index, without a path.
_SHARD = re.compile(r"[\w-][\w.-]*\.(safetensors|bin)")
_MOST_SHARDS = 1_000
# The suffixes of pickled weights, in timm's order.
_PICKLED = (".pth", ".pth.tar", ".bin")
# A training checkpoint has its weights under one of these keys. As in timm, averaged weights come
# first.
_INSIDE = ("state_dict_ema", "model_ema", "state_dict", "model")
# Distributed training, compiled training and transformers' wrapper of timm's models add these
# prefixes to the names of weights.
_WRAPPERS = ("_orig_mod.", "module.", "_orig_mod.", "timm_model.")


def weights_choices(folder: Path, preferred: Sequence[str]) -> list[Path]:
    """Return the files that may be the weights of a folder: one, several checkpoints, or none.

    Safetensors files come before pickles, and files with `preferred` names come before others of
    the same format.
    """
    for suffixes in ((SAFE,), _PICKLED):
        named = [folder / name for name in preferred if name.endswith(suffixes)]
        choices = [file for file in named if file.is_file()][:1]
        for suffix in suffixes:
            of_suffix = [file for file in sorted(folder.glob(f"*{suffix}")) if file.is_file()]
            choices = choices or of_suffix
        if choices:
            return choices
    return []


def shard_problems(index: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if an index lists a weights file outside of its own folder, no file, or too many
    files."""
    listed = index.get("weight_map")
    if listed is None:
        return
    names = set(map(str, listed.values())) if isinstance(listed, Mapping) else set()
    odd = sorted(name for name in names if not _SHARD.fullmatch(name))
    if not names or odd or len(names) > _MOST_SHARDS:
        first = odd[0] if odd else "no weights"
        yield f"it lists {first!r:.80}, expected files in the same folder, at most {_MOST_SHARDS:,}"


def refuse_damaged(file: Path, model: str) -> None:
    """Raise RunFailure if a safetensors file does not match its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        reason = f"{file.name}: {error_line(error)}"
        where = f"model {model!r}"
        raise failure("unreadable-model.damaged", where, reason) from error


def read_pickled(file: Path, model: str) -> dict[str, torch.Tensor]:
    """Read the weights of a .bin, .pth or .pth.tar file by name, on the CPU, without running its
    pickle."""
    import torch

    where = f"model {model!r}: {file.name}"
    refuse_packed(file, model)
    try:
        # timm's training checkpoints contain the training arguments as a Namespace, which is
        # harmless.
        with warnings.catch_warnings(), torch.serialization.safe_globals([argparse.Namespace]):
            warnings.simplefilter("ignore")
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        reason = error_line(error)
        if "eights" in str(error):
            reason = "it holds more than weights, or is damaged"
        raise refusal("unreadable-model.pickle", where, reason) from error
    weights: dict[str, Any] = checkpoint if isinstance(checkpoint, dict) else {}
    for key in _INSIDE:
        if isinstance(weights.get(key), dict):
            weights = weights[key]
            break
    if not weights or not all(
        isinstance(key, str) and _is_plain(tensor) for key, tensor in weights.items()
    ):
        raise refusal("unreadable-model.unnamed", where)
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    if size > 2 * file.stat().st_size:
        raise refusal("unreadable-model.declares", where)
    return {unwrapped(key): tensor for key, tensor in weights.items()}


# torch aligns its own tensors to 64 bytes. Tensors that are mapped from a file begin wherever the
# header of the file ends. On a CPU, matrix products of unaligned matrices differ in the last bits.
_ALIGNMENT = 64


def read_safetensors(file: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a safetensors file by name, on the CPU, aligned to `_ALIGNMENT` bytes."""
    from safetensors.torch import load_file

    return {name: _aligned(tensor) for name, tensor in load_file(file).items()}


def align_weights(module: nn.Module) -> None:
    """Replace every unaligned parameter and buffer of a module by an aligned copy."""
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = _aligned(tensor.data)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu" and tensor.data_ptr() % _ALIGNMENT:
        return tensor.clone()
    return tensor


def refuse_infinite(model: str, module: nn.Module) -> None:
    """Raise UserError, with the names of the weights, if weights contain NaN or infinite
    numbers."""
    import torch

    infinite = [
        name
        for name, tensor in module.state_dict().items()
        if tensor.is_floating_point() and tensor.numel() and not bool(torch.isfinite(tensor).all())
    ]
    if infinite:
        where = f"model {model!r}"
        raise refusal("misfit-weights.infinite", where, infinite)


def weights_sha256(architecture: str, state: Mapping[str, Any]) -> str:
    """Hash the architecture and every tensor with its name. Equal hashes mean equal results."""
    import torch

    digest = hashlib.sha256(architecture.encode())
    for key in sorted(state):
        tensor = state[key].detach().cpu().contiguous()
        digest.update(f"\0{key}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        if tensor.numel():
            digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def refuse_packed(file: Path, model: str) -> None:
    """Raise UserError for a compressed archive, which may unpack to any size. torch writes no
    compressed archives."""
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            ways = {member.compress_type for member in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        reason = f"{file.name}: {error_line(error)}"
        where = f"model {model!r}"
        raise failure("unreadable-model.damaged", where, reason) from error
    if ways - {zipfile.ZIP_STORED}:
        who = f"model {model!r}: {file.name}"
        raise refusal("unreadable-model.packed", who)


def _is_plain(value: Any) -> bool:
    """Return whether a value is an ordinary tensor that stores all its numbers, and is not expanded
    from a few."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return False
    if value.is_quantized or value.is_meta:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def without_prefix(
    weights: Mapping[str, Any], expected: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Remove what a training program put before names of weights, such as `model.` or `backbone.`,
    if they then fit.

    expected: the model's own weights by name. Return the weights and the prefix, "" if none makes
    all names fit.
    """
    wanted = _counted(expected)
    prefix = _prefix_of(weights, wanted)
    renamed = {key.removeprefix(prefix): tensor for key, tensor in weights.items()}
    if prefix and len(renamed) == len(weights) and _counted(renamed) == wanted:
        return renamed, prefix
    return dict(weights), ""


def prefix_note(prefix: str) -> str:
    return f"the weights' names begin with {prefix!r}, which was left out" if prefix else ""


def _counted(weights: Mapping[str, Any]) -> set[str]:
    """Return the names of weights, without those of counters, which old files lack."""
    return {key for key in weights if not key.endswith("num_batches_tracked")}


def _prefix_of(weights: Mapping[str, Any], wanted: Set[str]) -> str:
    """Return what most often precedes a wanted name in the names of the weights; "" if nothing
    does."""
    before = Counter[str]()
    for key in weights:
        name = key
        while name not in wanted and "." in name:
            name = name.partition(".")[2]
        if name in wanted:
            before[key[: len(key) - len(name)]] += 1
    return max(before, key=lambda prefix: (before[prefix], len(prefix)), default="")


def weights_misfit(
    model: str, file: Path, weights: Mapping[str, Any], expected: Mapping[str, Any], outputs: int
) -> UserError:
    """Return why weights do not fit a model of so many outputs: another head, or names of another
    model."""
    shapes = {}
    heads = set()
    only_heads = True
    for key in expected:
        if key not in weights or weights[key].shape == expected[key].shape:
            continue
        shape = tuple(weights[key].shape)
        other = tuple(expected[key].shape)
        shapes[key] = (shape, other)
        if shape and other and other[0] == outputs != shape[0]:
            heads.add(shape[0])
        only_heads = only_heads and shape[1:] == other[1:]
    if len(heads) == 1 and only_heads:
        where = f"model {model!r}: {file.name}"
        return refusal("misfit-weights.head", where, heads.pop(), outputs)
    wanted = _counted(expected)
    missing = sorted(wanted - weights.keys())
    more = sorted(_counted(weights) - wanted)
    where = f"model {model!r}: {file.name} does not fit config.json"
    problems = Problems(message)
    if missing:
        problems.add("misfit-weights.lacking", where, len(missing), names=missing)
    if more:
        problems.add("misfit-weights.more", where, len(more), names=more)
    for key, (shape, other) in list(shapes.items())[:3]:
        problems.add("misfit-weights.shape", where, list(shape), list(other), weight=key)
    prefix = _prefix_of(weights, wanted)
    if prefix:
        renamed = {key.removeprefix(prefix) for key in weights}
        problems.add("misfit-weights.prefix", where, prefix, len(wanted - renamed))
    return UserError(problems.lines)


def unwrapped(key: str) -> str:
    for prefix in _WRAPPERS:
        key = key.removeprefix(prefix)
    return key
