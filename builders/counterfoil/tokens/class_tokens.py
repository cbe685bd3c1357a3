"""Find the class tokens that a recipe names: one safetensors file a class, in a folder, of the lab or on the Hub."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import known_cause, one_line
from counterfoil.models.names import LAB, lab_tokens, refuse_elsewhere, refuse_shadowed
from counterfoil.recipe.names import is_local
from counterfoil.regular_files import named_path, read_regular
from counterfoil.store.layout import TOKENS
from counterfoil.tokens.token_files import TOKENS_MANIFEST, token_file_name

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe

_MOST_MANIFEST = 32_000_000  # bytes; a thousand classes take half a million


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """Tokens by class id: the placeholder, its vectors [n, width] for each text encoder, and the file they came in.

    `manifest` is how they were learned or imported, where the folder tells it.
    """

    placeholders: Mapping[str, str]
    vectors: Mapping[str, tuple[torch.Tensor, ...]]
    files: Mapping[str, bytes]
    manifest: bytes | None = None

    def by_placeholder(self) -> dict[str, tuple[torch.Tensor, ...]]:
        return {self.placeholders[class_id]: vectors for class_id, vectors in self.vectors.items()}

    def hashes(self) -> dict[str, str]:
        """Class id → SHA-256 of its file, for the lock."""
        return {class_id: hashlib.sha256(content).hexdigest() for class_id, content in self.files.items()}

    def attachments(self) -> dict[str, bytes]:
        """The files that travel with a dataset, by their path in it."""
        files = {f"{TOKENS}/{token_file_name(class_id)}": content for class_id, content in self.files.items()}
        return files if self.manifest is None else {**files, f"{TOKENS}/{TOKENS_MANIFEST}": self.manifest}


def read_class_tokens(recipe: Recipe) -> ClassTokens | None:
    """The tokens of every class of the recipe, or None for a recipe that prompts by name.

    UserError where a class has no file, two share a placeholder, or a file is not a token.
    ValueError for a recipe that learns its tokens (`tokens.learn_tokens` does).
    """
    tokens = recipe.tokens
    if tokens is None:
        return None
    if tokens.path is None:
        raise ValueError("tokens.learn: there is no folder to read yet")
    return read_token_folder(recipe, token_folder(tokens.path, tokens.revision))


def read_token_folder(recipe: Recipe, folder: Path) -> ClassTokens:
    """The tokens of a recipe's classes in a folder. Raises as `read_class_tokens`."""
    from counterfoil.tokens.token_files import read_token_files

    files = {cls.id: folder / token_file_name(cls.id) for cls in recipe.classes}
    missing = [f"tokens.path: {folder.name} has no {file.name}" for file in files.values() if not file.is_file()]
    if missing:
        raise UserError(
            missing[:20],
            "Each class needs a file CLASS_ID.safetensors of one {placeholder: vectors}; `tokens: null`"
            " prompts by class name.",
        )
    read = read_token_files(files)
    placeholders = {class_id: token.placeholder for class_id, token in read.items()}
    if len(set(placeholders.values())) < len(placeholders):
        raise UserError("tokens.path: two classes share a placeholder; each needs its own")
    manifest = folder / TOKENS_MANIFEST
    return ClassTokens(
        placeholders,
        {class_id: token.vectors for class_id, token in read.items()},
        {class_id: file.read_bytes() for class_id, file in files.items()},
        read_regular(manifest, _MOST_MANIFEST) if manifest.is_file() else None,
    )


def token_folder(path: str, revision: str | None) -> Path:
    """The folder of a name: itself or its `tokens/`, the lab's, or a repository of the Hub.

    UserError where it is not there.
    """
    refuse_elsewhere(path, "tokens.path")
    if path.startswith(LAB):
        return lab_tokens(path)
    if is_local(path):
        folder = named_path(path)
        if not folder.is_dir():
            raise UserError(f"tokens.path: there is no folder {path}")
        return folder / TOKENS if (folder / TOKENS).is_dir() else folder
    refuse_shadowed(path, "tokens.path")
    from huggingface_hub import snapshot_download

    try:
        wanted = [f"{place}{pattern}" for place in ("", f"{TOKENS}/") for pattern in ("*.safetensors", TOKENS_MANIFEST)]
        got = Path(snapshot_download(path, revision=revision, allow_patterns=wanted))
    except Exception as error:
        known = known_cause(f"tokens.path: '{path}'", error)
        raise known or RunFailure(f"tokens.path: '{path}' could not be fetched: {one_line(error)}") from error
    return got / TOKENS if (got / TOKENS).is_dir() else got
