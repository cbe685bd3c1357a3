"""manifest.json: path, size and sha256 of every published file, its own hash, and the check of a directory against it.

The manifest is written last. `content` is the hash of a dataset: one number for all accepted images and their columns,
whatever is beside them. Measurements on a dataset hold for its content, not for its name.
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

from counterfoil.documents import Count, Form, Strict, document_bytes, error_lines, in_one_line, parse_document
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import track
from counterfoil.recipe import sha256_json
from counterfoil.regular_files import open_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import is_outside, list_files, read_inside, refuse_unfit
from counterfoil.store.layout import MANIFEST
from counterfoil.store.receipts import Receipt, StoredFile

VERSION = 1
VERIFY = "`counterfoil verify` names what is damaged and how to repair it."
_MOST_SHOWN = 10
_MOST_FILES = 200_000  # twice as many as the Hub takes


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
    """The content of manifest.json."""

    FORM: ClassVar[Form] = Form("the manifest that Counterfoil writes", VERIFY, VERSION, longest=_MOST_FILES)
    version: Literal[1]
    files: Annotated[tuple[Entry, ...], FailFast()]
    sha256: str


def published_paths(directory: Path) -> list[str]:
    """List every file that is published beside the manifest, sorted.

    Hidden entries at the top (`.counterfoil/`, the Hub's `.gitattributes` and `.cache/`) and `index.html` are not
    published. RunFailure for links and special files.
    """
    refuse_unfit(directory)
    return [path for path in list_files(directory).files if path != MANIFEST]


def hash_files(directory: Path, paths: Sequence[str]) -> list[Entry]:
    """Return size and sha256 of files, read in parallel, in the order given."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda path: _hashed(directory, path), paths))


def _hashed(directory: Path, path: str, expected: int | None = None) -> Entry:
    """Hash a file; one of another size than expected is not read, and its sha256 is empty."""
    with open_regular(directory / path) as file:
        size = os.fstat(file.fileno()).st_size
        if expected not in (None, size):
            return Entry(path, size, "")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Entry(path, file.tell(), digest)


def manifest_document(entries: Sequence[Entry]) -> dict[str, Any]:
    """Build the manifest of files; its hash is over the canonical JSON of the listing."""
    files = [asdict(entry) for entry in sorted(entries, key=lambda entry: entry.path)]
    return {"version": VERSION, "files": files, "sha256": sha256_json(files)}


def parse_manifest(content: bytes, where: str) -> dict[str, Entry]:
    """Parse a manifest into path → file. UserError, with every problem, unless it is, byte for byte, as it is written.

    Of another one any entry may be wrong, so it proves nothing about any file.
    """
    listed = {entry.path: entry for entry in parse_document(Manifest, content, where).files}
    if document_bytes(manifest_document(list(listed.values()))) != content:
        raise UserError(f"{where} is changed: its list of files does not match its own hash", VERIFY)
    return listed


def read_manifest(directory: Path) -> dict[str, Entry] | None:
    """Read a directory's manifest as path → file; None if it has none, or a damaged one."""
    try:
        return parse_manifest(read_inside(directory, MANIFEST), MANIFEST)
    except (OSError, UserError):
        return None


def write_manifest(directory: Path, known: Mapping[str, Entry]) -> str:
    """Write the manifest and return its hash. `known` are files hashed when they were written."""
    paths = published_paths(directory)
    fresh = hash_files(directory, [path for path in paths if path not in known])
    entries = [*fresh, *(known[path] for path in paths if path in known)]
    document = manifest_document(entries)
    write_atomically(directory / MANIFEST, document_bytes(document))
    return document["sha256"]


def content_of_receipts(receipts: Iterable[Receipt]) -> str:
    """Hash the content from the receipts, without reading a data file."""
    files = (receipt.file("data") for receipt in receipts)
    hashes = {file.path.removeprefix("data/"): file.sha256 for file in files if file is not None}
    digest = hashlib.sha256()
    for path, sha256 in sorted(hashes.items()):
        digest.update(f"{path}\0{sha256}\n".encode())
    return digest.hexdigest()


def file_faults(
    directory: Path, files: Sequence[StoredFile], there: Collection[str] | None = None
) -> Iterator[tuple[StoredFile, bool]]:
    """Yield each file that differs from its receipt, and whether it exists: sizes are compared first, then contents.

    `there` are the paths that may be opened, by default all regular ones.
    """
    if there is None:
        there = {file.path for file in files if (directory / file.path).is_file()}
    present = [file for file in files if file.path in there]
    sized = [file for file in present if (directory / file.path).stat().st_size == file.size]
    hashed = hash_files(directory, [file.path for file in sized])
    sound = {file.path for file, entry in zip(sized, hashed, strict=True) if entry.sha256 == file.sha256}
    yield from ((file, file in present) for file in files if file.path not in sound)


def changed_files(directory: Path, files: Sequence[StoredFile], there: Collection[str] | None = None) -> list[str]:
    """Hash files of receipts; return a line for each that is missing or differs from its receipt."""
    return [
        f"{file.path} is {'not the file in its receipt' if exists else 'missing'}"
        for file, exists in file_faults(directory, files, there)
    ]


def changed_data(directory: Path, receipts: Iterable[Receipt]) -> list[str]:
    """Return such lines for all data files, and one for each data file that is in no receipt."""
    listed = [file for receipt in receipts if (file := receipt.file("data")) is not None]
    present = [path for path in list_files(directory).files if path.startswith("data/")]
    strays = dict.fromkeys(present).keys() - {file.path for file in listed}
    return [*changed_files(directory, listed, set(present)), *(f"{path} is in no receipt" for path in sorted(strays))]


def refuse_changed(directory: Path, changed: Sequence[str], hint: str = VERIFY) -> None:
    """Raise RunFailure with the first lines of what has changed in a dataset, if anything has."""
    if changed:
        raise RunFailure([f"{directory}: {line}" for line in changed[:_MOST_SHOWN]], hint)


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of one file; `what` continues its path: "is missing"."""

    path: str
    fault: Literal["missing", "changed", "unexpected", "unreadable", "unfit"]
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The files that could be read, those that the manifest lists, and the problems.

    `listed` is None if there is no sound manifest: then no file was compared with it.
    """

    problems: tuple[FileProblem, ...]
    found: Mapping[str, Entry]
    listed: Mapping[str, Entry] | None


def verify_files(directory: Path | str) -> list[str]:
    """Return a line for each file that is missing, changed or unexpected; empty for a complete dataset."""
    return [str(problem) for problem in check_files(directory).problems]


def check_files(directory: Path | str) -> FileCheck:
    """Hash every published file once and compare it with the manifest; report progress for each file."""
    directory = Path(directory)
    problems: list[FileProblem] = []
    listing = list_files(directory)
    everywhere = list_files(directory, hidden=True).unfit
    problems += [FileProblem(path, "unfit", what) for path, what in sorted(everywhere.items())]
    listed: dict[str, Entry] | None = None
    if not os.path.lexists(directory / MANIFEST):
        what = "is missing: the dataset is not finished, or this is not a dataset"
        problems.append(FileProblem(MANIFEST, "missing", what))
    elif MANIFEST not in everywhere:
        try:
            listed = parse_manifest(read_inside(directory, MANIFEST), MANIFEST)
        except OSError as error:
            problems.append(FileProblem(MANIFEST, "unreadable", f"cannot be read: {error.strerror}"))
        except UserError as error:
            problems.append(FileProblem(MANIFEST, "changed", in_one_line(error_lines(error, Path(MANIFEST)))))
    present = [path for path in listing.files if path != MANIFEST]
    found: dict[str, Entry] = {}
    sizes = {path: entry.size for path, entry in (listed or {}).items()}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        hashing = [pool.submit(_hashed, directory, path, sizes.get(path)) for path in present]
        for path, hashed in track(zip(present, hashing, strict=True), "checking files", len(present)):
            try:
                found[path] = hashed.result()
            except OSError as error:
                problems.append(FileProblem(path, "unreadable", f"cannot be read: {error.strerror or error}"))
    if listed is not None:
        existing = {*present, *listing.unfit}
        problems += [FileProblem(path, "missing", "is missing") for path in listed if path not in existing]
        for path in present:
            if path not in listed:
                what = "is unexpected: the manifest does not list it"
                problems.append(FileProblem(path, "unexpected", what))
            elif path in found and (what := difference(found[path], listed[path].size, listed[path].sha256)):
                problems.append(FileProblem(path, "changed", what))
    return FileCheck(tuple(problems), found, listed)


def difference(found: Entry, size: int, sha256: str) -> str | None:
    """Describe how a file differs from its expected size and sha256; None if it does not."""
    if found.size != size:
        return f"is changed: {found.size} bytes, expected {size}"
    if found.sha256 != sha256:
        return f"is changed: sha256 {found.sha256[:12]}…, expected {sha256[:12]}…"
    return None
