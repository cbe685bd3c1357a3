"""Folders as input datasets: what one holds, and where one lies that a dataset pins.

What a folder holds is one SHA-256 over the names and contents of its files, the pin of a local input dataset. A hundred
gigabytes are not read on every run: what a file's content was is remembered by its size, times and inode in a file of
the user's cache, one a folder. What is remembered can be thrown away at any time, and is, unless it is whole.

Class folders may be links: whoever made the folder collected them so, and their files are of the content. What was
fetched, described or packed by others follows none: a stranger would say which files of this machine are read.

A built dataset names no folder of the machine that it was built on. On that machine the one of this very content is
found again by its pin, which the user's cache remembers, for what looks at the input dataset later: a reference,
controls of a review, distances.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard

from counterfoil.errors import CounterfoilError, RunFailure, UserError, first_of
from counterfoil.progress import report
from counterfoil.recipe.names import ELSEWHERE, is_local
from counterfoil.regular_files import open_regular, read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import Listing, list_files
from counterfoil.store.layout import INDEX, LOCK, PRIVATE, user_cache

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source


# ImageNet has 1.3 million images.
MOST_FILES = 20_000_000
# A file may change twice within one tick of its file system's clock, and then looks as it did: such a young one is
# read again. The coarsest clock in use ticks every two seconds (FAT).
_TICK = 2_000_000_000
_FORM = b"counterfoil folder 1\n"
_KEY, _DIGEST = 16, 32
_MOST_REMEMBERED = MOST_FILES * (_KEY + _DIGEST) + 1024
_MOST_SHOWN = 10
_FILES_A_STAGE = 500
# A file of fewer bytes is read whole: in pieces a small one takes twice as long.
_AT_ONCE = 1 << 20
# What the Hub's client leaves in a folder that it fetched, and what a dataset's description or tables are called.
_FETCHED = ".cache/huggingface"
_DESCRIBED = frozenset(
    ("README.md", ".huggingface.yaml", "dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")
)
_BUILT = frozenset(("manifest.json", "lock.json"))
_PACKED = frozenset((".parquet", ".arrow", ".tar", ".zip", ".csv", ".jsonl"))


@dataclass(frozen=True, slots=True)
class FolderContent:
    """`sha256` over relative names and contents; its listing, and of how many files the bytes were read now."""

    sha256: str
    listing: Listing
    read: int


def folder_listing(folder: Path) -> Listing:
    """Every file of a folder, hidden ones too, those in class folders that are links among them.

    RunFailure where it cannot be listed or has no end.
    """
    try:
        listing = list_files(folder, hidden=True, most=MOST_FILES, links=True)
    except OSError as error:
        raise RunFailure(f"{folder} cannot be listed: {error.strerror or error}") from error
    if listing.linked and _is_from_elsewhere(folder, listing.files):
        listing.unfit |= dict.fromkeys(listing.linked, "is a link, expected a folder of the dataset itself")
    return listing


def _is_from_elsewhere(folder: Path, names: Sequence[str]) -> bool:
    """Whether a folder is more than somebody's own folders of images: fetched, built, described or packed."""
    return (folder / _FETCHED).exists() or any(
        name in _BUILT or name.rpartition("/")[2] in _DESCRIBED or PurePosixPath(name).suffix.lower() in _PACKED
        for name in names
    )


def folder_content(folder: Path, *, clock: Callable[[], int] = time.time_ns) -> FolderContent:
    """What a folder holds now. RunFailure for what cannot be read, UserError for links and what is no regular file."""
    listing = folder_listing(folder)
    if listing.unfit:
        shown = [f"{folder / path} {what}" for path, what in sorted(listing.unfit.items())]
        raise UserError(
            first_of(shown, _MOST_SHOWN),
            "The lock pins the files in the folder: replace links with the files themselves.",
        )
    remembered = _remembered(folder)
    digest, lasting, read = hashlib.sha256(), {}, 0
    own = (INDEX,) if LOCK in listing.files else ()
    names = [name for name in listing.files if not name.startswith(f"{PRIVATE}/") and name not in own]
    top, total = os.fspath(folder), len(names)
    for number, name in enumerate(names):
        if number % _FILES_A_STAGE == 0:
            report("reading files", number, total)
        path, encoded = f"{top}{os.sep}{name}", os.fsencode(name)
        try:
            before = key, size, changed = _look(path, encoded)
            content = remembered.get(key) if changed < clock() - _TICK else None
            if content is not None:
                lasting[key] = content
            else:
                with open_regular(Path(path)) as file:
                    whole = size <= _AT_ONCE
                    digested = hashlib.sha256(file.read()) if whole else hashlib.file_digest(file, "sha256")
                    content = digested.digest()
                read += 1
                if before == _look(path, encoded) and changed < clock() - _TICK:
                    lasting[key] = content
        except OSError as error:
            raise RunFailure(f"{path} cannot be read: {error.strerror or error}") from error
        digest.update(encoded + b"\0" + content)
    if lasting != remembered:
        _remember(folder, lasting)
    report("reading files", total, total)
    return FolderContent(digest.hexdigest(), listing, read)


def pinned_content(folder: Path, name: str, sha256: str | None) -> FolderContent:
    """As `folder_content`. RunFailure where it is no longer what was pinned; `name` is the input dataset's."""
    found = folder_content(folder)
    if sha256 is not None and found.sha256 != sha256:
        raise RunFailure(
            f"source: '{name}' is no longer what was pinned: its files have changed",
            "Run it again when nothing writes to the folder. A started build needs the files that it started with.",
        )
    return found


def _look(path: str, encoded: bytes) -> tuple[bytes, int, int]:
    """What a file looks like from outside: a key over its name, size, times and inode; its size; its last change."""
    seen = os.stat(path)  # noqa: PTH116 (of hundreds of thousands: a Path each takes longer than asking)
    # The change time too: copying tools set the other one to the original's.
    outside = f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} ".encode()
    key = hashlib.sha256(outside + encoded).digest()[:_KEY]
    return key, seen.st_size, max(seen.st_mtime_ns, seen.st_ctime_ns)


def _memory_place(folder: Path) -> Path:
    return user_cache() / "folders" / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()


def _remembered(folder: Path) -> dict[bytes, bytes]:
    """Key → content; nothing where the file is not there, damaged, or anything else than what is written."""
    try:
        stored = read_regular(_memory_place(folder), _MOST_REMEMBERED)
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
        write_atomically(_memory_place(folder), hashlib.sha256(body).digest() + body)


_MOST_KNOWN_BYTES = 1 << 16
_HEX_DIGITS = frozenset("0123456789abcdef")


def remember_folder(folder: Path, content: str) -> None:
    """Remember that a folder has this content (64 hex digits), as `folder_content` found."""
    with contextlib.suppress(CounterfoilError, OSError, RuntimeError):  # a cache that cannot be written is no cache
        place, written = _known_place(content), json.dumps({"folder": str(folder.resolve())}).encode()
        if not place.is_file() or read_regular(place, _MOST_KNOWN_BYTES) != written:
            write_atomically(place, written)


def placed(source: Source, recorded: Any) -> Source:
    """A dataset's source with the folder of this machine that has the recorded content, where one is known.

    `recorded` is the document of its pin. Any other source is given back as it is.
    """
    content = recorded.get("content") if isinstance(recorded, Mapping) else None
    if not (is_local(source.dataset) and source.dataset.startswith(ELSEWHERE)) or not _is_content(content):
        return source
    folder = _known_folder(content)
    return source if folder is None else source.model_copy(update={"dataset": str(folder)})


def _known_folder(content: str) -> Path | None:
    """The folder that had this content when it was last looked at, and has it still."""
    try:
        folder = Path(json.loads(read_regular(_known_place(content), _MOST_KNOWN_BYTES))["folder"])
        same = folder.is_absolute() and folder.is_dir() and folder_content(folder).sha256 == content
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, CounterfoilError):
        return None
    return folder if same else None


def _is_content(content: Any) -> TypeGuard[str]:
    return isinstance(content, str) and len(content) == 64 and _HEX_DIGITS.issuperset(content)


def _known_place(content: str) -> Path:
    return user_cache() / "folders-by-content" / f"{content}.json"
