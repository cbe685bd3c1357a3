"""The folder `evaluation/` of a dataset: what was measured on its images, sealed together with them.

`results.json` names the content of the data that it was measured on, lists the other files of the folder with their
sha256, and ends with its own hash. So results hold only where data, tables and numbers are those that belong
together; whatever else lies there, after another cut or a write that was killed, is as good as nothing.
The folder is Counterfoil's own: a file in it that the results do not list is removed with the next ones.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterfoil.recipe import sha256_json
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import flush_folder, remove_durably, told_to_people, write_atomically
from counterfoil.store.documents import document_bytes, parse_document
from counterfoil.store.inside import MOST_DOCUMENT, is_outside
from counterfoil.store.layout import EVALUATION, MANIFEST
from counterfoil.store.manifest import hash_files

RESULTS = "results.json"
VERSION = 1


def sealed(document: Mapping[str, Any], files: Mapping[str, str]) -> bytes:
    """results.json with this content; `files` are the other files of the folder, by path → sha256."""
    whole = {**document, "version": VERSION, "files": dict(files)}
    return document_bytes({**whole, "sha256": sha256_json(whole)})


def read_results(directory: Path, content: str) -> dict[str, Any] | None:
    """The results in a dataset directory, where they are whole and of data with this content; else None."""
    folder = directory / EVALUATION
    try:
        document = parse_document(read_regular(folder / RESULTS, MOST_DOCUMENT))
        seal = document.pop("sha256")
        files = document["files"]
        intact = seal == sha256_json(document) and (document["version"], document["content"]) == (VERSION, content)
        if not intact or _files(folder) != sorted([*files, RESULTS]):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if any(entry.sha256 != files[entry.path] for entry in hash_files(folder, sorted(files))):
        return None
    return document


def write_results(directory: Path, files: Mapping[str, bytes]) -> None:
    """Make these the files of the folder, by path below it. For the holder of the directory lock.

    The manifest goes first: until the dataset is closed again, it is not finished.
    """
    remove_durably(directory / MANIFEST)
    folder = directory / EVALUATION
    for stale in _files(folder):
        if stale not in files:
            remove_durably(folder / stale)
    # The results before their tables, so that a kill leaves results that do not hold, never tables without any.
    for path in sorted(files, key=lambda path: path != RESULTS):
        if is_outside(path):
            raise ValueError(f"{path!r} is not a path below {EVALUATION}/")
        write_atomically(folder / path, files[path])
    _remove_empty(folder)


def drop_results(directory: Path) -> None:
    """Remove the folder, and the manifest that lists it. For the holder of the directory lock."""
    folder = directory / EVALUATION
    if folder.is_dir():
        write_results(directory, {})


def _files(folder: Path) -> list[str]:
    found = []
    for place, _, names in os.walk(folder):
        found += [(Path(place) / name).relative_to(folder).as_posix() for name in names]
    return sorted(found)


def _remove_empty(folder: Path) -> None:
    with told_to_people(folder):
        for place, _, _ in os.walk(folder, topdown=False):
            if not any(Path(place).iterdir()):
                Path(place).rmdir()
                flush_folder(Path(place).parent)
