"""Files as tests write, damage and compare them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def write(file: Path, content: str | bytes) -> Path:
    """Write a file with this content, and its missing folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def write_all(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        write(folder / name, content)
    return folder


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON document, in place; of a file that is not there, an empty one."""
    document = json.loads(file.read_text()) if file.exists() else {}
    change(document)
    file.write_text(json.dumps(document))


def flip(file: Path) -> None:
    """Change one bit in the middle of a file, in its place."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    with file.open("r+b") as stream:
        stream.write(content)


def flipped(content: bytes, position: int, bit: int) -> bytes:
    """Return the content with one bit changed."""
    return content[:position] + bytes([content[position] ^ (1 << bit)]) + content[position + 1 :]


def published(directory: Path) -> dict[str, bytes]:
    """Return every file that is compared between two builds: all but `.counterfoil/` and the page
    that leads to all."""
    files = {path.relative_to(directory): path for path in directory.rglob("*") if path.is_file()}
    compared = {
        name: path
        for name, path in files.items()
        if name.parts[0] not in (".counterfoil", "index.html")
    }
    return {name.as_posix(): path.read_bytes() for name, path in compared.items()}


def copy_of(directory: Path, target: Path) -> Path:
    """Return a copy of a dataset without its lock, which another process may hold."""
    return Path(
        shutil.copytree(directory, target, ignore=shutil.ignore_patterns("lock", "lock.pid"))
    )


# Code of a model's author, for a path and a class of transformers: it writes a file as soon as it
# is imported.
AUTHORS_CODE = "from pathlib import Path\nPath({!r}).touch()\nfrom transformers import {} as Evil\n"


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))
