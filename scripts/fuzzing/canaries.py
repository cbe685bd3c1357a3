"""Files that no case may read: they lie beside its folder, and whoever opens one is seen, whatever
library does it.

Python's audit hook does not see what C++ and Rust open (Arrow, safetensors); the kernel's inotify
does.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from dataclasses import dataclass
from pathlib import Path

_IN_ACCESS = 0x1
_IN_OPEN = 0x20
_IN_NONBLOCK = 0o4000
_EVENT = struct.Struct("iIII")

# Content that could be used makes a reader go on, and shows in what it says.
_CONTENTS = {
    "secret.txt": "canary\n",
    "layer.yaml": "license: canary\n",
    "classes.yaml": "- {id: '00', name: canary, source_label: 0}\n",
    "picture.png": "canary\n",
    "model/config.json": '{"architecture": "lcnet_035"}',
    "tokens/00.safetensors": "canary\n",
}


@dataclass(frozen=True, slots=True)
class Canaries:
    """The folder of canaries. `file` is plain text, the others would be taken for what a recipe may
    name."""

    folder: Path

    def paths(self) -> list[Path]:
        return [self.folder / name for name in _CONTENTS]

    def plant(self) -> None:
        """Write them."""
        for path, content in zip(self.paths(), _CONTENTS.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


class Sentry:
    """Sees every opening of a canary, and every listing of their folders, by any process and any
    library."""

    def __init__(self, canaries: Canaries) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._events = library.inotify_init1(_IN_NONBLOCK)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be had")
        # A person has few of these, 128 by default.
        weakref.finalize(self, os.close, self._events)
        self._folders: dict[int, Path] = {}
        for folder in sorted({canaries.folder, *(path.parent for path in canaries.paths())}):
            watched = library.inotify_add_watch(
                self._events, os.fsencode(folder), _IN_OPEN | _IN_ACCESS
            )
            if watched < 0:
                raise OSError(ctypes.get_errno(), f"{folder} cannot be watched")
            self._folders[watched] = folder

    def seen(self) -> list[str]:
        """Return what was opened since the last look, each path once."""
        opened: dict[str, None] = {}
        while True:
            try:
                content = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return list(opened)
            position = 0
            while position < len(content):
                watched, _, _, length = _EVENT.unpack_from(content, position)
                begins = position + _EVENT.size
                position = begins + length
                name = os.fsdecode(content[begins:position].rstrip(b"\0"))
                opened[str(self._folders.get(watched, Path()) / name)] = None
