"""What a folder holds, as one SHA-256 over the names and contents of its files: the pin of a local input dataset.

A hundred gigabytes are not read on every run. What a file's content was is remembered by its size, times and inode in
a file of the user's cache, one a folder. What is remembered can be thrown away at any time, and is, unless it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.regular_files import open_regular, read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import list_files
from counterfoil.user_cache import user_cache

# ImageNet has 1.3 million images.
MOST_FILES = 20_000_000
# A file may change twice within one tick of its file system's clock, and then looks as it did: such a young one is
# read again. The coarsest clock in use ticks every two seconds (FAT).
_TICK = 2_000_000_000
_FORM = b"counterfoil folder 1\n"
_KEY, _DIGEST = 16, 32
_MOST_REMEMBERED = MOST_FILES * (_KEY + _DIGEST) + 1024
_MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FolderContent:
    """`sha256` over relative names and contents; how many files there are, and of how many the bytes were read now."""

    sha256: str
    files: int
    read: int


def folder_content(folder: Path, *, clock: Callable[[], int] = time.time_ns) -> FolderContent:
    """The content of every regular file below a folder, hidden ones too; the folder's own name takes no part.

    `clock` gives nanoseconds since 1970. UserError for links, pipes and devices, which have no content of their own
    (the links that the Hub's client makes to its blobs do); RunFailure where a file cannot be read.
    """
    try:
        listing = list_files(folder, hidden=True, most=MOST_FILES)
    except OSError as error:
        raise RunFailure(f"{folder} cannot be listed: {error.strerror or error}") from error
    if listing.unfit:
        shown = [f"{folder / path} {what}" for path, what in sorted(listing.unfit.items())]
        more = [f"… and {len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
        raise UserError(
            [*shown[:_MOST_SHOWN], *more],
            "An input dataset is pinned by the files of its folder: put the files themselves in their place.",
        )
    remembered = _remembered(folder)
    digest, lasting, read = hashlib.sha256(), {}, 0
    for name in listing.files:
        path, encoded = folder / name, os.fsencode(name)
        try:
            before = _look(path, encoded)
            content = remembered.get(before.key) if before.changed < clock() - _TICK else None
            if content is None:
                with open_regular(path) as file:
                    content = hashlib.file_digest(file, "sha256").digest()
                read += 1
            if before == _look(path, encoded) and before.changed < clock() - _TICK:
                lasting[before.key] = content
        except OSError as error:
            raise RunFailure(f"{path} cannot be read: {error.strerror or error}") from error
        digest.update(encoded + b"\0" + content)
    if lasting != remembered:
        _remember(folder, lasting)
    return FolderContent(digest.hexdigest(), len(listing.files), read)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a file looks like from outside: a key over its name, size, times and inode, and when it last changed."""

    key: bytes
    changed: int


def _look(path: Path, encoded: bytes) -> _Look:
    seen = path.stat()
    # The change time too: copying tools set the other one to the original's.
    outside = f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} ".encode()
    return _Look(hashlib.sha256(outside + encoded).digest()[:_KEY], max(seen.st_mtime_ns, seen.st_ctime_ns))


def _place(folder: Path) -> Path:
    return user_cache() / "folders" / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


def _remembered(folder: Path) -> dict[bytes, bytes]:
    """Key → content; nothing where the file is not there, damaged, or anything else than what is written."""
    try:
        stored = read_regular(_place(folder), _MOST_REMEMBERED)
    except (OSError, RuntimeError):
        return {}
    seal, body = stored[:_DIGEST], stored[_DIGEST:]
    entry = _KEY + _DIGEST
    if hashlib.sha256(body).digest() != seal or not body.startswith(_FORM) or (len(body) - len(_FORM)) % entry:
        return {}
    starts = range(len(_FORM), len(body), entry)
    return {body[start : start + _KEY]: body[start + _KEY : start + entry] for start in starts}


def _remember(folder: Path, contents: dict[bytes, bytes]) -> None:
    body = _FORM + b"".join(key + contents[key] for key in sorted(contents))
    with contextlib.suppress(CounterfoilError, OSError, RuntimeError):  # a cache that cannot be written is no cache
        write_atomically(_place(folder), hashlib.sha256(body).digest() + body)
