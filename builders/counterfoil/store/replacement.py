"""Replace a dataset in its own directory by a new dataset that was completely written beside it.
All of the dataset is replaced, or nothing.

Writing `swap.json` decides the swap. If a run is killed before that, the old dataset stays. If it
is killed afterwards, the next process that opens the directory finishes the swap. While entries
move, the directory has no receipts and no manifest, so a reader sees an unfinished dataset and
never a mixture.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from counterfoil.documents import Form, Strict, document_bytes
from counterfoil.store.atomic import (
    disk_errors,
    flush_folder,
    make_folder,
    remove_durably,
    remove_half_written,
    write_atomically,
)
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.inside import read_own, refuse_unfit
from counterfoil.store.layout import (
    BENCHMARK,
    CARD,
    CROISSANT,
    EVALUATION,
    FIGURES,
    MANIFEST,
    RECEIPTS,
    REPLACEMENT,
    REVIEW,
    TIMM_INFO,
)

_NEW = "new"
_OLD = "old"
_SWAP = "swap.json"
# The proofs are moved out first and moved in last, in this order, because no shard counts as done
# without receipts.
_PROOFS = (RECEIPTS, MANIFEST)
# The entries that closing a dataset writes.
_CLOSING = (CARD, CROISSANT, BENCHMARK, TIMM_INFO, FIGURES, EVALUATION, REVIEW, MANIFEST)


_EntryName = Annotated[str, Field(pattern=r"^[^./\x00][^/\x00]*$")]


@dataclass(frozen=True, slots=True)
class _Swap(Strict):
    """The journal of a swap: entries at the top of the dataset that move in, and that are
    removed."""

    FORM: ClassVar[Form] = Form("the journal of a swap", "Remove the folder of the replacement.")
    new: tuple[_EntryName, ...]
    gone: tuple[_EntryName, ...]


def replacement_folder(directory: Path) -> Path:
    return directory / REPLACEMENT / _NEW


def settle_directory(directory: Path) -> None:
    """Prepare a directory for opening: refuse unfit files, finish a decided swap, and discard an
    undecided swap."""
    refuse_unfit(directory)
    if (directory / REPLACEMENT).is_dir():
        with directory_lock(directory):
            if not finish_replacement(directory):
                discard_replacement(directory)


def finish_replacement(directory: Path) -> bool:
    """Finish a decided swap. Return False if no swap is decided. The caller must hold the directory
    lock."""
    journal = directory / REPLACEMENT / _SWAP
    if not journal.is_file():
        return False
    swap = read_own(
        directory,
        f"{REPLACEMENT}/{_SWAP}",
        _Swap,
        f"Remove {directory / REPLACEMENT}.",
    )
    # Each step checks which entries exist, so it can be repeated after a kill.
    incoming = replacement_folder(directory)
    outgoing = directory / REPLACEMENT / _OLD
    make_folder(outgoing)
    others = [name for name in swap.new if name not in _PROOFS]
    proofs = [name for name in _PROOFS if name in swap.new]
    with disk_errors(directory):
        for name in [*reversed(proofs), *swap.gone, *others]:
            current = directory / name
            # An entry that has moved in already is not the old one.
            is_old = name in swap.gone or os.path.lexists(incoming / name)
            # A rename puts a new file over the old file, so that a file of this name (lock.json)
            # always exists.
            both_files = (incoming / name).is_file() and current.is_file()
            stays = both_files and name not in _PROOFS
            if is_old and not stays and os.path.lexists(current):
                _move(current, outgoing / name)
        for name in [*others, *proofs]:
            if os.path.lexists(incoming / name):
                _move(incoming / name, directory / name)
    remove_half_written(directory)
    remove_durably(journal)
    discard_replacement(directory)
    return True


def replace_dataset(directory: Path) -> None:
    """Replace this dataset, except hidden entries, by the dataset in `replacement_folder`. The
    caller must hold the lock.
    """
    new = _entries(replacement_folder(directory))
    old = _entries(directory)
    journal = {"new": new, "gone": [name for name in old if name not in new]}
    write_atomically(directory / REPLACEMENT / _SWAP, document_bytes(journal))
    finish_replacement(directory)


@contextlib.contextmanager
def closed_or_as_before(directory: Path) -> Iterator[None]:
    """Close a finished dataset again in the block. If the block fails or is killed, the dataset is
    restored from copies.

    The caller must hold the directory lock. A dataset without a manifest is left as it is.
    """
    if not (directory / MANIFEST).is_file():
        yield
        return
    before = [name for name in _CLOSING if (directory / name).exists()]
    for name in before:
        for path in [directory / name, *(directory / name).rglob("*")]:
            if path.is_file():
                with disk_errors(path):
                    content = path.read_bytes()
                copy = replacement_folder(directory) / path.relative_to(directory)
                write_atomically(copy, content)
    journal = {"new": before, "gone": [name for name in _CLOSING if name not in before]}
    write_atomically(directory / REPLACEMENT / _SWAP, document_bytes(journal))
    try:
        yield
    except BaseException:
        finish_replacement(directory)
        raise
    remove_durably(directory / REPLACEMENT / _SWAP)
    discard_replacement(directory)


def discard_replacement(directory: Path) -> None:
    folder = directory / REPLACEMENT
    with disk_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)


def _move(source: Path, target: Path) -> None:
    source.replace(target)
    flush_folder(target.parent)
    flush_folder(source.parent)


def _entries(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
