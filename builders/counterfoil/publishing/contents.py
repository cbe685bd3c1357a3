"""What a directory holds and what a repository holds, and the additions, replacements and deletions between them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.store.layout import (
    CARD,
    CROISSANT,
    EVALUATION,
    FIGURES,
    LOCK,
    MANIFEST,
    RECEIPTS,
    RECIPE,
    THRESHOLDS,
    TIMM_INFO,
    TOKENS,
    WHATS,
)
from counterfoil.store.manifest import hash_files, published_paths

# A repository's file is the dataset's when it has a name that only a dataset's files have. Any table in the folders
# of shards counts: the card's globs would take it for rows.
_FILES = frozenset({CARD, RECIPE, LOCK, MANIFEST, TIMM_INFO, THRESHOLDS, CROISSANT})
_BELOW = {
    **dict.fromkeys(WHATS, re.compile(r".+\.(parquet|tar)")),
    RECEIPTS: re.compile(r"[^/]+-\d{5,}\.json"),
    FIGURES: re.compile(r"(contact-sheet|shift-[^/]+)\.webp"),
    TOKENS: re.compile(r"[^/]+\.safetensors|manifest\.json"),
    EVALUATION: re.compile(r"results\.json|(results|robustness|shifts|classes)\.csv|eval_results/[^/]+\.yaml"),
}


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to publish; `path` is relative to `directory`."""

    directory: Path
    path: str
    size: int
    sha256: str

    @property
    def place(self) -> Path:
        return self.directory / self.path

    def git_id(self) -> str:
        """The id that git gives this content, which the Hub lists for files that are not in large-file storage."""
        digest = hashlib.sha1(f"blob {self.size}\0".encode(), usedforsecurity=False)
        with self.place.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest()

    def equals(self, remote: RemoteFile) -> bool:
        """Whether the content is the same, by size and sha256 (or git's id, where the Hub lists no sha256)."""
        if self.size != remote.size:
            return False
        return self.sha256 == remote.sha256 if remote.sha256 is not None else self.git_id() == remote.git_id


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository; `sha256` is listed for files in large-file storage only."""

    path: str
    size: int
    git_id: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a repository the directory. `kept` are paths there that are no dataset's; they stay."""

    added: tuple[LocalFile, ...] = ()
    replaced: tuple[LocalFile, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    same: int = field(default=0)

    @property
    def sent(self) -> tuple[LocalFile, ...]:
        """Files whose content goes there, in the order of publishing."""
        return tuple(sorted((*self.added, *self.replaced), key=_order))

    @property
    def operations(self) -> int:
        return len(self.added) + len(self.replaced) + len(self.deleted)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.sent)


def local_files(directory: Path) -> dict[str, LocalFile]:
    """Every published file of a directory and its manifest, by path; hashed here, from what is there now."""
    paths = [*published_paths(directory), MANIFEST]
    return {
        entry.path: LocalFile(directory, entry.path, entry.size, entry.sha256) for entry in hash_files(directory, paths)
    }


def is_of_a_dataset(path: str) -> bool:
    """Whether a path of a repository is one that publishing owns: it replaces and deletes only these."""
    first, _, below = path.partition("/")
    return first in _BELOW and _BELOW[first].fullmatch(below) is not None if below else first in _FILES


def changes_between(local: Mapping[str, LocalFile], remote: Mapping[str, RemoteFile]) -> Changes:
    """The changes that make a repository's dataset files those of a directory."""
    there = [path for path in local if path in remote]
    same = {path for path in there if local[path].equals(remote[path])}
    others = [path for path in sorted(remote) if path not in local]
    return Changes(
        added=tuple(file for path, file in sorted(local.items()) if path not in remote),
        replaced=tuple(local[path] for path in sorted(there) if path not in same),
        deleted=tuple(path for path in others if is_of_a_dataset(path)),
        kept=tuple(path for path in others if not is_of_a_dataset(path) and not path.startswith(".")),
        same=len(same),
    )


def _order(file: LocalFile) -> tuple[int, str]:
    """Data first, what tells of it last: the card, then the manifest."""
    return ({CARD: 1, MANIFEST: 2}.get(file.path, 0), file.path)
