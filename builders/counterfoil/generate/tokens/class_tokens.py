"""Read and write class tokens.

Each class has one safetensors file in a folder. The folder is local, in the lab or on the Hub.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import error_line, known_cause
from counterfoil.models.names import LAB, lab_tokens, refuse_elsewhere, refuse_shadowed
from counterfoil.recipe.layering import is_local
from counterfoil.regular_files import UnfitFile, named_path, open_regular, read_regular
from counterfoil.store.layout import TOKENS

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


TOKENS_MANIFEST = "manifest.json"
# A token of 32 vectors for the widest text encoder has 160 kB.
MOST_BYTES = 4 << 20
MOST_VECTORS = 32
WIDEST = 65_536
LONGEST_PLACEHOLDER = 200
_TWO_ENCODERS = ("clip_l", "clip_g")
# Files of A1111 and kohya name their tensors so. The placeholder of such a token is the name of the
# file.
_NO_WORDS = frozenset(("emb_params", "clip_l", "clip_g", "*"))
# All metadata are under one key, because safetensors writes keys in no fixed order and equal tokens
# must give equal bytes.
_METADATA = "counterfoil"


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The placeholder of a token, its vectors [n, width] for each text encoder, and how it was
    made."""

    placeholder: str
    vectors: tuple[torch.Tensor, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)


def token_file_name(class_id: str) -> str:
    return f"{class_id}.safetensors"


def placeholder_of(class_id: str, name: str) -> str:
    """Return the placeholder `<name-id>`, in letters that every tokenizer keeps."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"<{slug}-{class_id}>" if slug else f"<{class_id}>"


def token_bytes(token: TokenFile) -> bytes:
    """Return the content of the file of a token. Equal tokens give equal bytes."""
    from safetensors.torch import save

    if len(token.vectors) == 1:
        tensors = {token.placeholder: token.vectors[0].contiguous()}
    else:
        names = _TWO_ENCODERS[: len(token.vectors)]
        contiguous = [vector.contiguous() for vector in token.vectors]
        tensors = dict(zip(names, contiguous, strict=True))
    notes = {"placeholder": token.placeholder, **token.notes}
    metadata = json.dumps(notes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return save(tensors, {_METADATA: metadata})


def read_token_file(path: Path) -> TokenFile:
    """Read a token from its file. Raise UserError if the file is not a class token."""
    from safetensors import SafetensorError, safe_open

    try:
        with open_regular(path) as opened:
            if os.fstat(opened.fileno()).st_size > MOST_BYTES:
                raise UnfitFile(f"has more than {MOST_BYTES:,} bytes, too many for a class token")
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            notes = json.loads((file.metadata() or {}).get(_METADATA, "{}"))
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(
            f"tokens: {path.name}: not a readable safetensors file ({cause})"
        ) from error
    if not isinstance(notes, dict):
        raise UserError(
            f"tokens: {path.name}: its notes are {type(notes).__name__}, expected a mapping"
        )
    problems = [_tensor_problem(name, tensor) for name, tensor in tensors.items()]
    if "placeholder" in notes:
        problems.append(_placeholder_problem(notes["placeholder"]))
    for problem in problems:
        if problem is not None:
            raise UserError(f"tokens: {path.name}: {problem}")
    # A token has one vector or more for each encoder.
    vectors = {name: tensor.reshape(-1, tensor.shape[-1]) for name, tensor in tensors.items()}
    if set(vectors) == set(_TWO_ENCODERS):
        placeholder = notes.get("placeholder") or f"<{path.stem}>"
        return TokenFile(placeholder, tuple(vectors[name] for name in _TWO_ENCODERS), notes)
    if len(vectors) != 1:
        raise UserError(f"tokens: {path.name}: {len(vectors)} tensors, expected one class token")
    ((name, token_vectors),) = vectors.items()
    placeholder = f"<{path.stem}>" if name in _NO_WORDS else name
    return TokenFile(placeholder, (token_vectors,), notes)


def _tensor_problem(name: str, tensor: torch.Tensor) -> str | None:
    import torch

    if (problem := _placeholder_problem(name)) is not None:
        return problem
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if tensor.dtype not in known or tensor.ndim not in (1, 2):
        return (
            f"'{name}' is a tensor of {tensor.dtype} and shape {tuple(tensor.shape)}, expected"
            " vectors"
        )
    vectors = tensor.shape[0] if tensor.ndim == 2 else 1
    if not 1 <= vectors <= MOST_VECTORS or not 1 <= tensor.shape[-1] <= WIDEST:
        return (
            f"'{name}' has the shape {tuple(tensor.shape)}, expected at most {MOST_VECTORS}"
            f" vectors of {WIDEST}"
        )
    if not bool(torch.isfinite(tensor.float()).all()):
        return f"'{name}' holds numbers that are not finite"
    return None


def _placeholder_problem(name: Any) -> str | None:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_PLACEHOLDER:
        return f"its placeholder is {name!r:.80}, expected 1 to {LONGEST_PLACEHOLDER} characters"
    if not name.isprintable() or any(letter.isspace() for letter in name):
        return f"its placeholder is {name!r:.80}, expected printable characters without spaces"
    return None


_MOST_MANIFEST = 32_000_000  # bytes; a thousand classes take half a million


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """The tokens of a recipe, by class id."""

    placeholders: Mapping[str, str]
    vectors: Mapping[str, tuple[torch.Tensor, ...]]
    """The vectors [n, width] of each token for each text encoder."""
    files: Mapping[str, bytes]
    """The content of each token's file."""
    manifest: bytes | None = None
    """How the tokens were learned or imported, if the folder has a manifest."""

    def by_placeholder(self) -> dict[str, tuple[torch.Tensor, ...]]:
        return {self.placeholders[class_id]: vectors for class_id, vectors in self.vectors.items()}

    def hashes(self) -> dict[str, str]:
        return {
            class_id: hashlib.sha256(content).hexdigest()
            for class_id, content in self.files.items()
        }

    def attachments(self) -> dict[str, bytes]:
        """Return the files of tokens that a dataset includes, by path."""
        attached = {}
        for class_id, content in self.files.items():
            attached[f"{TOKENS}/{token_file_name(class_id)}"] = content
        if self.manifest is not None:
            attached[f"{TOKENS}/{TOKENS_MANIFEST}"] = self.manifest
        return attached


def read_class_tokens(recipe: Recipe) -> ClassTokens | None:
    """Return the tokens of every class of the recipe, or None for a recipe that prompts by name.

    Raise UserError if a class has no file, if two classes share a placeholder, or if a file is not
    a token. Raise ValueError for a recipe that learns its tokens.
    """
    tokens = recipe.tokens
    if tokens is None:
        return None
    if tokens.path is None:
        raise ValueError("tokens.learn: there is no folder to read yet")
    return read_token_folder(recipe, token_folder(tokens.path, tokens.revision))


def read_token_folder(recipe: Recipe, folder: Path) -> ClassTokens:
    """Return the tokens in a folder for the classes of a recipe. Raise as `read_class_tokens`
    does."""
    files = {cls.id: folder / token_file_name(cls.id) for cls in recipe.classes}
    missing = [file.name for file in files.values() if not file.is_file()]
    if missing:
        raise UserError(
            [f"tokens.path: {folder.name} has no {name}" for name in missing[:20]],
            "Each class needs a file CLASS_ID.safetensors of one {placeholder: vectors}."
            " `counterfoil tokens --import` reads .bin files; `tokens: null` prompts by class"
            " name.",
        )
    tokens: dict[str, TokenFile] = {}
    problems: list[str] = []
    for class_id, file in files.items():
        try:
            tokens[class_id] = read_token_file(file)
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(problems)
    placeholders = {class_id: token.placeholder for class_id, token in tokens.items()}
    if len(set(placeholders.values())) < len(placeholders):
        raise UserError("tokens.path: two classes share a placeholder; each needs its own")
    vectors = {class_id: token.vectors for class_id, token in tokens.items()}
    contents = {class_id: file.read_bytes() for class_id, file in files.items()}
    path = folder / TOKENS_MANIFEST
    manifest = read_regular(path, _MOST_MANIFEST) if path.is_file() else None
    return ClassTokens(placeholders, vectors, contents, manifest)


def token_folder(path: str, revision: str | None) -> Path:
    """Return the folder of tokens with a name.

    This is a local folder or its subfolder `tokens/`, a folder of the lab, or a folder that was
    fetched from the Hub.
    """
    refuse_elsewhere(path, "tokens.path")
    if path.startswith(LAB):
        return lab_tokens(path)
    if is_local(path):
        folder = named_path(path)
        if not folder.is_dir():
            raise UserError(f"tokens.path: there is no folder {path}")
    else:
        refuse_shadowed(path, "tokens.path")
        from huggingface_hub import snapshot_download

        patterns = ["*.safetensors", TOKENS_MANIFEST]
        patterns += [f"{TOKENS}/{pattern}" for pattern in patterns]
        try:
            folder = Path(snapshot_download(path, revision=revision, allow_patterns=patterns))
        except Exception as error:
            known = known_cause(f"tokens.path: '{path}'", error)
            raise known or RunFailure(
                f"tokens.path: '{path}' could not be fetched: {error_line(error)}"
            ) from error
    subfolder = folder / TOKENS
    return subfolder if subfolder.is_dir() else folder
