"""List and read the files of a dataset directory, which may come from anyone. Only regular files
inside it are read.

A link could expose another file of this machine, and reading a pipe never ends. The only links that
are followed are those of the Hub's client, from a snapshot to the blobs of the same cache.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from counterfoil.documents import Document, OtherVersion, parse_document
from counterfoil.errors import RunFailure, UserError, first_of
from counterfoil.regular_files import UnfitFile, irregularity, is_utf8, on_a_line, read_regular
from counterfoil.store.layout import INDEX, LOCK, PRIVATE, RECIPE
from counterfoil.store.messages import failure, message, refusal

# The largest document is the manifest of a dataset with a hundred thousand files, which is the
# Hub's limit. It takes 17 MB.
MOST_DOCUMENT = 32_000_000
_SHARED_BLOB = re.compile(r"[0-9a-f]{64}")
_EXPECTED = "expected a regular file of the dataset"


@dataclass(slots=True)
class Listing:
    """The sorted files of a directory."""

    files: list[str] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)
    """Path → why an entry is not a regular file."""
    linked: dict[str, Path] = field(default_factory=dict)
    """Followed link → target folder."""


def list_files(
    directory: Path,
    *,
    hidden: bool = False,
    most: int | None = None,
    links: bool = False,
) -> Listing:
    """List the files of a directory.

    hidden: list also the hidden entries at the top, and the index page. links: enter folders that
    are links, but no links below such a folder and no links to a folder above. Raise OSError if the
    directory cannot be listed, and RunFailure if it has more than `most` entries.
    """
    listing = Listing()
    blobs = blob_folders(directory)
    below = len(f"{str(directory).rstrip(os.sep)}{os.sep}")
    for count, entry in enumerate(_entries(directory, listing.linked if links else None), 1):
        if most is not None and count > most:
            raise failure("too-many-files", directory, most)
        path = entry.path[below:].replace(os.sep, "/")
        if not hidden and (path.startswith(".") or path == INDEX):
            continue
        # the listing says so, without another call to the disk
        if entry.is_file(follow_symlinks=False):
            listing.files.append(path)
            continue
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue  # another process has just removed this temporary file
        irregular = irregularity(mode)
        if irregular is None or (stat.S_ISLNK(mode) and _leads_to_blob(Path(entry.path), blobs)):
            listing.files.append(path)
        else:
            listing.unfit[path] = f"{irregular}, {_EXPECTED}"
    listing.files.sort()
    links_by_path = sorted(listing.linked.items())
    listing.linked = {path[below:].replace(os.sep, "/"): target for path, target in links_by_path}
    return listing


def refuse_unfit(directory: Path) -> None:
    """Raise RunFailure for entries, hidden or not, that are not regular files or whose names are
    not text. It names all of them.
    """
    if not directory.is_dir():
        return
    listing = list_files(directory, hidden=True)
    unfit = {}
    for path, what in listing.unfit.items():
        unfit[path] = message("irregular-file", directory / on_a_line(path), what)
    for path in listing.files:
        is_text = is_utf8(path) and "\n" not in path
        if not path.startswith(".") and not is_text:
            unfit[path] = message("irregular-file.name", directory / on_a_line(path))
    if unfit:
        problems = [unfit[path] for path in sorted(unfit)]
        raise RunFailure(first_of(problems, 10))


def refuse_written_inside(output: Path, directory: Path | None = None) -> None:
    """Raise UserError for an output path inside a folder of images, but not in its private folder.

    directory: the folder of images. None: every built dataset above the path.
    """
    try:
        resolved = output.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises RuntimeError
        raise refusal("unusable-output.circle", output) from error
    above = [resolved, *resolved.parents]
    if directory is None:
        folders = [
            folder for folder in above if (folder / LOCK).is_file() and (folder / RECIPE).is_file()
        ]
    else:
        folders = [directory.resolve()]
    for folder in folders:
        if folder in above and folder / PRIVATE not in above:
            raise refusal("unusable-output.inside", output, folder)


def read_inside(directory: Path, path: str, most_bytes: int = MOST_DOCUMENT) -> bytes:
    """Read a document of the dataset. Raise OSError if it does not exist, and UnfitFile if it is
    not a regular file inside.
    """
    file = directory / path
    for folder in list(Path(path).parents)[:-1]:
        if not stat.S_ISDIR((directory / folder).lstat().st_mode):
            raise UnfitFile(f"lies under a link, {_EXPECTED}")
    cached = file.is_symlink() and _leads_to_blob(file, blob_folders(directory))
    return read_regular(file, most_bytes, follow=cached)


def read_own(directory: Path, path: str, kind: type[Document], hint: str | None = None) -> Document:
    """Read a document that Counterfoil wrote. Raise RunFailure if it is damaged, and UserError if
    another version wrote it.
    """
    file = directory / path
    try:
        return parse_own(kind, read_inside(directory, path), file)
    except OSError as error:
        problem = message("damaged-file", file, error)
        raise RunFailure(problem, hint or kind.FORM.hint) from error
    except UserError as error:
        if error.problems[0].code == "other-version":
            raise
        raise RunFailure(error.problems, hint or error.hint) from error


def parse_own(kind: type[Document], content: bytes, where: object) -> Document:
    """Parse a document that Counterfoil wrote. Raise UserError if it is damaged or of another
    version."""
    try:
        return parse_document(kind, content, str(where))
    except UserError as error:
        reason = error.problems[0].removeprefix(str(where)).lstrip(": ")
        if isinstance(error, OtherVersion):
            raise refusal("other-version", where, reason) from error
        raise UserError(message("damaged-file.document", where, reason), error.hint) from error


def is_outside(path: str) -> bool:
    """Check whether a path in a document leads out of the dataset directory. Such a path is never
    opened."""
    parsed = PurePosixPath(path)
    return (
        parsed.is_absolute()
        or ".." in parsed.parts
        or not parsed.parts
        or "\0" in path
        or "\\" in path
    )


def blob_folders(directory: Path) -> tuple[Path, Path] | None:
    """Return the blob folders of the Hub client's cache: the folder of the repository, and the
    folder that repositories share.
    """
    real = directory.resolve()
    if real.parent.name != "snapshots":
        return None
    repository = real.parent.parent
    return repository / "blobs", repository.parent / "blobs"


def _leads_to_blob(link: Path, folders: tuple[Path, Path] | None) -> bool:
    if folders is None:
        return False
    try:
        target = link.resolve(strict=True)
        if not stat.S_ISREG(target.lstat().st_mode):
            return False
    except (OSError, RuntimeError):
        return False
    shared = target.parent.parent == folders[1] and _SHARED_BLOB.fullmatch(target.name) is not None
    return target.parent == folders[0] or shared


def _entries(
    folder: Path | str, linked: dict[str, Path] | None = None
) -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder except folders. With `linked`, enter links to folders and
    record these links in it by path.
    """
    waiting = [(str(folder), linked)]
    while waiting:
        current, follow = waiting.pop()
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, follow))
                elif (
                    follow is not None
                    and entry.is_symlink()
                    and (target := _folder_behind(entry, folder))
                ):
                    follow[entry.path] = target
                    waiting.append((entry.path, None))
                else:
                    yield entry


def _folder_behind(link: os.DirEntry[str], top: Path | str) -> Path | None:
    try:
        target = Path(link.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return target if target.is_dir() and not Path(top).resolve().is_relative_to(target) else None
