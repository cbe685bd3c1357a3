"""Replace a dataset in its own directory by another that was written whole beside it: all of it, or nothing.

A finished dataset that is closed again, with new results in it, is changed where it lies, and what that may change is
copied first: those copies are the dataset that a killed run leaves to be swapped in.

The new dataset is made in `.counterfoil/replacement/new`, on the same file system and under the same directory
lock. Writing `swap.json` beside it is the moment of decision: a run that is killed before leaves the old dataset
as it was, and after it whoever opens the directory next finishes the swap. While entries move, the directory has
no receipts and no manifest, so that a reader sees an unfinished dataset and never a mixture of two.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure
from counterfoil.store.atomic import disk_errors, flush_folder, make_folder, remove_durably, write_atomically
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.inside import read_own_json, refuse_unfit
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
    TEMPORARY_SUFFIX,
    TIMM_INFO,
)

_NEW = "new"
_OLD = "old"
_SWAP = "swap.json"
# First out and last in, in this order: without receipts no shard counts as done.
_PROOFS = (RECEIPTS, MANIFEST)
# What closing writes.
_CLOSING = (CARD, CROISSANT, BENCHMARK, TIMM_INFO, FIGURES, EVALUATION, REVIEW, MANIFEST)


def replacement_folder(directory: Path) -> Path:
    """Where the dataset that shall replace the one in `directory` is written."""
    return directory / REPLACEMENT / _NEW


def settle_directory(directory: Path) -> None:
    """What everybody does who opens a directory: refuse what is no file of its own, and settle a swap.

    A swap that a killed run had decided on is finished, and what another had only begun is cleared away. RunFailure for
    links and special files; UserError when another process is at work in the directory.
    """
    refuse_unfit(directory)
    if (directory / REPLACEMENT).is_dir():
        with directory_lock(directory):
            if not finish_replacement(directory):
                discard_replacement(directory)


def finish_replacement(directory: Path) -> bool:
    """Finish a swap that was decided on; return False where none was. For the holder of the directory lock."""
    journal = directory / REPLACEMENT / _SWAP
    if not journal.is_file():
        return False
    document = read_own_json(directory, f"{REPLACEMENT}/{_SWAP}")
    try:
        new, gone = list(map(_name, document["new"])), list(map(_name, document["gone"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RunFailure(f"{journal} is damaged: {error!r}", f"Remove {directory / REPLACEMENT}.") from error
    # Each step looks at what is there, so that it may be begun again after any of them.
    incoming, outgoing = replacement_folder(directory), directory / REPLACEMENT / _OLD
    make_folder(outgoing)
    others = [name for name in new if name not in _PROOFS]
    proofs = [name for name in _PROOFS if name in new]
    with disk_errors(directory):
        # What still lies in `new` has not come in yet, so what bears its name here is the old one.
        for name in [*reversed(proofs), *gone, *others]:
            waiting = name in gone or os.path.lexists(incoming / name)
            # One rename puts a new file over the old one, so that the name (lock.json) is never absent.
            goes_over = name not in _PROOFS and (incoming / name).is_file() and (directory / name).is_file()
            if waiting and os.path.lexists(directory / name) and not goes_over:
                _move(directory / name, outgoing / name)
        for name in [*others, *proofs]:
            if os.path.lexists(incoming / name):
                _move(incoming / name, directory / name)
    for name in [*new, *gone]:
        for half_written in directory.glob(f"{name}.*{TEMPORARY_SUFFIX}"):
            remove_durably(half_written)
    remove_durably(journal)
    discard_replacement(directory)
    return True


def replace_dataset(directory: Path) -> None:
    """Put the finished dataset of `replacement_folder` in the place of this one. For the holder of the lock.

    What the old dataset had and the new one lacks is removed; hidden entries at the top stay.
    """
    new, old = _entries(replacement_folder(directory)), _entries(directory)
    journal = {"new": new, "gone": [name for name in old if name not in new]}
    write_atomically(directory / REPLACEMENT / _SWAP, document_bytes(journal))
    finish_replacement(directory)


@contextlib.contextmanager
def closed_or_as_before(directory: Path) -> Iterator[None]:
    """Close a finished dataset again: where that fails or is killed, the dataset is as it was before.

    For the holder of the lock. A dataset without a manifest has nothing to go back to.
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
                write_atomically(replacement_folder(directory) / path.relative_to(directory), content)
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
    """Remove what was written for a swap and what it moved out."""
    folder = directory / REPLACEMENT
    with disk_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)


def _name(value: Any) -> str:
    """The name of an entry at the top of a dataset: what a journal holds may never lead anywhere else."""
    if not isinstance(value, str) or not value or value.startswith(".") or "/" in value or "\0" in value:
        raise ValueError(f"{value!r} is not the name of an entry")
    return value


def _move(source: Path, target: Path) -> None:
    source.replace(target)
    flush_folder(target.parent)
    flush_folder(source.parent)


def _entries(directory: Path) -> list[str]:
    """Names at the top of a dataset directory, without hidden ones."""
    return sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
