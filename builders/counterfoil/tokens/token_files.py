"""A class token as a file that diffusers' `load_textual_inversion` reads, with how it was made in the file itself.

One text encoder: `{placeholder: vectors}`. Two (XL): `clip_l` and `clip_g`, the names that XL embeddings go by.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.regular_files import UnfitFile, open_regular

if TYPE_CHECKING:
    import torch

TOKENS_MANIFEST = "manifest.json"
# A token of 32 vectors for the widest text encoder has 160 kB.
MOST_BYTES = 4 << 20
MOST_VECTORS = 32
WIDEST = 65_536
LONGEST_PLACEHOLDER = 200
_TWO_ENCODERS = ("clip_l", "clip_g")
# One key only: safetensors writes its metadata in no fixed order, and equal tokens must be equal bytes.
_METADATA = "counterfoil"


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token's placeholder, its vectors [n, width] for each text encoder, and how it was made."""

    placeholder: str
    vectors: tuple[torch.Tensor, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)


def token_file_name(class_id: str) -> str:
    return f"{class_id}.safetensors"


def placeholder_of(class_id: str, name: str) -> str:
    """`<name-id>`, in letters that any tokenizer keeps as they are; ids are unique, so placeholders are."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"<{slug}-{class_id}>" if slug else f"<{class_id}>"


def token_bytes(token: TokenFile) -> bytes:
    """The file of a token; equal tokens give equal bytes."""
    from safetensors.torch import save

    if len(token.vectors) == 1:
        tensors = {token.placeholder: token.vectors[0].contiguous()}
    else:
        names = _TWO_ENCODERS[: len(token.vectors)]
        tensors = {name: own.contiguous() for name, own in zip(names, token.vectors, strict=True)}
    notes = {"placeholder": token.placeholder, **token.notes}
    return save(tensors, {_METADATA: json.dumps(notes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)})


def read_token_file(path: Path) -> TokenFile:
    """UserError where the file is no class token."""
    from safetensors import SafetensorError, safe_open

    try:
        with open_regular(path) as found:
            if os.fstat(found.fileno()).st_size > MOST_BYTES:
                raise UnfitFile(f"has more than {MOST_BYTES:,} bytes, which no class token has")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            notes = json.loads((file.metadata() or {}).get(_METADATA, "{}"))
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"tokens: {path.name}: not a readable safetensors file ({said})") from error
    if not isinstance(notes, dict):
        raise UserError(f"tokens: {path.name}: its notes are {type(notes).__name__}, expected a mapping")
    problem = next((p for name, tensor in tensors.items() if (p := _tensor_problem(name, tensor))), None)
    if problem is None and "placeholder" in notes:
        problem = _placeholder_problem(notes["placeholder"])
    if problem:
        raise UserError(f"tokens: {path.name}: {problem}")
    vectors = {name: tensor.reshape(-1, tensor.shape[-1]) for name, tensor in tensors.items() if tensor.ndim}
    if set(vectors) == set(_TWO_ENCODERS):
        placeholder = notes.get("placeholder") or f"<{path.stem}>"
        return TokenFile(placeholder, tuple(vectors[name] for name in _TWO_ENCODERS), notes)
    if len(vectors) != 1 or len(tensors) != 1:
        raise UserError(f"tokens: {path.name}: {len(tensors)} tensors, expected one class token")
    placeholder, own = next(iter(vectors.items()))
    return TokenFile(placeholder, (own,), notes)


def _tensor_problem(name: str, tensor: torch.Tensor) -> str | None:
    """Why a tensor of a file is no class token's; None for one that may be."""
    import torch

    if (problem := _placeholder_problem(name)) is not None:
        return problem
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if tensor.dtype not in known or tensor.ndim not in (1, 2):
        return f"'{name}' is a tensor of {tensor.dtype} and shape {tuple(tensor.shape)}, expected vectors"
    vectors = tensor.shape[0] if tensor.ndim == 2 else 1
    if not 1 <= vectors <= MOST_VECTORS or not 1 <= tensor.shape[-1] <= WIDEST:
        return f"'{name}' has the shape {tuple(tensor.shape)}, expected at most {MOST_VECTORS} vectors of {WIDEST}"
    if not bool(torch.isfinite(tensor.float()).all()):
        return f"'{name}' holds numbers that are not finite"
    return None


def _placeholder_problem(name: Any) -> str | None:
    """Why a text cannot stand for a class in a prompt."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_PLACEHOLDER:
        return f"its placeholder is {name!r:.80}, expected 1 to {LONGEST_PLACEHOLDER} characters"
    if not name.isprintable() or any(letter.isspace() for letter in name):
        return f"its placeholder is {name!r:.80}, expected printable characters without spaces"
    return None


def read_token_files(files: Mapping[str, Path]) -> dict[str, TokenFile]:
    """Class id → token; UserError with every file that is none."""
    tokens, problems = {}, []
    for class_id, file in files.items():
        try:
            tokens[class_id] = read_token_file(file)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    return tokens
