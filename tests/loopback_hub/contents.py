"""The bytes that the loopback Hub keeps: git blobs and LFS blobs, each in a file named by its
hash."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loopback_hub.answers import Refusal
from loopback_hub.gitlike import Entry


@dataclass
class Received:
    """How often the bytes of a blob came in whole, and how many bytes came in all, broken uploads
    included."""

    complete: int = 0
    bytes: int = 0


class Contents:
    """Blobs on disk under `folder`, and the count of what was received for each LFS blob
    (`uploads`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self.uploads: dict[str, Received] = {}
        for name in ("git", "lfs", "incoming", "parts"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def keep(self, content: bytes) -> Entry:
        """Store the content of a regular file and return its entry."""
        entry = Entry.regular(content)
        path = self._folder / "git" / entry.oid
        if not path.exists():
            path.write_bytes(content)
        return entry

    def path(self, entry: Entry) -> Path:
        return self.blob(entry.sha256) if entry.sha256 else self._folder / "git" / entry.oid

    def blob(self, sha256: str) -> Path:
        return self._folder / "lfs" / sha256

    def size(self, sha256: str) -> int | None:
        path = self.blob(sha256)
        return path.stat().st_size if path.exists() else None

    def read(self, entry: Entry) -> bytes:
        return self.path(entry).read_bytes()

    def receive(self, sha256: str, size: int, chunks: Iterable[bytes]) -> None:
        """Store an LFS blob if it has the announced size and hash."""
        path = self._incoming(chunks)
        try:
            if path.stat().st_size != size or _sha256(path) != sha256:
                raise Refusal(
                    400, "The Content-SHA256 you specified did not match what we received."
                )
            self._finish(path, sha256)
        finally:
            path.unlink(missing_ok=True)

    def receive_part(self, sha256: str, number: int, chunks: Iterable[bytes]) -> str:
        """Store one part of a large blob and return its ETag."""
        path = self._incoming(chunks)
        etag = _sha256(path)
        path.replace(self._part(sha256, number))
        return etag

    def join_parts(self, sha256: str, size: int, etags: dict[int, str]) -> None:
        """Store the blob that its parts make. Raises Refusal if a part is missing or the whole is
        another blob."""
        paths = [self._part(sha256, number) for number in sorted(etags)]
        for number, path in zip(sorted(etags), paths, strict=True):
            if not path.exists() or _sha256(path) != etags[number]:
                raise Refusal(400, f"InvalidPart: part {number} was not found or has another ETag")
        whole = self._incoming(path.read_bytes() for path in paths)
        if whole.stat().st_size != size or _sha256(whole) != sha256:
            whole.unlink()
            raise Refusal(400, "The parts do not make the announced object.")
        self._finish(whole, sha256)
        for path in paths:
            path.unlink()

    def count(self, sha256: str, size: int) -> None:
        """Count received bytes of a blob, also those of a broken upload."""
        with self._lock:
            self.uploads.setdefault(sha256, Received()).bytes += size

    def _incoming(self, chunks: Iterable[bytes]) -> Path:
        handle, name = tempfile.mkstemp(dir=self._folder / "incoming")
        path = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
        except BaseException:
            path.unlink()
            raise
        return path

    def _finish(self, path: Path, sha256: str) -> None:
        with self._lock:
            path.replace(self.blob(sha256))
            self.uploads.setdefault(sha256, Received()).complete += 1

    def _part(self, sha256: str, number: int) -> Path:
        return self._folder / "parts" / f"{sha256}-{number}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
