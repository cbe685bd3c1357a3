"""What a folder holds, as one SHA-256 over the names and contents of its files: the pin of a local input dataset.

A hundred gigabytes are not read on every run. What a file's content was is remembered by its size, times and inode in
a file of the user's cache, one a folder. What is remembered can be thrown away at any time, and is, unless it is whole.

Class folders may be links: whoever made the folder collected them so, and their files are of the content. What was
fetched, described or packed by others follows none: a stranger would say which files of this machine are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.progress import report
from counterfoil.regular_files import open_regular, read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import Listing, list_files
from counterfoil.store.layout import INDEX, LOCK, PRIVATE
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

    @property
    def files(self) -> int:
        return len(self.listing.files)


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


def shown_names(names: Sequence[str]) -> list[str]:
    """Those that `datasets` reads of a listing: not hidden, in no folder that begins with `__`, no notes of its own."""
    from datasets.data_files import FILES_TO_IGNORE

    hidden = {folder for folder in {name.rpartition("/")[0] for name in names} if _is_hidden(folder)}
    ignored = frozenset(FILES_TO_IGNORE)
    parted = ((name, *name.rpartition("/")) for name in names)
    return [n for n, folder, _, last in parted if last[0] != "." and folder not in hidden and last not in ignored]


def _is_hidden(folder: str) -> bool:
    return any(part.startswith((".", "__")) for part in PurePosixPath(folder).parts)


def _is_from_elsewhere(folder: Path, names: Sequence[str]) -> bool:
    """Whether a folder is more than somebody's own folders of images: fetched, built, described or packed."""
    return (folder / _FETCHED).exists() or any(
        name in _BUILT or name.rpartition("/")[2] in _DESCRIBED or PurePosixPath(name).suffix.lower() in _PACKED
        for name in names
    )


def folder_content(folder: Path, *, clock: Callable[[], int] = time.time_ns) -> FolderContent:
    """As `folder_content`, at once."""
    listing = folder_listing(folder)
    if listing.unfit:
        shown = [f"{folder / path} {what}" for path, what in sorted(listing.unfit.items())]
        more = [f"… and {len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
        raise UserError(
            [*shown[:_MOST_SHOWN], *more],
            "An input dataset is pinned by the files of its folder: put the files themselves in their place.",
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
            before = _look(path, encoded)
            content = remembered.get(before.key) if before.changed < clock() - _TICK else None
            if content is not None:
                lasting[before.key] = content
            else:
                with open_regular(Path(path)) as file:
                    whole = before.size <= _AT_ONCE
                    digested = hashlib.sha256(file.read()) if whole else hashlib.file_digest(file, "sha256")
                    content = digested.digest()
                read += 1
                if before == _look(path, encoded) and before.changed < clock() - _TICK:
                    lasting[before.key] = content
        except OSError as error:
            raise RunFailure(f"{path} cannot be read: {error.strerror or error}") from error
        digest.update(encoded + b"\0" + content)
    if lasting != remembered:
        _remember(folder, lasting)
    report("reading files", total, total)
    return FolderContent(digest.hexdigest(), listing, read)


@dataclass(frozen=True, slots=True)
class _Look:
    """What a file looks like from outside: a key over its name, size, times and inode, its size, its last change."""

    key: bytes
    size: int
    changed: int


def _look(path: str, encoded: bytes) -> _Look:
    seen = os.stat(path)  # noqa: PTH116 (of hundreds of thousands: a Path each takes longer than asking)
    # The change time too: copying tools set the other one to the original's.
    outside = f"{seen.st_size} {seen.st_mtime_ns} {seen.st_ctime_ns} {seen.st_ino} ".encode()
    return _Look(
        hashlib.sha256(outside + encoded).digest()[:_KEY], seen.st_size, max(seen.st_mtime_ns, seen.st_ctime_ns)
    )


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
