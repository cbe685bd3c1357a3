"""What a directory holds and what a repository holds, and the additions, replacements and deletions between them."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.publishing.files import LocalFile, RemoteFile
from counterfoil.publishing.unchanged import changed, open_below, whole_content
from counterfoil.store.layout import (
    CARD,
    CROISSANT,
    EMBEDDINGS,
    EVALUATION,
    FIGURES,
    LOCK,
    MANIFEST,
    RECEIPTS,
    RECIPE,
    REVIEW,
    ROWS,
    THRESHOLDS,
    TIMM_INFO,
    TOKENS,
    WHATS,
)
from counterfoil.store.manifest import (
    Entry,
    gives_its_own_hash,
    manifest_document,
    manifest_entries,
    published_paths,
)

# A repository's file is the dataset's when it has a name that only a dataset's files have. Any table in the folders
# of shards counts: the card's globs would take it for rows.
_FILES = frozenset({CARD, RECIPE, LOCK, MANIFEST, TIMM_INFO, THRESHOLDS, CROISSANT, EMBEDDINGS, ROWS})
_BELOW = {
    **dict.fromkeys(WHATS, re.compile(r".+\.(parquet|tar)")),
    RECEIPTS: re.compile(r"[^/]+-\d{5,}\.json"),
    FIGURES: re.compile(r"(contact-sheet|shift-[^/]+)\.webp"),
    TOKENS: re.compile(r"[^/]+\.safetensors|manifest\.json"),
    EVALUATION: re.compile(
        r"results\.json|eval_results/[^/]+\.yaml"
        r"|(results|robustness|shifts|classes|measures|findings|transfer|distances)\.csv"
    ),
    REVIEW: re.compile(r"selection\.(json|csv)"),
}
# Folders that the Hub's client never writes to.
_FORBIDDEN = {".git", ".cache"}
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a repository the directory. `kept` are paths there that are no dataset's; they stay."""

    added: tuple[LocalFile, ...] = ()
    replaced: tuple[LocalFile, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    same: int = field(default=0)

    @property
    def sent(self) -> tuple[LocalFile, ...]:
        """Files whose content goes there, in the order of publishing."""
        return tuple(sorted((*self.added, *self.replaced), key=_order))

    @property
    def operations(self) -> int:
        return len(self.added) + len(self.replaced) + len(self.deleted)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.sent)


def local_files(directory: Path, manifest_sha256: str | None) -> dict[str, LocalFile]:
    """Every file that the manifest lists, and the manifest, by path: hashed here, and what was verified.

    `manifest_sha256` is the hash of the manifest that the directory was verified against. RunFailure where anything
    changed since then; UserError for links of the Hub's cache, and for names that the Hub does not take.
    """
    paths = [*published_paths(directory), MANIFEST]
    _refuse_names(paths)
    _refuse_links(directory, paths)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        files = dict(zip(paths, pool.map(lambda path: hash_file(directory, path), paths), strict=True))
    manifest = whole_content(files[MANIFEST])
    listed = manifest_entries(manifest)
    if listed is None or not gives_its_own_hash(listed, manifest):
        raise changed(directory, {MANIFEST: "it does not give its own hash"})
    if manifest_document(list(listed.values()))["sha256"] != manifest_sha256:
        raise changed(directory, {MANIFEST: "it is not the one that was verified"})
    there = {path: Entry(path, file.size, file.sha256) for path, file in files.items() if path != MANIFEST}
    differences = dict.fromkeys(sorted({*listed, *there}), f"it is not the file that {MANIFEST} lists")
    differences |= {path: "it is gone" for path in listed if path not in there}
    differences |= {path: f"it is new, and {MANIFEST} does not list it" for path in there if path not in listed}
    if differing := {path: what for path, what in differences.items() if listed.get(path) != there.get(path)}:
        raise changed(directory, differing)
    return files


def _refuse_names(paths: Sequence[str]) -> None:
    untaken = [path for path in paths if not _FORBIDDEN.isdisjoint(path.split("/"))]
    if untaken:
        raise UserError(
            [f"{path}: the Hub takes no file of this name" for path in untaken[:10]], "Move it out of the directory."
        )


def _refuse_links(directory: Path, paths: Sequence[str]) -> None:
    linked = [path for path in paths if (directory / path).is_symlink()]
    if linked:
        raise UserError(
            f"{directory / linked[0]} is a link into the Hub's cache, as {len(linked)} of {len(paths)} files are: only"
            " a directory's own files are published",
            f"Copy it with what it links to (`cp -rL {shlex.quote(str(directory))} COPY`), and publish the copy.",
        )


def hash_file(directory: Path, path: str) -> LocalFile:
    """A file as it is now, read once. RunFailure where there is none, or it is no regular one of the directory."""
    with os.fdopen(open_below(directory, path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        sha256, git_id = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        read = 0
        while piece := file.read(_PIECE):
            sha256.update(piece)
            git_id.update(piece)
            read += len(piece)
    if read != size:
        raise changed(directory, {path: f"it had {size} bytes, and then {read}"})
    return LocalFile(directory, path, size, sha256.hexdigest(), git_id.hexdigest())


def is_of_a_dataset(path: str) -> bool:
    """Whether a path of a repository is one that publishing owns: it replaces and deletes only these."""
    first, _, below = path.partition("/")
    return first in _BELOW and _BELOW[first].fullmatch(below) is not None if below else first in _FILES


def changes_between(
    local: Mapping[str, LocalFile], remote: Mapping[str, RemoteFile], owns: Callable[[str], bool] = is_of_a_dataset
) -> Changes:
    """The changes that make a repository's own files (`owns`: a path's) those of a directory."""
    there = [path for path in local if path in remote]
    same = {path for path in there if local[path].equals(remote[path])}
    others = [path for path in sorted(remote) if path not in local]
    return Changes(
        added=tuple(file for path, file in sorted(local.items()) if path not in remote),
        replaced=tuple(local[path] for path in sorted(there) if path not in same),
        deleted=tuple(path for path in others if owns(path)),
        kept=tuple(path for path in others if not owns(path) and not path.startswith(".")),
        same=len(same),
    )


def _order(file: LocalFile) -> tuple[int, str]:
    """Data first, what tells of it last: the card, then the manifest."""
    return ({CARD: 1, MANIFEST: 2}.get(file.path, 0), file.path)
