"""Find the class tokens that a recipe names: one safetensors file a class, `{placeholder: vectors}`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure, UserError

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ClassTokens:
    """Tokens by class id: the placeholder, its vectors [n, width], and the file they came in."""

    placeholders: Mapping[str, str]
    vectors: Mapping[str, torch.Tensor]
    files: Mapping[str, bytes]

    def by_placeholder(self) -> dict[str, torch.Tensor]:
        return {self.placeholders[class_id]: vectors for class_id, vectors in self.vectors.items()}

    def hashes(self) -> dict[str, str]:
        """Class id → SHA-256 of its file, for the lock."""
        return {class_id: hashlib.sha256(content).hexdigest() for class_id, content in self.files.items()}


def read_class_tokens(recipe: Recipe) -> ClassTokens | None:
    """The tokens of every class of the recipe, or None for a recipe that prompts by name.

    UserError where a class has no file, two share a placeholder, or a file is not a token.
    """
    tokens = recipe.tokens
    if tokens is None:
        return None
    if tokens.path is None:
        raise UserError(
            "tokens.learn: this version does not learn class tokens",
            "Name a folder of learned tokens as tokens.path, or set tokens to null to prompt by class name.",
        )
    from counterfoil.models.diffusion import read_token_files

    folder = _token_folder(tokens.path, tokens.revision)
    files = {cls.id: folder / f"{cls.id}.safetensors" for cls in recipe.classes}
    missing = [f"tokens.path: {folder.name} has no {file.name}" for file in files.values() if not file.is_file()]
    if missing:
        raise UserError(missing[:20], "Each class needs a file CLASS_ID.safetensors of one {placeholder: vectors}.")
    read = read_token_files(files)
    placeholders = {class_id: placeholder for class_id, (placeholder, _) in read.items()}
    if len(set(placeholders.values())) < len(placeholders):
        raise UserError("tokens.path: two classes share a placeholder; each needs its own")
    vectors = {class_id: vectors for class_id, (_, vectors) in read.items()}
    return ClassTokens(placeholders, vectors, {class_id: file.read_bytes() for class_id, file in files.items()})


def _token_folder(path: str, revision: str | None) -> Path:
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder / "tokens" if (folder / "tokens").is_dir() else folder
    if path.startswith((".", "/", "~")):
        raise UserError(f"tokens.path: there is no folder {path}")
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    try:
        got = Path(snapshot_download(path, revision=revision, allow_patterns=["*.safetensors", "tokens/*.safetensors"]))
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        raise UserError(f"tokens.path: '{path}' is neither a folder nor on the Hub") from error
    except (hub.HfHubHTTPError, hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled, OSError) as error:
        raise RunFailure(f"tokens.path: '{path}' is not cached and the Hub cannot be reached") from error
    return got / "tokens" if (got / "tokens").is_dir() else got
