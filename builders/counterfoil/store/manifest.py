"""manifest.json: path, size and sha256 of every published file, and its own hash. Written last of all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil.recipe import sha256_json
from counterfoil.regular_files import open_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.documents import document_bytes, parse_document
from counterfoil.store.inside import is_outside, list_files, read_inside, refuse_unfit
from counterfoil.store.layout import MANIFEST

VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One published file; `path` is relative to the dataset directory."""

    path: str
    size: int
    sha256: str


def published_paths(directory: Path) -> list[str]:
    """Every file that is published beside the manifest, sorted.

    Hidden entries at the top are not: `.counterfoil/`, and what the Hub and its client leave
    (`.gitattributes`, `.cache/`); nor is `index.html`. RunFailure for links and special files, which are never
    published.
    """
    refuse_unfit(directory)
    return [path for path in list_files(directory).files if path != MANIFEST]


def hash_files(directory: Path, paths: Sequence[str]) -> list[Entry]:
    """Size and sha256 of files, read in parallel, in the order given."""

    def entry(path: str) -> Entry:
        with open_regular(directory / path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Entry(path, file.tell(), digest)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(entry, paths))


def manifest_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """The manifest of these files; its hash is over the canonical JSON of the listing."""
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    return {"version": VERSION, "files": files, "sha256": sha256_json(files)}


def manifest_entries(content: bytes) -> dict[str, Entry] | None:
    """Path → file that a manifest lists; None when it is not of the form that is written."""
    try:
        files: list[dict[str, Any]] = parse_document(content)["files"]
        entries = [Entry(**file) for file in files]
    except (ValueError, KeyError, TypeError):
        return None
    if not all(isinstance(e.path, str) and isinstance(e.sha256, str) and type(e.size) is int for e in entries):
        return None
    if any(is_outside(entry.path) for entry in entries):
        return None
    return {entry.path: entry for entry in entries}


def gives_its_own_hash(entries: Mapping[str, Entry], content: bytes) -> bool:
    """Whether a manifest's content is what is written of these entries."""
    try:
        return document_bytes(manifest_document(list(entries.values()))) == content
    except ValueError:  # half a character, which JSON can spell and UTF-8 cannot
        return False


def read_manifest(directory: Path) -> dict[str, Entry] | None:
    """Path → file of a directory's manifest; None where there is none, or one that does not give its own hash."""
    path = directory / MANIFEST
    if not path.is_file():
        return None
    try:
        content = read_inside(directory, MANIFEST)
    except OSError:
        return None
    entries = manifest_entries(content)
    return entries if entries is not None and gives_its_own_hash(entries, content) else None


def write_manifest(directory: Path, known: Mapping[str, Entry]) -> str:
    """Write the manifest and return its hash. `known` are files hashed already, when they were written."""
    paths = published_paths(directory)
    fresh = hash_files(directory, [path for path in paths if path not in known])
    entries = [*fresh, *(known[path] for path in paths if path in known)]
    document = manifest_document(entries)
    write_atomically(directory / MANIFEST, document_bytes(document))
    return document["sha256"]
