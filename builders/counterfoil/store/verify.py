"""Whether a dataset directory is whole: each published file against the manifest, and that against itself."""

from __future__ import annotations

from pathlib import Path

from counterfoil.store.documents import document_bytes
from counterfoil.store.layout import MANIFEST
from counterfoil.store.manifest import hash_files, manifest_document, manifest_entries, published_paths


def verify_files(directory: Path | str) -> list[str]:
    """One line for each file that is missing, changed or unexpected; empty when the dataset is whole."""
    directory = Path(directory)
    path = directory / MANIFEST
    if not path.is_file():
        return [f"{MANIFEST} is missing: the dataset was not finished, or this is none"]
    content = path.read_bytes()
    listed = manifest_entries(content)
    if listed is None:
        return [f"{MANIFEST} is damaged: it is not the manifest that Counterfoil writes"]
    problems = []
    if document_bytes(manifest_document(list(listed.values()))) != content:
        problems.append(f"{MANIFEST} is changed: its listing does not give its own hash")
    present = published_paths(directory)
    problems += [f"{name} is missing" for name in listed if name not in set(present)]
    problems += [f"{name} is unexpected: the manifest does not list it" for name in present if name not in listed]
    for found in hash_files(directory, [name for name in present if name in listed]):
        expected = listed[found.path]
        if found.size != expected.size:
            problems.append(f"{found.path} is changed: {found.size} bytes, expected {expected.size}")
        elif found.sha256 != expected.sha256:
            problems.append(f"{found.path} is changed: sha256 {found.sha256[:12]}…, expected {expected.sha256[:12]}…")
    return problems
