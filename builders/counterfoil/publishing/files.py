"""The files of a directory and of a repository, and the changes between them; only verified bytes
are sent.

The Hub's client may read a file hours after its verification. Every byte is therefore hashed as it
is read, and the last piece is held back until the hash shows that the whole file equals the
verified one.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, cast

from huggingface_hub import CommitOperationAdd
from huggingface_hub.lfs import UploadInfo

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.mended import MENDED
from counterfoil.recipe.tasks import TASKS
from counterfoil.regular_files import irregularity
from counterfoil.store import layout
from counterfoil.store.manifest import Entry, manifest_document, parse_manifest, published_paths


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository; `sha256` is listed for files in large-file storage only."""

    path: str
    size: int
    git_id: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file to publish as it was when it was hashed. `git_id` is git's, which the Hub lists for
    small files."""

    directory: Path
    path: str
    size: int
    sha256: str
    git_id: str

    @property
    def place(self) -> Path:
        return self.directory / self.path

    def equals(self, remote: RemoteFile) -> bool:
        """Compare contents by size and sha256, or by git's id if the Hub lists no sha256."""
        if self.size != remote.size:
            return False
        if remote.sha256 is not None:
            return self.sha256 == remote.sha256
        return self.git_id == remote.git_id


# Errors of opening a name that is no longer a file of the dataset.
_NO_FILE = {
    errno.ENOENT: "it is gone",
    errno.ELOOP: "it is a link, expected a regular file",
    errno.ENOTDIR: "a folder in its path is a link, or is gone",
    errno.ENXIO: "it is a socket or a pipe, expected a regular file",
}


def changed(directory: Path, differences: Mapping[str, str]) -> RunFailure:
    """Return the failure of a publication whose files changed: path → what is different ("it is
    gone")."""
    problems = []
    for path, what in differences.items():
        problems.append(f"{path} changed on this machine while it was being published: {what}")
    return RunFailure(
        problems,
        f"Readers still find the old version. Stop whatever writes to {directory}, run `counterfoil"
        f" verify {shlex.quote(str(directory))}`, and publish again once it finds no damage.",
    )


def open_below(directory: Path, path: str) -> int:
    """Open a regular file below a directory without following links below it or waiting; return its
    descriptor."""
    if os.open not in os.supports_dir_fd:
        raise RunFailure(
            "publishing needs Linux or macOS: this system cannot open a file without following"
            " links on its way",
            "In Windows, publish from the Windows Subsystem for Linux.",
        )
    *folders, name = PurePosixPath(path).parts
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # a person named it: it may be a link
        parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=parent)
                os.close(parent)
                parent = below
            descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=parent)
        finally:
            os.close(parent)
    except OSError as error:
        what = _NO_FILE.get(error.errno or 0)
        if what:
            raise changed(directory, {path: what}) from error
        raise _unreadable(path, error) from error
    irregular = irregularity(os.fstat(descriptor).st_mode)
    if irregular is not None:
        os.close(descriptor)
        raise changed(directory, {path: f"it {irregular}, expected a regular file"})
    return descriptor


def _unreadable(path: str, error: OSError) -> RunFailure:
    return RunFailure(
        f"{path} cannot be read: {error.strerror or error}",
        "Check the disk and your permission to read it, then run the same command again.",
    )


class UnchangedReader(io.BufferedIOBase):
    """A file that is read in order, from its beginning or from an earlier starting point.

    RunFailure if the file changed, at the latest by the read that would return the last byte.
    Seeking exists for the Hub's client, which sends a part or the whole file again if a connection
    breaks.
    """

    def __init__(self, file: LocalFile) -> None:
        self._file = file
        self._position = 0
        # How far the content is hashed, and the hash's state at every position that reading may
        # return to.
        self._hashed = 0
        self._digest = hashlib.sha256()
        self._states = {0: self._digest.copy()}
        self._descriptor = -1  # for `close`, if opening fails
        self._descriptor = open_below(file.directory, file.path)
        size = os.fstat(self._descriptor).st_size
        if size != file.size:
            self.close()
            raise self._changed(f"it has {size} bytes now, and had {file.size}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}
        start = starts[whence]
        self._position = max(0, start + offset)
        if self._position == self._hashed:
            self._states.setdefault(self._hashed, self._digest.copy())
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._file.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        if self._file.size and not wanted:
            return b""
        if self._position != self._hashed:
            state = self._states.get(self._position)
            if state is None:
                raise RunFailure(
                    f"{self._file.path}: the Hub's client reads it out of order, so its content"
                    " cannot be checked while it is sent",
                    "Install a version of huggingface_hub that this version of counterfoil"
                    " supports.",
                )
            self._hashed = self._position
            self._digest = state.copy()
        pieces: list[bytes] = []
        at = self._position
        end = at + wanted
        while at < end:
            try:
                piece = os.pread(self._descriptor, end - at, at)
            except OSError as error:
                raise _unreadable(self._file.path, error) from error
            if not piece:
                raise self._changed(f"it ends after {at} bytes, and had {self._file.size}")
            pieces.append(piece)
            at += len(piece)
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._digest.update(content)
        self._hashed = self._position = end
        if end == self._file.size:
            if self._digest.hexdigest() != self._file.sha256:
                raise self._changed("its sha256 differs")
            if os.fstat(self._descriptor).st_size != self._file.size:
                raise self._changed("its size differs")
        return content

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()

    def _changed(self, what: str) -> RunFailure:
        return changed(self._file.directory, {self._file.path: what})


def whole_content(file: LocalFile) -> bytes:
    with UnchangedReader(file) as reader:
        return reader.read()


RepositoryKind = Literal["dataset", "model"]  # as the Hub calls them
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
MODEL_FILES = frozenset({CONFIG, WEIGHTS, MENDED, layout.CARD})
# A repository's file belongs to the dataset if its name is one that only datasets' files have. Any
# table in the folders of shards counts, since the card's globs would read it. `eval.yaml` does not:
# if someone added it, for instance the Hub's team by a pull request, it makes the dataset a
# benchmark and stays.
_FILES = frozenset({
    layout.CARD, layout.RECIPE, layout.LOCK, layout.MANIFEST, layout.TIMM_INFO, layout.THRESHOLDS, layout.CROISSANT,
    layout.EMBEDDINGS, layout.ROWS,
})  # fmt: skip
_OF_TASKS = "|".join(re.escape(task.table) for task in TASKS.bundled.values())
_BELOW = {
    **dict.fromkeys(layout.WHATS, re.compile(r".+\.(parquet|tar)")),
    layout.RECEIPTS: re.compile(r"[^/]+-\d{5,}\.json"),
    layout.FIGURES: re.compile(r"(contact-sheet|shift-[^/]+)\.webp"),
    layout.TOKENS: re.compile(r"[^/]+\.safetensors|manifest\.json"),
    layout.EVALUATION: re.compile(
        r"results\.json|eval_results/[^/]+\.yaml"
        rf"|{_OF_TASKS}"
        r"|(results|shifts|corruptions|classes|measures|labels|findings|transfer|distances)\.csv"
    ),
    layout.REVIEW: re.compile(r"selection\.(json|csv)"),
}
# Folders that the Hub's client never writes to.
_FORBIDDEN = {".git", ".cache"}
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that turn a repository into the directory. `kept` are other paths in it, which
    stay."""

    added: tuple[LocalFile, ...] = ()
    replaced: tuple[LocalFile, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    same: int = 0

    @property
    def sent(self) -> tuple[LocalFile, ...]:
        """The files to send, in the order of publishing: data first, then the card, then the
        manifest."""
        last = {layout.CARD: 1, layout.MANIFEST: 2}
        files = sorted((*self.added, *self.replaced), key=lambda file: file.path)
        return tuple(sorted(files, key=lambda file: last.get(file.path, 0)))

    @property
    def operations(self) -> int:
        return len(self.added) + len(self.replaced) + len(self.deleted)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.sent)


def local_files(directory: Path, manifest_sha256: str | None) -> dict[str, LocalFile]:
    """Hash the manifest and every file that it lists; return them by path.

    `manifest_sha256` is the manifest's hash when the directory was verified. RunFailure if anything
    changed since then; UserError for links of the Hub's cache, and for names that the Hub does not
    take.
    """
    paths = [*published_paths(directory), layout.MANIFEST]
    untaken = [path for path in paths if not _FORBIDDEN.isdisjoint(path.split("/"))]
    if untaken:
        raise UserError(
            [f"{path}: the Hub does not accept a file of this name" for path in untaken[:10]],
            "Move it out of the directory.",
        )
    linked = [path for path in paths if (directory / path).is_symlink()]
    if linked:
        raise UserError(
            f"{directory / linked[0]} is a link into the Hub's cache, like {len(linked)} of"
            f" {len(paths)} files here: only a directory's own files can be published",
            f"Copy the directory with the files it links to (`cp -rL {shlex.quote(str(directory))}"
            " COPY`), and publish the copy.",
        )
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        hashed = pool.map(lambda path: hash_file(directory, path), paths)
        files = dict(zip(paths, hashed, strict=True))
    manifest = whole_content(files[layout.MANIFEST])
    try:
        listed = parse_manifest(manifest, layout.MANIFEST)
    except UserError:
        raise changed(
            directory, {layout.MANIFEST: "its content does not match its own hash"}
        ) from None
    if manifest_document(list(listed.values()))["sha256"] != manifest_sha256:
        raise changed(directory, {layout.MANIFEST: "it is not the file that was verified"})
    existing = {}
    for path, file in files.items():
        if path != layout.MANIFEST:
            existing[path] = Entry(path, file.size, file.sha256)
    differences = {}
    for path in sorted({*listed, *existing}):
        if path not in existing:
            differences[path] = "it is gone"
        elif path not in listed:
            differences[path] = f"it is new and not listed in {layout.MANIFEST}"
        elif listed[path] != existing[path]:
            differences[path] = f"it is not the file that {layout.MANIFEST} lists"
    if differences:
        raise changed(directory, differences)
    return files


def hash_file(directory: Path, path: str) -> LocalFile:
    """Hash a file as it is now. RunFailure if it is no regular file of the directory."""
    with os.fdopen(open_below(directory, path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        sha256 = hashlib.sha256()
        git_id = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        read = 0
        while piece := file.read(_PIECE):
            sha256.update(piece)
            git_id.update(piece)
            read += len(piece)
    if read != size:
        raise changed(directory, {path: f"it had {size} bytes, then {read}"})
    return LocalFile(directory, path, size, sha256.hexdigest(), git_id.hexdigest())


def is_owned(path: str, kind: RepositoryKind = "dataset") -> bool:
    """Check whether publishing owns a path of a repository: it replaces and deletes only these."""
    if kind == "model":
        return path in MODEL_FILES
    first, _, below = path.partition("/")
    if not below:
        return first in _FILES
    return first in _BELOW and _BELOW[first].fullmatch(below) is not None


def changes_between(
    local: Mapping[str, LocalFile],
    remote: Mapping[str, RemoteFile],
    kind: RepositoryKind = "dataset",
) -> Changes:
    """Return the changes that make a repository's own files those of a directory."""
    added = []
    replaced = []
    same = 0
    for path, file in sorted(local.items()):
        if path not in remote:
            added.append(file)
        elif file.equals(remote[path]):
            same += 1
        else:
            replaced.append(file)
    deleted = []
    kept = []
    for path in sorted(remote.keys() - local.keys()):
        if is_owned(path, kind):
            deleted.append(path)
        elif not path.startswith("."):
            kept.append(path)
    return Changes(tuple(added), tuple(replaced), tuple(deleted), tuple(kept), same)


# The bytes of a file that the Hub sees to tell text from other content.
_SAMPLE = 512


class Addition(CommitOperationAdd):
    """The addition of one file. Making and reading it raises RunFailure if the file changed since
    it was hashed."""

    def __init__(self, file: LocalFile) -> None:
        super().__init__(file.path, b"")  # given a path, it would open whatever is there
        self._file = file
        with UnchangedReader(file) as reader:
            sample = reader.read(_SAMPLE)
        self.path_or_fileobj = str(file.place.absolute())
        self.upload_info = _Announced(file, sample)

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        with UnchangedReader(self._file) as reader:
            yield cast("BinaryIO", reader)

    def before_sending(self) -> None:
        """Raise RunFailure if the path is no file of the dataset any more; it is not opened by its
        path."""
        if not self._is_uploaded:
            UnchangedReader(self._file).close()

    def after_sending(self) -> None:
        sent = self.upload_info
        if sent.is_hashed and sent.sha256.hex() != self._file.sha256:
            raise changed(self._file.directory, {self._file.path: "its sha256 differs"})


class _Announced(UploadInfo):
    """Upload information that announces the verified sha256, and accepts the one that Xet computes
    while sending."""

    def __init__(self, file: LocalFile, sample: bytes) -> None:
        super().__init__(file.size, sample, source_path=str(file.place))
        self._announced = bytes.fromhex(file.sha256)

    @property
    def sha256(self) -> bytes:
        return self._sha256 or self._announced

    @sha256.setter
    def sha256(self, value: bytes) -> None:
        self._sha256 = value
