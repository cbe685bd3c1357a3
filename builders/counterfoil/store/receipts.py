"""Receipts: the proof that a shard is done. Written last and atomically, so a shard is done when it has one.

A receipt holds what the shard's bytes come from (hashes, stack) and what they are (rows, counts, sha256),
and no clock, host or path outside the dataset directory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.store.atomic import write_atomically
from counterfoil.store.documents import document_bytes, read_document
from counterfoil.store.layout import RECEIPTS, What, parse_receipt_path, receipt_path


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the dataset directory; `path` is relative to it."""

    path: str
    size: int
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was written for one shard. `counts` is shift → reason → candidates."""

    group: str
    shard: int
    of: int
    rows: Mapping[What, int]
    counts: Mapping[str, Mapping[str, int]]
    files: tuple[StoredFile, ...]
    hashes: Mapping[str, str]
    stack: Mapping[str, Any]

    @property
    def path(self) -> str:
        """Where the receipt lies in the dataset directory."""
        return receipt_path(self.group, self.shard)

    def file(self, what: What) -> StoredFile | None:
        """The shard's file in `data`, `rejected` or `candidates`; None where it has no row."""
        return next((file for file in self.files if file.path.startswith(f"{what}/")), None)


def write_receipt(directory: Path, receipt: Receipt) -> None:
    write_atomically(directory / receipt.path, document_bytes(dataclasses.asdict(receipt)))


def read_receipt(path: Path) -> Receipt:
    """The receipt at `path`; RunFailure when it is damaged."""
    document = read_document(path)
    try:
        files = tuple(StoredFile(**file) for file in document.pop("files"))
        return Receipt(files=files, **document)
    except (AttributeError, KeyError, TypeError) as error:
        raise RunFailure(
            f"{path} is not a receipt: {error}",
            hint=repair_hint(path.parents[1]),
        ) from error


def repair_hint(directory: Path) -> str:
    """What to do about a shard that is not as it was written."""
    return f"Repair it: `counterfoil build --from {directory} --out {directory}` makes only damaged shards again."


def finished_shards(directory: Path) -> set[tuple[str, int]]:
    """(group, number) of every shard that has a receipt, from one listing."""
    folder = directory / RECEIPTS
    if not folder.is_dir():
        return set()
    found = (parse_receipt_path(f"{RECEIPTS}/{entry.name}") for entry in folder.iterdir())
    return {shard for shard in found if shard is not None}
