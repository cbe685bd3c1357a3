"""Write and check manifest.json, which lists path, size and sha256 of every published file, and the
manifest's own hash.

`content` is the hash of all accepted images and their columns. Measurements are valid for one
content, whatever the dataset's name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, FailFast

from counterfoil.documents import (
    Count,
    Form,
    Strict,
    document_bytes,
    sha256_json,
)
from counterfoil.errors import ProblemLine, RunFailure, UserError
from counterfoil.progress import track
from counterfoil.regular_files import on_a_line, open_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import is_outside, list_files, parse_own, read_inside, refuse_unfit
from counterfoil.store.layout import MANIFEST
from counterfoil.store.messages import message, refusal
from counterfoil.store.receipts import Receipt, StoredFile

VERSION = 1
VERIFY = "`counterfoil verify` names what is damaged and how to repair it."
_MOST_SHOWN = 10
_MOST_FILES = 200_000  # twice the Hub's limit


def _is_inside(path: str) -> str:
    if is_outside(path):
        raise ValueError("expected a path inside the dataset")
    return path


@dataclass(frozen=True, slots=True)
class Entry(Strict):
    """One published file; `path` is relative to the dataset directory."""

    path: Annotated[str, AfterValidator(_is_inside)]
    size: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest(Strict):
    FORM: ClassVar[Form] = Form(
        "the manifest that Counterfoil writes",
        VERIFY,
        VERSION,
        longest=_MOST_FILES,
    )
    version: Literal[1]
    files: Annotated[tuple[Entry, ...], FailFast()]
    sha256: str


def published_paths(directory: Path) -> list[str]:
    """List every published file except the manifest, sorted. Raise RunFailure for links and special
    files.

    Hidden entries at the top (`.counterfoil/`, the Hub's `.gitattributes` and `.cache/`) and
    `index.html` are not published.
    """
    refuse_unfit(directory)
    return [path for path in list_files(directory).files if path != MANIFEST]


def hash_files(directory: Path, paths: Sequence[str]) -> list[Entry]:
    """Return size and sha256 of files, in the given order. The files are read in parallel."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda path: _hashed(directory, path), paths))


def _hashed(directory: Path, path: str, expected: int | None = None) -> Entry:
    """Hash a file. If its size is not the expected size, return an empty sha256 without reading the
    file."""
    with open_regular(directory / path) as file:
        size = os.fstat(file.fileno()).st_size
        if expected not in (None, size):
            return Entry(path, size, "")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Entry(path, file.tell(), digest)


def manifest_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """Build a manifest. Its hash covers the canonical JSON of its list of files."""
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    return {"version": VERSION, "files": files, "sha256": sha256_json(files)}


def parse_manifest(content: bytes, where: str) -> dict[str, Entry]:
    """Parse a manifest into path → file. Raise UserError with every problem, and if the bytes
    differ from the bytes that Counterfoil would write.
    """
    listed = {entry.path: entry for entry in parse_own(Manifest, content, where).files}
    if document_bytes(manifest_document(list(listed.values()))) != content:
        raise refusal("changed-file.manifest", where)
    return listed


def read_manifest(directory: Path) -> dict[str, Entry] | None:
    """Read a directory's manifest as path → file. Return None if the manifest is missing or
    damaged."""
    try:
        return parse_manifest(read_inside(directory, MANIFEST), MANIFEST)
    except (OSError, UserError):
        return None


def write_manifest(directory: Path, known: Mapping[str, Entry]) -> str:
    paths = published_paths(directory)
    fresh = hash_files(directory, [path for path in paths if path not in known])
    entries = [*fresh, *(known[path] for path in paths if path in known)]
    document = manifest_document(entries)
    write_atomically(directory / MANIFEST, document_bytes(document))
    return document["sha256"]


def content_of_receipts(receipts: Iterable[Receipt]) -> str:
    """Hash the content from the receipts, without reading data files."""
    files = filter(None, (receipt.file("data") for receipt in receipts))
    hashes = sorted((file.path.removeprefix("data/"), file.sha256) for file in files)
    digest = hashlib.sha256()
    for path, sha256 in hashes:
        digest.update(f"{path}\0{sha256}\n".encode())
    return digest.hexdigest()


def file_faults(
    directory: Path,
    files: Sequence[StoredFile],
    openable: Collection[str] | None = None,
) -> Iterator[tuple[StoredFile, bool]]:
    """Yield each file that differs from its receipt, and whether the file exists. Only `openable`
    paths are read."""
    if openable is None:
        openable = {file.path for file in files if (directory / file.path).is_file()}
    present = [file for file in files if file.path in openable]
    # A file of another size is not read, however large it is.
    sized = [file for file in present if (directory / file.path).stat().st_size == file.size]
    hashed = hash_files(directory, [file.path for file in sized])
    hashes = {entry.path: entry.sha256 for entry in hashed}
    for file in files:
        if hashes.get(file.path) != file.sha256:
            yield file, file in present


def changed_files(
    directory: Path,
    files: Sequence[StoredFile],
    openable: Collection[str] | None = None,
) -> list[ProblemLine]:
    """Hash files of receipts. Return a problem for each file that is missing or differs."""
    problems = []
    for file, exists in file_faults(directory, files, openable):
        name = "changed-file.receipt" if exists else "missing-file"
        problems.append(message(name, directory / file.path))
    return problems


def changed_data(directory: Path, receipts: Iterable[Receipt]) -> list[ProblemLine]:
    """Return a problem for each data file that is missing or differs, and for each data file that is
    in no receipt."""
    listed = list(filter(None, (receipt.file("data") for receipt in receipts)))
    present = [path for path in list_files(directory).files if path.startswith("data/")]
    strays = dict.fromkeys(present).keys() - {file.path for file in listed}
    problems = changed_files(directory, listed, set(present))
    for path in sorted(strays):
        problems.append(message("unexpected-file", directory / path))
    return problems


def refuse_changed(changed: Sequence[ProblemLine], hint: str = VERIFY) -> None:
    """Raise RunFailure with the first of `changed`, if there are any."""
    if changed:
        raise RunFailure(changed[:_MOST_SHOWN], hint)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The published files of a directory, compared with the manifest."""

    problems: Sequence[tuple[str, ProblemLine]]
    """Path → what is wrong, without the path."""
    entries: Mapping[str, Entry]
    """The files that could be read."""
    listed: Mapping[str, Entry] | None
    """The files that the manifest lists, or None without a sound manifest."""


def verify_files(directory: Path) -> list[str]:
    """Return a line for each file that is missing, changed or unexpected. The list is empty for a
    complete dataset."""
    lines: list[str] = []
    for path, problem in check_files(directory).problems:
        shown = on_a_line(path)
        lines.append(problem.only_at(shown))
    return lines


def check_files(directory: Path) -> FileCheck:
    """Hash every published file once and compare the hash with the manifest. Progress is
    reported."""
    problems: list[tuple[str, ProblemLine]] = []
    listing = list_files(directory)
    everywhere = list_files(directory, hidden=True).unfit
    for path, what in sorted(everywhere.items()):
        problems.append((path, message("irregular-file", None, what)))
    listed: dict[str, Entry] | None = None
    if not os.path.lexists(directory / MANIFEST):
        problems.append((MANIFEST, message("not-finished.manifest")))
    elif MANIFEST not in everywhere:
        try:
            listed = parse_manifest(read_inside(directory, MANIFEST), MANIFEST)
        except OSError as error:
            problems.append((MANIFEST, message("damaged-file", None, error)))
        except UserError as error:
            problems.append((MANIFEST, error.problems[0]))
    present = [path for path in listing.files if path != MANIFEST]
    entries = {}
    sizes = {path: entry.size for path, entry in (listed or {}).items()}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        hashing = [pool.submit(_hashed, directory, path, sizes.get(path)) for path in present]
        hashed_files = zip(present, hashing, strict=True)
        for path, hashed in track(hashed_files, "checking files", len(present)):
            try:
                entries[path] = hashed.result()
            except OSError as error:
                problems.append((path, message("damaged-file", None, error)))
    if listed is not None:
        existing = {*present, *listing.unfit}
        for path in listed:
            if path not in existing:
                problems.append((path, message("missing-file")))
        for path in present:
            if path not in listed:
                problems.append((path, message("unexpected-file.manifest")))
            elif path in entries:
                problem = file_difference(entries[path], listed[path])
                if problem is not None:
                    problems.append((path, problem))
    return FileCheck(problems, entries, listed)


def file_difference(
    entry: Entry,
    expected: Entry | StoredFile,
    by: str = "",
) -> ProblemLine | None:
    """Describe how a file differs from its expected size and sha256. Return None if both are as
    expected. by: who expects them, for the end of the line."""
    if entry.size != expected.size:
        return message(
            "changed-file.size",
            None,
            entry.size,
            expected.size,
            by=by,
        )
    if entry.sha256 != expected.sha256:
        return message(
            "changed-file.sha256",
            None,
            entry.sha256,
            expected.sha256,
            by=by,
        )
    return None
