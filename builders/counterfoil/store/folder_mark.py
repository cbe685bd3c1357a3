"""Whether a folder is the same one where a worker runs: a build leaves a mark in it, and its workers look for that.

A path alone says nothing: another machine may have a folder of that name, even with an older build of the same dataset.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.store.atomic import write_atomically
from counterfoil.store.layout import PRIVATE, TEMPORARY_SUFFIX

MARKS = f"{PRIVATE}/mark-*"  # their names, as a pattern, before what every temporary file ends with
_PATIENCE = 5.0  # seconds; a network file system may be a moment behind


@dataclass(frozen=True, slots=True)
class FolderMark:
    """A mark in `folder`: the file `name` there holds `word`, which nobody else has."""

    folder: Path
    name: str
    word: str

    def refuse_unseen(self) -> None:
        """UserError where the mark is not to be seen from this process: its folder is another one."""
        end = time.monotonic() + _PATIENCE
        while not self._seen():
            if time.monotonic() > end:
                raise UserError(
                    f"{self.folder} is not the same folder on {socket.gethostname()}, where a worker is to write in it",
                    "Name a folder that all machines share under one path, or add --collect: then what workers make"
                    " comes back and is written here.",
                )
            time.sleep(0.2)

    def _seen(self) -> bool:
        try:
            return (self.folder / self.name).read_text(encoding="ascii") == self.word
        except (OSError, ValueError):
            return False


@contextlib.contextmanager
def marked(folder: Path) -> Iterator[FolderMark]:
    """A mark in a folder for the block; what a killed run leaves of it is removed like its other temporary files."""
    word = secrets.token_hex(16)
    mark = FolderMark(folder, f"{PRIVATE}/mark-{word[:8]}.{os.getpid()}{TEMPORARY_SUFFIX}", word)
    write_atomically(folder / mark.name, word.encode())
    try:
        yield mark
    finally:
        with contextlib.suppress(OSError):
            (folder / mark.name).unlink()
