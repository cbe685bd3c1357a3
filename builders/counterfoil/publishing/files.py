"""The files of a publication: of the directory, as they were when they were hashed, and of the repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository; `sha256` is listed for files in large-file storage only."""

    path: str
    size: int
    git_id: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to publish as it was when it was hashed; `path` is relative to `directory`.

    `git_id` is the id that git gives its content, which the Hub lists for files that are not in large-file storage.
    """

    directory: Path
    path: str
    size: int
    sha256: str
    git_id: str

    @property
    def place(self) -> Path:
        return self.directory / self.path

    def equals(self, remote: RemoteFile) -> bool:
        """Whether the content is the same, by size and sha256 (or git's id, where the Hub lists no sha256)."""
        if self.size != remote.size:
            return False
        return self.sha256 == remote.sha256 if remote.sha256 is not None else self.git_id == remote.git_id
