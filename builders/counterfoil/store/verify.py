"""Whether a dataset directory is whole: each published file against the manifest, and that against itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from counterfoil.progress import track
from counterfoil.regular_files import open_regular
from counterfoil.store.inside import list_files, read_inside
from counterfoil.store.layout import MANIFEST
from counterfoil.store.manifest import Entry, gives_its_own_hash, manifest_entries


@dataclass(frozen=True, slots=True)
class FileProblem:
    """What is wrong with one file; `what` reads on from its path: "is missing"."""

    path: str
    fault: Literal["missing", "changed", "unexpected", "unreadable", "unfit"]
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


@dataclass(frozen=True, slots=True)
class FileCheck:
    """Every file that could be read, as it is; what the manifest lists; and where the two differ.

    `listed` is None where there is no manifest, or one that is damaged: then no other file was compared with it.
    """

    problems: tuple[FileProblem, ...]
    found: Mapping[str, Entry]
    listed: Mapping[str, Entry] | None


def verify_files(directory: Path | str) -> list[str]:
    """One line for each file that is missing, changed or unexpected; empty when the dataset is whole."""
    return [str(problem) for problem in check_files(directory).problems]


def check_files(directory: Path | str) -> FileCheck:
    """Read and hash every published file once, and compare it with the manifest; reports each file."""
    directory = Path(directory)
    problems: list[FileProblem] = []
    listing = list_files(directory)
    everywhere = list_files(directory, hidden=True).unfit
    problems += [FileProblem(path, "unfit", what) for path, what in sorted(everywhere.items())]
    listed = None if MANIFEST in everywhere else _listed(directory, problems)
    present = [path for path in listing.files if path != MANIFEST]
    found: dict[str, Entry] = {}
    sizes = {path: entry.size for path, entry in (listed or {}).items()}
    for path, entry in track(_read(directory, present, sizes), "files", len(present)):
        if isinstance(entry, Entry):
            found[path] = entry
        else:
            problems.append(FileProblem(path, "unreadable", f"cannot be read: {entry}"))
    if listed is not None:
        problems += _differences(listed, present, found, listing.unfit)
    return FileCheck(tuple(problems), found, listed)


def _listed(directory: Path, problems: list[FileProblem]) -> dict[str, Entry] | None:
    path = directory / MANIFEST
    if not path.exists():
        problems.append(FileProblem(MANIFEST, "missing", "is missing: the dataset was not finished, or this is none"))
        return None
    try:
        content = read_inside(directory, MANIFEST)
    except OSError as error:
        problems.append(FileProblem(MANIFEST, "unreadable", f"cannot be read: {error.strerror}"))
        return None
    listed = manifest_entries(content)
    if listed is None:
        problems.append(FileProblem(MANIFEST, "changed", "is damaged: it is not the manifest that Counterfoil writes"))
        return None
    if not gives_its_own_hash(listed, content):
        # Which of its entries is wrong cannot be told, so it proves nothing about any file.
        problems.append(FileProblem(MANIFEST, "changed", "is changed: its listing does not give its own hash"))
        return None
    return listed


def _read(directory: Path, paths: Sequence[str], sizes: Mapping[str, int]) -> Iterator[tuple[str, Entry | str]]:
    """Size and sha256 of each file, or why it cannot be read; in order, read in parallel.

    A file of another size than is known of it is another one, however long hashing it would take: its sha256 is empty.
    """

    def entry(path: str) -> Entry | str:
        try:
            with open_regular(directory / path) as file:
                size = os.fstat(file.fileno()).st_size
                if sizes.get(path, size) != size:
                    return Entry(path, size, "")
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return Entry(path, file.tell(), digest)
        except OSError as error:
            return error.strerror or str(error)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        yield from zip(paths, pool.map(entry, paths), strict=True)


def _differences(
    listed: Mapping[str, Entry], present: Sequence[str], found: Mapping[str, Entry], unfit: Mapping[str, str]
) -> Iterator[FileProblem]:
    there = {*present, *unfit}
    for path in listed:
        if path not in there:
            yield FileProblem(path, "missing", "is missing")
    for path in present:
        if path not in listed:
            yield FileProblem(path, "unexpected", "is unexpected: the manifest does not list it")
        elif path in found and (what := difference(found[path], listed[path].size, listed[path].sha256)):
            yield FileProblem(path, "changed", what)


def difference(found: Entry, size: int, sha256: str) -> str | None:
    """How a file differs from what it should be; None where it does not."""
    if found.size != size:
        return f"is changed: {found.size} bytes, expected {size}"
    if found.sha256 != sha256:
        return f"is changed: sha256 {found.sha256[:12]}…, expected {sha256[:12]}…"
    return None
