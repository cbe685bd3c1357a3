"""Name every file of a dataset directory by group, split and shard number.

Paths are POSIX strings relative to the directory, so that receipts and manifests contain no path of
a machine.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

# A recipe's layer needs these names too, because a dataset's recipe is read together with these
# files.
from counterfoil.recipe.names import EMBEDDINGS as EMBEDDINGS
from counterfoil.recipe.names import LOCK as LOCK
from counterfoil.recipe.names import RECIPE as RECIPE
from counterfoil.recipe.names import ROWS as ROWS
from counterfoil.recipe.names import TOKENS as TOKENS
from counterfoil.store.messages import refusal

if TYPE_CHECKING:
    from counterfoil.plan.layout import Shard

What = Literal["data", "rejected", "candidates"]
WHATS: tuple[What, ...] = get_args(What)

Format = Literal["parquet", "webdataset"]
SUFFIXES: dict[Format, str] = {"parquet": "parquet", "webdataset": "tar"}

CARD = "README.md"
MANIFEST = "manifest.json"
THRESHOLDS = "thresholds.json"
CROISSANT = "croissant.json"
BENCHMARK = "eval.yaml"
TIMM_INFO = "_info.json"
RECEIPTS = "receipts"
FIGURES = "figures"
EVALUATION = "evaluation"
REVIEW = "review"

# The following entries are neither published nor compared: locks, timings, and the index page of
# this machine's copy. The index page is at the top so that a person finds it.
PRIVATE = ".counterfoil"
INDEX = "index.html"
PREVIEW = "preview"  # in the private folder, beside a full evaluation
DIRECTORY_LOCK = f"{PRIVATE}/lock"
DIRECTORY_LOCK_HOLDER = f"{PRIVATE}/lock.pid"
OPENING_LOCK = f"{PRIVATE}/opening"
PART_LOCKS = f"{PRIVATE}/parts"
REPLACEMENT = f"{PRIVATE}/replacement"
WRITTEN = f"{PRIVATE}/written"

# The end of a temporary file's name, after its target's name and a process id. No file of a user
# has it.
TEMPORARY_SUFFIX = ".cf.tmp"

_SHARD_FILE = re.compile(
    r"(?P<what>data|rejected|candidates)/(?P<group>[^/]+)/(?P<split>[^/]+)"
    r"-(?P<number>\d{5,})-of-(?P<of>\d{5,})\.(?P<suffix>parquet|tar)"
)
_RECEIPT_FILE = re.compile(r"receipts/(?P<group>[^/]+)-(?P<number>\d{5,})\.json")


@dataclass(frozen=True, slots=True)
class ShardFile:
    what: What
    group: str
    split: str
    number: int
    of: int
    suffix: str


def shard_path(what: What, group: str, split: str, number: int, of: int, format: Format) -> str:
    return f"{what}/{group}/{split}-{number:05d}-of-{of:05d}.{SUFFIXES[format]}"


def shard_paths(shard: Shard, split: str, format: Format) -> dict[What, str]:
    paths = {}
    for what in WHATS:
        paths[what] = shard_path(what, shard.group, split, shard.number, shard.of, format)
    return paths


def receipt_path(group: str, number: int) -> str:
    return f"{RECEIPTS}/{group}-{number:05d}.json"


def parse_shard_path(path: str) -> ShardFile | None:
    """Parse a path in the form of `shard_path`. Return None for any other path."""
    match = _SHARD_FILE.fullmatch(path)
    if match is None:
        return None
    what: What = match["what"]  # pyrefly: ignore[bad-assignment]  # the pattern allows no other value
    return ShardFile(
        what,
        match["group"],
        match["split"],
        int(match["number"]),
        int(match["of"]),
        match["suffix"],
    )


def parse_receipt_path(path: str) -> tuple[str, int] | None:
    """Parse a receipt's path into (group, number). Return None for any other path."""
    match = _RECEIPT_FILE.fullmatch(path)
    return (match["group"], int(match["number"])) if match else None


def user_cache() -> Path:
    """Return the folder of caches, under XDG_CACHE_HOME or ~/.cache. It need not exist. Raise
    UserError if neither variable nor account names a home folder."""
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(caches or Path.home() / ".cache") / "counterfoil"
    except RuntimeError as error:
        raise refusal("cannot-write.home") from error


def writable_cache() -> Path:
    """Return the same folder for what takes long. Raise UserError if it cannot be written, before
    that is computed."""
    folder = user_cache()
    there = next(above for above in (folder, *folder.parents) if os.path.exists(above))  # noqa: PTH110 (never raises)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise refusal("cannot-write.cache", folder)
    return folder
