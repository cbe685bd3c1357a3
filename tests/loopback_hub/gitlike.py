"""Git's objects without git: real object ids of files, LFS pointers, folders and commits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

# Commits are dated by their number, so that equal histories have equal object ids.
_FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def object_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(content)) + content).hexdigest()


def pointer(sha256: str, size: int) -> bytes:
    """Return the text that git keeps in place of an LFS file."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a commit: `oid` is the git blob's, of the pointer where the file is an LFS one
    (`sha256`)."""

    oid: str
    size: int
    sha256: str | None = None
    pointer_size: int = 0

    @classmethod
    def regular(cls, content: bytes) -> Entry:
        return cls(object_id("blob", content), len(content))

    @classmethod
    def lfs(cls, sha256: str, size: int) -> Entry:
        text = pointer(sha256, size)
        return cls(object_id("blob", text), size, sha256, len(text))

    @property
    def etag(self) -> str:
        """What the Hub's clients know a content by: sha256 for an LFS file, else the git blob."""
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Commit:
    """A commit with its whole tree; `changed` are the paths added, replaced or deleted since its
    first parent."""

    number: int
    tree: Mapping[str, Entry]
    message: str
    description: str = ""
    author: str = "system"
    parents: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @cached_property
    def folders(self) -> dict[str, str]:
        """Path → tree oid of every folder; the root's path is empty."""
        return folder_ids(self.tree)

    @cached_property
    def oid(self) -> str:
        seconds = int(self._moment.timestamp())
        lines = [f"tree {self.folders['']}", *(f"parent {parent}" for parent in self.parents)]
        lines += [
            f"{role} {self.author} <{self.author}> {seconds} +0000"
            for role in ("author", "committer")
        ]
        return object_id(
            "commit", "\n".join([*lines, "", self.message, "", self.description]).encode()
        )

    @property
    def _moment(self) -> datetime:
        return _FIRST_DAY + timedelta(seconds=self.number)

    @property
    def date(self) -> str:
        return self._moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def folder_ids(tree: Mapping[str, Entry]) -> dict[str, str]:
    """Return path → git tree oid of every folder of a tree, the root among them."""
    inside: dict[str, list[tuple[bytes, bytes]]] = {"": []}
    for path, entry in tree.items():
        folder, _, name = path.rpartition("/")
        _open_folders(inside, folder)
        inside[folder].append(
            (name.encode(), b"100644 %s\0%s" % (name.encode(), bytes.fromhex(entry.oid)))
        )
    oids: dict[str, str] = {}
    for path in sorted(inside, key=lambda folder: -len(folder.split("/")) if folder else 0):
        oid = object_id("tree", b"".join(line for _, line in sorted(inside[path])))
        oids[path] = oid
        if path:
            folder, _, name = path.rpartition("/")
            # Git sorts a folder as if its name ended with a slash.
            inside[folder].append(
                (name.encode() + b"/", b"40000 %s\0%s" % (name.encode(), bytes.fromhex(oid)))
            )
    return oids


def _open_folders(inside: dict[str, list[tuple[bytes, bytes]]], folder: str) -> None:
    while folder not in inside:
        inside[folder] = []
        folder = folder.rpartition("/")[0]


def changed_paths(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> tuple[str, ...]:
    return tuple(
        sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    )
