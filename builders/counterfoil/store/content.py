"""The content hash of a dataset: one number for all accepted images and their columns, whatever else lies beside them.

What was measured on a dataset holds for its content, not for its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from counterfoil.store.inside import list_files
from counterfoil.store.manifest import hash_files
from counterfoil.store.receipts import Receipt, StoredFile

_DATA = "data"


def content_of_receipts(receipts: Iterable[Receipt]) -> str:
    """The content as the receipts have it, without reading a data file."""
    files = (receipt.file("data") for receipt in receipts)
    return _content({file.path.removeprefix(f"{_DATA}/"): file.sha256 for file in files if file is not None})


def changed_data(directory: Path, receipts: Iterable[Receipt]) -> list[str]:
    """A line for each data file that is missing, not as its receipt says, or in no receipt; hashed here."""
    listed = {file.path: file for receipt in receipts if (file := receipt.file("data")) is not None}
    present = dict.fromkeys(path for path in list_files(directory).files if path.startswith(f"{_DATA}/"))
    sized = [path for path in present if path in listed and (directory / path).stat().st_size == listed[path].size]
    found = {entry.path: entry for entry in hash_files(directory, sized)}
    lines = [f"{path} is missing" for path in listed if path not in present]
    lines += [f"{path} is not as its receipt says" for path in present if path in listed and path not in found]
    lines += [f"{path} is in no receipt" for path in present if path not in listed]
    for path, entry in found.items():
        if entry.sha256 != listed[path].sha256:
            lines.append(f"{path} is not as its receipt says")
    return lines


def changed_files(directory: Path, files: Sequence[StoredFile]) -> list[str]:
    """A line for each of some files of receipts that is missing, or not as its receipt says; hashed here."""
    there = [file for file in files if (directory / file.path).is_file()]
    sized = [file for file in there if (directory / file.path).stat().st_size == file.size]
    sound = {
        entry.path
        for file, entry in zip(sized, hash_files(directory, [file.path for file in sized]), strict=True)
        if entry.sha256 == file.sha256
    }
    return [
        f"{file.path} is {'not as its receipt says' if file in there else 'missing'}"
        for file in files
        if file.path not in sound
    ]


def _content(hashes: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for path, sha256 in sorted(hashes.items()):
        digest.update(f"{path}\0{sha256}\n".encode())
    return digest.hexdigest()
