"""Folders as input datasets: the hash of a folder's content, cached by file, and the folder that a
dataset pins.

A folder that other people made may not contain links, because a link would choose which files of
this machine are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from counterfoil.data.messages import failure, message
from counterfoil.errors import CounterfoilError, UserError, first_of
from counterfoil.progress import report_progress
from counterfoil.recipe.names import ELSEWHERE, is_local
from counterfoil.regular_files import on_a_line, open_regular, read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import Listing, list_files, refuse_written_inside
from counterfoil.store.layout import INDEX, LOCK, PRIVATE, user_cache

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source


# ImageNet has 1.3 million images, so this limit is far above a real dataset.
MOST_FILES = 20_000_000
# If a file changes twice within one tick of its file system's clock, the second change does not
# show. Recently changed files are therefore read again. The coarsest clock in use ticks every two
# seconds (FAT).
_TICK = 2_000_000_000  # nanoseconds
_FORM = b"counterfoil folder 1\n"
_KEY = 16
_DIGEST = 32
_MOST_REMEMBERED = MOST_FILES * (_KEY + _DIGEST) + 1024
_MOST_SHOWN = 10
_FILES_A_STAGE = 500
# Smaller files are read whole, which takes half the time.
_AT_ONCE = 1 << 20
# The folder that the Hub's client leaves in a downloaded dataset, and names of a dataset's
# description and table files.
_FETCHED = ".cache/huggingface"
_DESCRIBED = frozenset(
    (
        "README.md",
        ".huggingface.yaml",
        "dataset_dict.json",
        "dataset_info.json",
        "dataset_infos.json",
        "state.json",
    )
)
_BUILT = frozenset(("manifest.json", "lock.json"))
_PACKED = frozenset((".parquet", ".arrow", ".tar", ".zip", ".csv", ".jsonl"))


@dataclass(frozen=True, slots=True)
class FolderContent:
    """The content of a folder: `sha256` over relative names and contents, the listing, and the
    number of files just read.
    """

    sha256: str
    listing: Listing
    read: int


def refuse_among_inputs(output: Path, *names: str | None) -> None:
    """Raise UserError for an output path inside an input dataset of one of these names, if it is a
    folder.

    The lock pins every file there, and images that are written there would be read with the others.
    """
    for name in names:
        if name is not None and is_local(name) and Path(name).is_dir():
            refuse_written_inside(output, Path(name))


def folder_listing(folder: Path) -> Listing:
    """List every file of a folder, hidden files too. Class folders that are links are followed."""
    try:
        listing = list_files(folder, hidden=True, most=MOST_FILES, links=True)
    except OSError as error:
        raise failure("unreadable-data.folder", folder, error) from error
    if listing.linked and _is_from_others(folder, listing.files):
        listing.unfit |= dict.fromkeys(
            listing.linked, "is a link, expected a folder of the dataset itself"
        )
    return listing


def _is_from_others(folder: Path, names: Sequence[str]) -> bool:
    """Check whether a folder was fetched, built, described or packed, so that its owner may not
    have collected it."""
    if (folder / _FETCHED).exists() or not _BUILT.isdisjoint(names):
        return True
    paths = map(PurePosixPath, names)
    return any(path.name in _DESCRIBED or path.suffix.lower() in _PACKED for path in paths)


def folder_content(folder: Path, *, clock: Callable[[], int] = time.time_ns) -> FolderContent:
    """Hash a folder's content. Raise RunFailure for files that cannot be read, UserError for links
    and special files.
    """
    listing = folder_listing(folder)
    if listing.unfit:
        shown = []
        for path, what in sorted(listing.unfit.items()):
            shown.append(message("unreadable-data.pinned", folder / on_a_line(path), what))
        raise UserError(first_of(shown, _MOST_SHOWN))
    remembered = _remembered(folder)
    digest = hashlib.sha256()
    lasting = {}
    read = 0
    index = (INDEX,) if LOCK in listing.files else ()
    names = [
        name for name in listing.files if not name.startswith(f"{PRIVATE}/") and name not in index
    ]
    top = os.fspath(folder)
    total = len(names)
    for number, name in enumerate(names):
        if read and number % _FILES_A_STAGE == 0:
            report_progress("reading files", number, total)
        path = f"{top}{os.sep}{name}"
        encoded = os.fsencode(name)
        try:
            state = _state(path, encoded)
            key, size, changed = state
            settled = changed < clock() - _TICK
            content = remembered.get(key) if settled else None
            if content is None:
                with open_regular(Path(path)) as file:
                    digested = (
                        hashlib.sha256(file.read())
                        if size <= _AT_ONCE
                        else hashlib.file_digest(file, "sha256")
                    )
                    content = digested.digest()
                read += 1
                settled = state == _state(path, encoded) and changed < clock() - _TICK
            if settled:
                lasting[key] = content
        except OSError as error:
            raise failure("unreadable-data.read", path, error) from error
        digest.update(encoded + b"\0" + content)
    if lasting != remembered:
        body = _FORM + b"".join(key + lasting[key] for key in sorted(lasting))
        with contextlib.suppress(CounterfoilError, OSError, RuntimeError):  # the cache is optional
            write_atomically(_memory_place(folder), hashlib.sha256(body).digest() + body)
    if read:
        report_progress("reading files", total, total)
    return FolderContent(digest.hexdigest(), listing, read)


def pinned_content(folder: Path, name: str, sha256: str | None) -> FolderContent:
    """Return `folder_content`. Raise RunFailure if the content of the input dataset `name` differs
    from the pinned one.
    """
    content = folder_content(folder)
    if sha256 is not None and content.sha256 != sha256:
        raise failure("changed-data.pinned", f"source: '{name}'")
    return content


def _state(path: str, encoded: bytes) -> tuple[bytes, int, int]:
    """Return a key over a file's name, size, times and inode; its size; and the time of its last
    change."""
    status = os.stat(path)  # noqa: PTH116 (a Path for each of hundreds of thousands takes longer than the call)
    # The key includes the change time, because copying tools set the modification time to that of
    # the original.
    outside = (
        f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} ".encode()
    )
    key = hashlib.sha256(outside + encoded).digest()[:_KEY]
    return key, status.st_size, max(status.st_mtime_ns, status.st_ctime_ns)


def _memory_place(folder: Path) -> Path:
    path = os.fsencode(folder.resolve())
    return user_cache() / "folders" / hashlib.sha256(path).hexdigest()


def _remembered(folder: Path) -> dict[bytes, bytes]:
    """Read the cache as key → content. The result is empty if the cache is missing or damaged."""
    try:
        stored = read_regular(_memory_place(folder), _MOST_REMEMBERED)
    except (OSError, RuntimeError, CounterfoilError):
        return {}
    seal = stored[:_DIGEST]
    body = stored[_DIGEST:]
    entry = _KEY + _DIGEST
    if (
        hashlib.sha256(body).digest() != seal
        or not body.startswith(_FORM)
        or (len(body) - len(_FORM)) % entry
    ):
        return {}
    starts = range(len(_FORM), len(body), entry)
    return {body[start : start + _KEY]: body[start + _KEY : start + entry] for start in starts}


_MOST_KNOWN_BYTES = 1 << 16
_SHA256 = re.compile("[0-9a-f]{64}")


def remember_folder(folder: Path, content: str) -> None:
    """Remember the content of a folder, as `folder_content` returned it."""
    with contextlib.suppress(CounterfoilError, OSError, RuntimeError):  # the cache is optional
        path = _known_place(content)
        written = json.dumps({"folder": str(folder.resolve())}).encode()
        if not path.is_file() or read_regular(path, _MOST_KNOWN_BYTES) != written:
            write_atomically(path, written)


def placed_source(source: Source, recorded: Any) -> Source:
    """Return a source whose folder on this machine has the recorded pin's content, if such a folder
    is known."""
    content = recorded.get("content") if isinstance(recorded, Mapping) else None
    is_hash = isinstance(content, str) and _SHA256.fullmatch(content)
    is_elsewhere = is_local(source.dataset) and source.dataset.startswith(ELSEWHERE)
    if not is_hash or not is_elsewhere:
        return source
    try:
        folder = Path(json.loads(read_regular(_known_place(content), _MOST_KNOWN_BYTES))["folder"])
        # The folder may have changed since it was last read.
        same = folder.is_absolute() and folder.is_dir() and folder_content(folder).sha256 == content
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, CounterfoilError):
        return source
    return source.model_copy(update={"dataset": str(folder)}) if same else source


def _known_place(content: str) -> Path:
    return user_cache() / "folders-by-content" / f"{content}.json"
