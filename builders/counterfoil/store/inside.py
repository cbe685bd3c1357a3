"""What lies in a dataset directory: regular files inside it, and nothing that leads out of it or never ends.

A directory may come from anybody. A link in it would have another file of this machine read, sent or overwritten; a
pipe would be waited for; so whoever opens a directory looks at every entry first (`refuse_unfit`), and what a document
of the dataset names is a plain path below it or is not opened. The one kind of link that is followed is what the Hub's
client keeps of a published dataset: from its snapshot to the blobs of the same cache.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from counterfoil.documents import parse_json
from counterfoil.errors import RunFailure, UserError
from counterfoil.regular_files import UnfitFile, irregularity, read_regular
from counterfoil.store.layout import INDEX

# The largest that is written is the manifest of a hundred thousand files (the Hub's limit): 17 MB.
MOST_DOCUMENT = 32_000_000
_MOST_SHOWN = 10
_SHARED_BLOB = re.compile(r"[0-9a-f]{64}")
_EXPECTED = "expected a regular file of the dataset"


@dataclass(slots=True)
class Listing:
    """Every file of a directory by its path, sorted, and what is no regular file: path → what it is.

    linked: folders that are links and were entered: path → the folder that it leads to.
    """

    files: list[str] = field(default_factory=list)
    unfit: dict[str, str] = field(default_factory=dict)
    linked: dict[str, Path] = field(default_factory=dict)


def list_files(directory: Path, *, hidden: bool = False, most: int | None = None, links: bool = False) -> Listing:
    """The files of a directory, its links and special files named apart; `hidden` entries at the top on demand.

    The page that leads to all others is one of those: it is of this copy, and not of the dataset.

    Folders that are links are entered where `links` says so, but no further link in them, and none that leads back.
    OSError where the directory cannot be listed, RunFailure where it has more than `most` entries.
    """
    listing = Listing()
    blobs = _Blobs.of(directory)
    below = len(f"{str(directory).rstrip(os.sep)}{os.sep}")
    for count, entry in enumerate(_entries(directory, listing.linked if links else None), 1):
        if most is not None and count > most:
            raise RunFailure(f"{directory} has more than {most:,} files", "Name the folder of the files that you mean.")
        place = entry.path[below:].replace(os.sep, "/")
        if not hidden and (place.startswith(".") or place == INDEX):
            continue
        if entry.is_file(follow_symlinks=False):  # the listing itself tells: nothing more is asked of the disk
            listing.files.append(place)
            continue
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue  # another process took its temporary file away
        irregular = irregularity(mode)
        if irregular is None or (stat.S_ISLNK(mode) and blobs.hold(Path(entry.path))):
            listing.files.append(place)
        else:
            listing.unfit[place] = f"{irregular}, {_EXPECTED}"
    listing.files.sort()
    listing.linked = {path[below:].replace(os.sep, "/"): target for path, target in sorted(listing.linked.items())}
    return listing


def refuse_unfit(directory: Path) -> None:
    """RunFailure, with every one, for entries of a dataset directory that are no regular files; hidden ones too.

    And for files whose names are no text: the manifest, which lists what is published, could not.
    """
    if not directory.is_dir():
        return
    listing = list_files(directory, hidden=True)
    unfit = listing.unfit | {
        path: "has a name that is not text, expected UTF-8"
        for path in listing.files
        if not path.startswith(".") and not _is_text(path)
    }
    if unfit:
        shown = [f"{directory / path} {what}" for path, what in sorted(unfit.items())]
        more = [f"… and {len(shown) - _MOST_SHOWN} more"] if len(shown) > _MOST_SHOWN else []
        raise RunFailure(
            [*shown[:_MOST_SHOWN], *more],
            "Nothing was read or changed. Remove them, or replace them with the files themselves.",
        )


def refuse_written_inside(place: Path, directory: Path, workplace: Path) -> None:
    """UserError for a place of one's own, a page or a folder, in a dataset directory but for its `workplace`.

    The manifest lists every file of a dataset, so that one more makes it another.
    """
    try:
        whole = place.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises RuntimeError
        raise UserError(f"{place} cannot be written: its links lead in a circle", "Name another place.") from error
    if whole.is_relative_to(directory.resolve()) and not whole.is_relative_to(workplace.resolve()):
        raise UserError(
            f"{place} lies inside the dataset, whose manifest lists every file: it would no longer verify",
            f"Name a place outside, or drop --out: the default is {workplace}.",
        )


def read_inside(directory: Path, path: str, most_bytes: int = MOST_DOCUMENT) -> bytes:
    """The content of a document of the dataset. OSError where there is none, UnfitFile for no regular file inside."""
    place = directory / path
    for folder in list(Path(path).parents)[:-1]:
        if not stat.S_ISDIR((directory / folder).lstat().st_mode):
            raise UnfitFile(f"lies under a link, {_EXPECTED}")
    cached = place.is_symlink() and _Blobs.of(directory).hold(place)
    return read_regular(place, most_bytes, follow=cached)


def read_own_json(directory: Path, path: str) -> Any:
    """A JSON file of a dataset directory, as Counterfoil writes it; RunFailure when it is damaged or not its own."""
    hint = "Restore it from a copy, or build into another folder."
    try:
        return parse_json(read_inside(directory, path))
    except OSError as error:
        raise RunFailure(f"{directory / path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{directory / path} is damaged: {error}", hint) from error


def is_outside(path: str) -> bool:
    """Whether a path that a document names is no plain path below the dataset directory: never opened, if so."""
    place = PurePosixPath(path)
    return place.is_absolute() or ".." in place.parts or not place.parts or "\0" in path or "\\" in path


def _is_text(path: str) -> bool:
    """Whether a name is UTF-8; Python spells other bytes as halves of characters."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Blobs:
    """Where the Hub's client keeps contents: those of a repository, and those that repositories of the cache share."""

    own: Path | None
    shared: Path | None

    @classmethod
    def of(cls, directory: Path) -> _Blobs:
        real = directory.resolve()
        if real.parent.name != "snapshots":
            return cls(None, None)
        repository = real.parent.parent
        return cls(repository / "blobs", repository.parent / "blobs")

    def hold(self, link: Path) -> bool:
        """Whether a link leads to one of them and to nothing behind it."""
        if self.own is None:
            return False
        try:
            target = link.resolve(strict=True)
            if not stat.S_ISREG(target.lstat().st_mode):
                return False
        except (OSError, RuntimeError):
            return False
        shared = target.parent.parent == self.shared and _SHARED_BLOB.fullmatch(target.name) is not None
        return target.parent == self.own or shared


def _entries(folder: Path | str, linked: dict[str, Path] | None = None) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder that is not a folder itself, in no order; folders that are links among it.

    Where there is a `linked` they are entered, and noted there by path; what is below them again follows no link.
    """
    waiting = [(str(folder), linked)]
    while waiting:
        place, follow = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, follow))
                elif follow is not None and entry.is_symlink() and (target := _folder_behind(entry, folder)):
                    follow[entry.path] = target
                    waiting.append((entry.path, None))
                else:
                    yield entry


def _folder_behind(link: os.DirEntry[str], top: Path | str) -> Path | None:
    """The folder that a link leads to, unless it holds the link's own."""
    try:
        target = Path(link.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return target if target.is_dir() and not Path(top).resolve().is_relative_to(target) else None
