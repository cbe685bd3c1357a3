"""Write a file whole or not at all: write a temporary file beside the target, flush it to disk,
then rename it.

A temporary file is locked while it is written. What a crash leaves is not, and the next process
that writes into its folder removes it. Its name contains the process id, because a worker may
outlive its killed parent.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from counterfoil.store.inside import is_outside, read_inside, refuse_written_inside
from counterfoil.store.layout import TEMPORARY_SUFFIX, WRITTEN
from counterfoil.store.messages import failure, refusal

if sys.platform != "win32":
    import fcntl

TEMPORARY = re.compile(rf".+\.\d+{re.escape(TEMPORARY_SUFFIX)}")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class HashedFile:
    """A binary file that is open for writing once, from start to end. It counts and hashes what is
    written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data) -> int:
        view = memoryview(data)  # pyarrow passes buffers, tarfile passes bytes
        self._file.write(view)
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Do nothing. Writers close the file that they are given, but `atomic_file` must first
        flush it to disk."""

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn disk errors into messages: UserError for a forbidden path, RunFailure for a full disk
    and all other errors.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise refusal("cannot-write.forbidden", path, error) from error
        word = "full" if error.errno in _FULL else "disk"
        raise failure(f"cannot-write.{word}", path, error) from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and flush to disk the directory entries that name them.

    Once in a process, remove what killed runs left in the folder.
    """
    with disk_errors(folder):
        missing = []
        above = folder
        while not above.exists():
            missing.append(above)
            above = above.parent
        for created in reversed(missing):
            created.mkdir(exist_ok=True)
            flush_folder(created.parent)
        _remove_once(folder)


def try_folder(folder: Path, *, of_dataset: bool = False) -> None:
    """Check that a folder, which need not exist, can be written, and that no built dataset has it
    among its files.

    of_dataset: the folder is a dataset's own directory. Raise RunFailure if the disk is full,
    otherwise UserError.
    """
    missing = []
    parent = folder
    try:
        refuse_written_inside(folder.parent if of_dataset else folder)
        if folder.is_file():
            raise refusal("unusable-output.file", folder)
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        try:
            for created in reversed(missing):
                created.mkdir()
            with temporary_file(folder / ".try"):
                pass
        finally:
            for created in missing:
                with contextlib.suppress(OSError):
                    created.rmdir()
    except OSError as error:
        if error.errno in _FULL:
            raise failure("cannot-write.no-room", folder, error) from error
        raise refusal("cannot-write.forbidden", folder, error) from error


@contextlib.contextmanager
def temporary_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a file beside `path`. It is locked while it is open, and removed at the end unless it
    was renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")

    def is_named() -> bool:
        return temporary.exists() and os.path.samestat(os.fstat(file.fileno()), temporary.stat())

    while True:
        with temporary.open("ab", buffering=1 << 20) as file:
            # On a file system without locks, no process removes it.
            with contextlib.suppress(OSError):
                _lock(file.fileno())
            if not is_named():  # before it was locked, another process removed it
                continue
            try:
                file.truncate(0)
                yield temporary, file
            finally:
                with contextlib.suppress(OSError, ValueError):
                    if sys.platform == "win32":
                        file.close()
                        temporary.unlink(missing_ok=True)
                    elif is_named():
                        temporary.unlink()
            return


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make a folder beside `path`, locked and then removed as a temporary file is."""
    made = Path(tempfile.mkdtemp(prefix=".", dir=path.parent))
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with _locked(made):
        made.rename(temporary)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _lock(descriptor: int, wait: bool = True) -> None:
    """Lock a file until it is closed. OSError if that is impossible, or without `wait` if another
    process has it."""
    if sys.platform != "win32":  # there, an open file cannot be removed
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file or folder that no process holds. Raise OSError for another, or for a link."""
    # some network file systems lock only what can be written
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _lock(descriptor, wait=False)
        yield
    finally:
        os.close(descriptor)


def remove_half_written(folder: Path) -> None:
    """Remove the temporary files and folders of killed runs, which no process holds."""
    for path in folder.iterdir():
        if TEMPORARY.fullmatch(path.name):
            with contextlib.suppress(OSError), _locked(path):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


_remove_once = functools.cache(remove_half_written)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[HashedFile]:
    """Yield a file. It is renamed to `path` when the block succeeds, and removed when the block
    fails."""
    make_folder(path.parent)
    with disk_errors(path):
        with temporary_file(path) as (temporary, file):
            yield HashedFile(file)
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()
            temporary.replace(path)
        flush_folder(path.parent)


def write_atomically(path: Path, content: bytes) -> HashedFile:
    """Write `content` to `path`. Return the file with its size and sha256."""
    with atomic_file(path) as file:
        file.write(content)
    return file


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write several files, or none if the disk is too full for one of them."""
    with contextlib.ExitStack() as opened:
        for path, content in files.items():
            file = opened.enter_context(atomic_file(path))
            file.write(content)
            file.flush()


def remove_durably(path: Path) -> bool:
    """Remove a file so that it stays removed after a crash. Return False if the file does not
    exist."""
    with disk_errors(path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        flush_folder(path.parent)
    return True


def replace_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write these files (path below the folder → content) in this order; first remove those of
    earlier runs.

    Nothing is removed but what a run has recorded, unless it has changed since.
    """
    lines = {f"{hashlib.sha256(content).hexdigest()} {path}" for path, content in files.items()}
    before = set[str]()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        before.update(read_inside(folder, WRITTEN).decode().splitlines())
    # If this run is killed, the next one removes what either has written.
    write_atomically(folder / WRITTEN, "\n".join(sorted(before | lines)).encode())
    for digest, _, path in (line.partition(" ") for line in before):
        if path not in files and not is_outside(path):
            with contextlib.suppress(OSError):
                if hashlib.sha256(read_inside(folder, path)).hexdigest() == digest:
                    remove_durably(folder / path)
                    (folder / path).parent.rmdir()  # fails unless it was the last file there
    for path, content in files.items():
        write_atomically(folder / path, content)
    write_atomically(folder / WRITTEN, "\n".join(sorted(lines)).encode())


def remove_stale(folder: Path, names: Sequence[str]) -> None:
    """Remove files that an earlier run wrote and this run does not write, in the given order: first
    the file that claims a complete dataset.
    """
    for name in names:
        with disk_errors(folder / name):
            (folder / name).unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a renamed or removed file in it stays so after a
    crash."""
    if os.name == "nt":
        return  # Windows cannot open a folder, so the rename alone must suffice
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder. The rename alone must suffice there too.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
