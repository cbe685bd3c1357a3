"""Seal folders of a dataset that hold measurements of its images: `evaluation/` (results) and
`review/` (people's answers).

One document of the folder names the content that was measured, lists the other files with their
sha256, and ends with its own hash. If anything differs, for example after another cut or a killed
write, the folder is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import document_bytes, parse_json, sha256_json
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import disk_errors, flush_folder, remove_durably, write_atomically
from counterfoil.store.inside import MOST_DOCUMENT, is_outside
from counterfoil.store.layout import EVALUATION, MANIFEST, REVIEW
from counterfoil.store.manifest import hash_files

if TYPE_CHECKING:
    from counterfoil.report.results import Results


@dataclass(frozen=True, slots=True)
class SealedFolder:
    """A folder at the top of a dataset, and the document in this folder that seals it. Files that
    the document does not list are removed.

    version: the version of the document's form. Raise it with every change, so that readers ignore
    older folders.
    """

    name: str
    document: str
    version: int = 1

    @property
    def path(self) -> str:
        return f"{self.name}/{self.document}"

    def files(self, document: Mapping[str, Any], others: Mapping[str, bytes]) -> dict[str, bytes]:
        """Seal a document and the files beside it. Return path below the folder → content."""
        hashes = {path: hashlib.sha256(content).hexdigest() for path, content in others.items()}
        return {self.document: sealed(document, hashes, self.version), **others}

    def read(
        self,
        directory: Path,
        content: str,
        *,
        earlier: bool = False,
    ) -> dict[str, Any] | None:
        """Read the document if the folder is intact and belongs to this content; otherwise return
        None.

        earlier: accept an earlier version of the document too.
        """
        folder = directory / self.name
        try:
            document = parse_json(read_regular(folder / self.document, MOST_DOCUMENT))
            seal = document.pop("sha256")
            files = document["files"]
            version = document["version"]
            is_earlier = type(version) is int and 0 < version < self.version
            known = version == self.version or (earlier and is_earlier)
            intact = seal == sha256_json(document) and known and document["content"] == content
            if not intact or _files(folder) != sorted([*files, self.document]):
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if any(entry.sha256 != files[entry.path] for entry in hash_files(folder, sorted(files))):
            return None
        return document

    def write(self, directory: Path, files: Mapping[str, bytes]) -> None:
        """Remove the manifest, then replace the folder's files by `files` (path below the folder →
        content). The caller must hold the lock.
        """
        remove_durably(directory / MANIFEST)
        folder = directory / self.name
        for stale in _files(folder):
            if stale not in files:
                remove_durably(folder / stale)
        # The document is written before its tables. If the run is killed, a seal may then be
        # invalid, but no table lacks a seal.
        for path in sorted(files, key=lambda path: path != self.document):
            if is_outside(path):
                raise ValueError(f"{path!r} is not a path below {self.name}/")
            write_atomically(folder / path, files[path])
        with disk_errors(folder):
            for path, _, _ in os.walk(folder, topdown=False):
                if not any(Path(path).iterdir()):
                    Path(path).rmdir()
                    flush_folder(Path(path).parent)

    def drop(self, directory: Path) -> None:
        """Remove the folder and the manifest that lists it. The caller must hold the directory
        lock."""
        if (directory / self.name).is_dir():
            self.write(directory, {})


EVALUATED = SealedFolder(EVALUATION, "results.json", version=4)  # as `VERSION` of report/results.py
REVIEWED = SealedFolder(REVIEW, "selection.json")
SEALED_FOLDERS = (EVALUATED, REVIEWED)


def sealed(document: Mapping[str, Any], files: Mapping[str, str], version: int) -> bytes:
    """Return a document with its seal. `files` are the other files of its folder: path → sha256."""
    whole = {**document, "version": version, "files": dict(files)}
    return document_bytes({**whole, "sha256": sha256_json(whole)})


def _files(folder: Path) -> list[str]:
    files = []
    for parent, _, names in os.walk(folder):
        files += [(Path(parent) / name).relative_to(folder).as_posix() for name in names]
    return sorted(files)


RESULTS = EVALUATED.document


def read_results(directory: Path, content: str) -> Results | None:
    """Read a dataset's results if they are intact and belong to this content. Raise UserError for
    an earlier or unknown form.
    """
    from counterfoil.report.results import results_from

    document = EVALUATED.read(directory, content, earlier=True)
    if document is None:
        return None
    del document["files"]
    return results_from(json.dumps(document), EVALUATED.path)
