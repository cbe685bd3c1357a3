"""Write a file whole or not at all: write a temporary file beside the target, flush it to disk, then rename it.

A crash may leave a file `*.tmp`. The next process that holds the directory lock removes such files. Their names contain
the process id, because a worker may outlive its killed parent.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from counterfoil.errors import RunFailure, UserError
from counterfoil.store.inside import refuse_written_inside
from counterfoil.store.layout import TEMPORARY_SUFFIX

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class HashedFile:
    """A binary file that is open for writing once, from start to end. It counts and hashes what is written."""

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
        """Do nothing. Writers close the file that they are given, but `atomic_file` must first flush it to disk."""

    @property
    def closed(self) -> bool:
        return self._file.closed

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn disk errors into messages: UserError for a forbidden path, RunFailure for a full disk and all other
    errors.
    """
    try:
        yield
    except OSError as error:
        problem = f"cannot write {path}: {os.strerror(error.errno) if error.errno else error}"
        if error.errno in _FORBIDDEN:
            hint = "Choose a folder that you may write to, or change the permissions of this one."
            raise UserError(problem, hint) from error
        remedy = "Make room" if error.errno in _FULL else "Check the disk and the path,"
        raise RunFailure(problem, f"{remedy} and run the same command again: finished shards are kept.") from error


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and flush to disk the directory entries that name them."""
    with disk_errors(folder):
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for created in reversed(missing):
            created.mkdir(exist_ok=True)
            flush_folder(created.parent)


def try_folder(folder: Path, *, of_dataset: bool = False) -> None:
    """Check that a folder, which need not exist, can be written, and that no built dataset has it among its files.

    of_dataset: the folder is a dataset's own directory. Raise RunFailure if the disk is full, otherwise UserError.
    """
    missing = []
    parent = folder
    try:
        refuse_written_inside(folder.parent if of_dataset else folder)
        if folder.is_file():
            raise UserError(f"{folder} is a file, expected a folder", "Name another folder.")
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        try:
            for created in reversed(missing):
                created.mkdir()
            # The file has the suffix of temporary files, so that it is recognised and removed if this process is
            # killed.
            suffix = f".{os.getpid()}{TEMPORARY_SUFFIX}"
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".try.", suffix=suffix):
                pass
        finally:
            for created in missing:
                with contextlib.suppress(OSError):
                    created.rmdir()
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            raise RunFailure(f"cannot write in {folder}: {reason}", "Make room, and run it again.") from error
        raise UserError(f"cannot write in {folder}: {reason}", "Choose a folder that you may write to.") from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[HashedFile]:
    """Yield a file. It is renamed to `path` when the block succeeds, and removed when the block fails."""
    make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with disk_errors(path):
        try:
            with temporary.open("wb", buffering=1 << 20) as file:
                yield HashedFile(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        flush_folder(path.parent)


def write_atomically(path: Path, content: bytes) -> HashedFile:
    """Write `content` to `path`. Return the file with its size and sha256."""
    with atomic_file(path) as file:
        file.write(content)
    return file


def remove_durably(path: Path) -> bool:
    """Remove a file so that it stays removed after a crash. Return False if the file does not exist."""
    with disk_errors(path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        flush_folder(path.parent)
    return True


def remove_half_written(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that killed runs left of these files. No other process may write them."""
    for name in names:
        for half_written in folder.glob(f"{glob.escape(name)}.*{TEMPORARY_SUFFIX}"):
            remove_durably(half_written)


def remove_stale(folder: Path, names: Sequence[str]) -> None:
    """Remove files that an earlier run wrote and this run does not write, in the given order: first the file that
    claims a complete dataset.
    """
    for name in names:
        with disk_errors(folder / name):
            (folder / name).unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a renamed or removed file in it stays so after a crash."""
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
