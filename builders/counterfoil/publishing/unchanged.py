"""A verified file as it is read again to be sent: what differs from what was hashed never leaves this machine whole.

The Hub's client reads files when it sends them, which may be hours after they were verified. Here every byte is hashed
as it is handed out, and the last piece is held back until the whole is known to be what was verified.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure
from counterfoil.regular_files import irregularity

if TYPE_CHECKING:
    from counterfoil.publishing.files import LocalFile

# What opening says of a name that no longer stands for a file of the dataset.
_NO_FILE = {
    errno.ENOENT: "it is gone",
    errno.ELOOP: "it is a link, expected a regular file",
    errno.ENOTDIR: "it lies under a link, or under no folder",
    errno.ENXIO: "it is a socket or a pipe, expected a regular file",
}


def changed(directory: Path, differences: Mapping[str, str]) -> RunFailure:
    """The failure of a publication whose files changed on the way: path → what is another ("it is gone")."""
    return RunFailure(
        [f"{path} changed on this machine while it was being published: {what}" for path, what in differences.items()],
        f"What readers find there is as it was. End what writes to {directory}, run `counterfoil verify"
        f" {shlex.quote(str(directory))}`, and publish again when it is whole.",
    )


def open_below(directory: Path, path: str) -> int:
    """The descriptor of a regular file below a directory, reached through no link below it; nothing is waited for.

    RunFailure where there is no such file, or it cannot be read.
    """
    *folders, name = PurePosixPath(path).parts
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # named by a person: it may be a link
        try:
            for folder in folders:
                below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=place)
                os.close(place)
                place = below
            descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=place)
        finally:
            os.close(place)
    except OSError as error:
        what = _NO_FILE.get(error.errno or 0)
        raise changed(directory, {path: what}) if what else unreadable(path, error) from error
    irregular = irregularity(os.fstat(descriptor).st_mode)
    if irregular is not None:
        os.close(descriptor)
        raise changed(directory, {path: f"it {irregular}, expected a regular file"})
    return descriptor


def unreadable(path: str, error: OSError) -> RunFailure:
    return RunFailure(
        f"{path} cannot be read: {error.strerror or error}",
        "Check the disk and whether you may read it, and run the same command again.",
    )


def refuse_changed(file: LocalFile) -> None:
    """RunFailure where a file is no longer there, no regular one, or of another size; its content is not read."""
    with UnchangedReader(file):
        pass


class UnchangedReader(io.BufferedIOBase):
    """A file to read in order, from its beginning or from where reading began before: RunFailure if it changed.

    It is told at the latest by the read that would hand out the last byte, which is then not handed out. Seeking serves
    the Hub's client, which sends in parts, and a part or the whole again where a connection broke.
    """

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._position = 0
        # How far the content is hashed, by what, and the same for every place that reading may go back to.
        self._hashed, self._digest = 0, hashlib.sha256()
        self._places = {0: self._digest.copy()}
        self._descriptor = -1  # closing asks for it, should opening fail
        self._descriptor = open_below(file.directory, file.path)
        size = os.fstat(self._descriptor).st_size
        if size != file.size:
            self.close()
            raise self._changed(f"it has {size} bytes, and had {file.size}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = max(0, start + offset)
        if self._position == self._hashed:
            self._places.setdefault(self._hashed, self._digest.copy())
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._file.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if wanted or not self._file.size:
            return self._read(wanted)
        return b""

    def _read(self, wanted: int) -> bytes:
        if self._position != self._hashed:
            place = self._places.get(self._position)
            if place is None:
                raise RunFailure(
                    f"{self._file.path}: the Hub's client reads it out of order, so it cannot be checked as it goes",
                    "Install a version of huggingface_hub that this version of counterfoil knows.",
                )
            self._hashed, self._digest = self._position, place.copy()
        content = self._content(wanted)
        if len(content) < wanted:
            raise self._changed(f"it ends after {self._position + len(content)} bytes, and had {self._file.size}")
        self._digest.update(content)
        self._hashed = self._position = self._position + len(content)
        if self._position == self._file.size:
            if self._digest.hexdigest() != self._file.sha256:
                raise self._changed("its sha256 is another")
            if os.fstat(self._descriptor).st_size != self._file.size:
                raise self._changed("its size is another")
        return content

    def _content(self, wanted: int) -> bytes:
        """What the file has at the position, less than wanted only at its end."""
        pieces: list[bytes] = []
        at, end = self._position, self._position + wanted
        while at < end:
            try:
                piece = os.pread(self._descriptor, end - at, at)
            except OSError as error:
                raise unreadable(self._file.path, error) from error
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()

    def _changed(self, what: str) -> RunFailure:
        return changed(self._file.directory, {self._file.path: what})


def whole_content(file: LocalFile) -> bytes:
    """The whole file. RunFailure where it is another one by now."""
    with UnchangedReader(file) as reader:
        return reader.read()
