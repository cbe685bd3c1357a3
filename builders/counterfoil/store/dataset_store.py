"""A dataset directory in the making: opened under its lock, filled shard by shard, closed by its manifest.

Processes that each make a part of it hold it together, and none of them closes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure, UserError
from counterfoil.recipe.keep import ACCEPTED
from counterfoil.store.atomic import disk_errors, make_folder, remove_durably, write_atomically
from counterfoil.store.directory_lock import directory_lock, opening_lock, part_lock
from counterfoil.store.inside import is_outside, list_files, refuse_unfit
from counterfoil.store.layout import (
    CARD,
    FIGURES,
    LOCK,
    MANIFEST,
    PRIVATE,
    RECEIPTS,
    RECIPE,
    TEMPORARY_SUFFIX,
    TIMM_INFO,
    WHATS,
    parse_receipt_path,
    parse_shard_path,
)
from counterfoil.store.lock import Lock, read_lock, refuse_other_hashes, refuse_other_stack, write_lock
from counterfoil.store.manifest import Entry, file_faults, write_manifest
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.receipts import (
    Receipt,
    StandingShard,
    filled_of,
    finished_shards,
    reasons_of,
    receipt_faults,
    repair_hint,
    standing_shards,
    timm_info,
)
from counterfoil.store.shard_writer import ShardWriter

if TYPE_CHECKING:
    from counterfoil.plan import Plan, Shard
    from counterfoil.plan.layout import PlanPart


_TEMPORARY = re.compile(rf".+\.\d+{re.escape(TEMPORARY_SUFFIX)}")


class DatasetStore:
    """What `open` yields: the shards still to do, a writer for them, and the closing of the dataset.

    `writer` pickles, so that worker processes can write while this process holds the directory lock. With a `part`, it
    is about the shards of that part alone.
    """

    def __init__(self, directory: Path, plan: Plan, writer: ShardWriter, part: PlanPart | None = None) -> None:
        self.directory = directory
        self.plan = plan
        self.writer = writer
        self.part = part

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        out: Path | str,
        plan: Plan,
        hashes: Mapping[str, str],
        lock: Mapping[str, Any],
        stack: Mapping[str, Any],
        *,
        recipe_yaml: str,
        attachments: Mapping[str, bytes] | None = None,
        allow_mixed: bool = False,
        repair: Mapping[str, Entry] | None = None,
        part: PlanPart | None = None,
    ) -> Iterator[DatasetStore]:
        """Begin a dataset in `out`, or resume the one that is there.

        `hashes` are those of plan, screen and inputs; `lock` the pinned inputs; `stack` what bytes depend on;
        `attachments` (relative path → content) the token vectors and thresholds that the inputs name.
        With `repair`, the entries of the manifest as far as it is known, finished shards that are not as they were
        written are to be done again. With `part`, other processes may make other parts of it at the same time: whoever
        comes first writes the lock and the attachments, and nobody removes what another may be writing.
        UserError when `out` holds something else, is in use, or was made by other hashes or another stack.
        """
        directory = Path(out)
        refuse_foreign(directory)
        refuse_unfit(directory)
        make_folder(directory)
        here = _lock_of(plan, hashes, lock, stack)
        files = {RECIPE: recipe_yaml.encode(), **(attachments or {})}
        writer = ShardWriter.of_plan(directory, plan, here.hashes, here.stack)
        store = cls(directory, plan, writer, part)
        if part is not None:
            with contextlib.ExitStack() as held:
                with opening_lock(directory):
                    alone = held.enter_context(part_lock(directory, part))
                    _settle_lock(directory, here, allow_mixed, alone)
                    _refuse_unknown_files(directory, here)
                    for path, content in files.items():
                        if not (directory / path).is_file():
                            _write_if_new(directory, path, content)
                    store._no_longer_finished()
                yield store
            return
        with directory_lock(directory):
            _remove_leftovers(directory)
            _settle_lock(directory, here, allow_mixed)
            _refuse_unknown_files(directory, here)
            for path, content in files.items():
                _write_if_new(directory, path, content)
            if repair is not None:
                # Before the manifest goes, which proves the receipts: a run killed here looks again.
                for path in list(_damaged_shards(plan.shards, writer, repair)):
                    remove_durably(directory / path)
            store._no_longer_finished()
            yield store

    def pending(self) -> Sequence[Shard]:
        """The shards without a receipt, in the plan's order; each is made when it is asked for."""
        return self.plan.shards_without(finished_shards(self.directory), self.part)

    @property
    def n_shards(self) -> int:
        """How many shards this process is to make in all, of the plan or of its part."""
        return len(self.plan.shards_without(frozenset(), self.part))

    def done(self) -> int:
        """How many shards of the whole plan have a receipt."""
        return self.plan.n_shards - len(self.plan.shards_without(finished_shards(self.directory)))

    def _no_longer_finished(self) -> None:
        """Remove the manifest where shards are to be made: it would claim that the dataset is finished."""
        if self.pending():
            remove_durably(self.directory / MANIFEST)

    def remove_leftovers(self) -> None:
        """Remove what workers that were lost left half-written, while others went on; none may be at work any more."""
        _remove_leftovers(self.directory)

    def receipts(self) -> list[Receipt]:
        """The receipts of finished shards, in the plan's order. RunFailure when one is of other hashes."""
        receipts = read_receipts(self.directory)
        for receipt in receipts:
            if dict(receipt.hashes) != dict(self.writer.hashes):
                raise RunFailure(
                    f"{self.directory / receipt.path} belongs to another dataset: its hashes differ from those in"
                    f" {LOCK}",
                    hint=repair_hint(self.directory),
                )
        return receipts

    def finish(
        self,
        readme: str,
        figures: Mapping[str, bytes] | None = None,
        documents: Mapping[str, bytes] | None = None,
    ) -> str:
        """Write the card, its figures (file name → content) and, last of all, the manifest. Return its hash.

        `documents` are other files that describe the dataset, by their names beside the card.
        RunFailure when shards are missing, or when a stored file is not as its receipt says.
        """
        if pending := self.pending():
            raise RunFailure(
                f"{self.directory}: {len(pending)} shards are not done, the first is {pending[0].id}",
                hint="Run the same command again.",
            )
        receipts = self.checked_receipts()
        known = {file.path: Entry(file.path, file.size, file.sha256) for r in receipts for file in r.files}
        remove_durably(self.directory / MANIFEST)
        figures = figures or {}
        for name, content in figures.items():
            _write_if_new(self.directory, f"{FIGURES}/{name}", content)
        for stale in _files_below(self.directory, FIGURES):
            if stale.removeprefix(f"{FIGURES}/") not in figures:
                remove_durably(self.directory / stale)
        if self.writer.format == "webdataset":
            write_atomically(self.directory / TIMM_INFO, document_bytes(timm_info(receipts)))
        for name, content in (documents or {}).items():
            _write_if_new(self.directory, name, content)
        write_atomically(self.directory / CARD, readme.encode())
        return write_manifest(self.directory, known)

    def checked_receipts(self) -> list[Receipt]:
        """The receipts, whose files are there in the size that they say, and no others beside them. RunFailure else."""
        receipts, problems = self.receipts(), []
        known = {file.path for receipt in receipts for file in receipt.files}
        for receipt in receipts:
            for file in receipt.files:
                path = self.directory / file.path
                size = path.stat().st_size if path.is_file() else None
                if size != file.size:
                    found = "missing" if size is None else f"{size} bytes"
                    problems.append(f"{path}: {found}, expected {file.size} bytes by {receipt.path}")
        if problems:
            raise RunFailure(problems, hint=repair_hint(self.directory))
        for what in WHATS:
            strays = [path for path in _files_below(self.directory, what) if path not in known]
            if strays:
                raise RunFailure(
                    [f"{self.directory / path} is in no receipt" for path in strays],
                    hint="Move these files elsewhere and run the same command again.",
                )
        return receipts


def _lock_of(plan: Plan, hashes: Mapping[str, str], inputs: Mapping[str, Any], stack: Mapping[str, Any]) -> Lock:
    """The lock of this run, as it will read back from JSON (tuples are lists there)."""
    documents = {
        "plan": plan.recipe.plan_document,
        "screen": plan.recipe.screen_document,
        "inputs": inputs,
        "stack": stack,
    }
    groups: dict[str, int] = {}
    for shard in plan.shards:
        groups[shard.group] = shard.of
    return Lock(hashes=dict(hashes), groups=groups, **json.loads(document_bytes(documents)))


def _settle_lock(directory: Path, here: Lock, allow_mixed: bool, alone: bool = True) -> None:
    """Write the lock of a new dataset, or refuse to resume one that another lock describes.

    Where this process is not `alone`, others render by the stack of the lock, whether or not a shard is done yet.
    """
    there = read_lock(directory)
    if there is None:
        write_lock(directory, here)
        return
    refuse_other_hashes(directory, there, here)
    if there.stack == here.stack:
        return
    if alone and not finished_shards(directory):
        write_lock(directory, here)  # nothing is rendered yet that could be mixed
    elif not allow_mixed:
        refuse_other_stack(directory, there.stack, here.stack)


def refuse_foreign(directory: Path) -> None:
    """UserError for a file, and for a folder that holds something else than a dataset; nothing is changed."""
    with disk_errors(directory):
        if not directory.exists():
            return
        if not directory.is_dir():
            raise UserError(f"{directory} is a file, expected a folder", hint="Name another folder.")
        names = sorted(entry.name for entry in directory.iterdir())
    if LOCK in names:
        return
    # A run killed in its first instant leaves only these.
    foreign = [name for name in names if name != PRIVATE and not _TEMPORARY.fullmatch(name)]
    # Another process may have begun the dataset since the folder was listed.
    if foreign and not (directory / LOCK).exists():
        shown = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise UserError(
            f"{directory} is not empty and holds no Counterfoil dataset (no {LOCK}); it has {shown}",
            hint="Name an empty or a new folder.",
        )


def _remove_leftovers(directory: Path) -> None:
    """Remove what killed writers left half-written; only the holder of the lock may."""
    for folder, _, names in os.walk(directory):
        for name in names:
            if _TEMPORARY.fullmatch(name):
                remove_durably(Path(folder) / name)


def _refuse_unknown_files(directory: Path, lock: Lock) -> None:
    """UserError when the folders of shards hold files that the plan does not know."""
    unknown = []
    for path in _no_temporary(_files_below(directory, RECEIPTS)):
        group, number = parse_receipt_path(path) or ("", 0)
        if number >= lock.groups.get(group, 0):
            unknown.append(path)
    for path in [path for what in WHATS for path in _no_temporary(_files_below(directory, what))]:
        file = parse_shard_path(path)
        shards = lock.groups.get(file.group) if file else None
        if file is None or shards is None or file.of != shards or file.number >= shards:
            unknown.append(path)
    if unknown:
        more = [f"… and {len(unknown) - 10} more"] if len(unknown) > 10 else []
        raise UserError(
            [f"{directory} holds files that are not of this plan:", *(f"  {p}" for p in unknown[:10]), *more],
            hint="Move them elsewhere, or build into another folder.",
        )


def _no_temporary(paths: Iterable[str]) -> list[str]:
    """Without those that other parts are writing just now; a whole build has removed what was left of any."""
    return [path for path in paths if not _TEMPORARY.fullmatch(path)]


def _files_below(directory: Path, folder: str) -> list[str]:
    """Every file under a folder, sorted, as paths relative to the directory."""
    if not (directory / folder).is_dir():
        return []
    return [f"{folder}/{path}" for path in list_files(directory / folder, hidden=True).files]


def _write_if_new(directory: Path, path: str, content: bytes) -> None:
    """Write a file unless it has this content already. ValueError for a path that leaves the directory."""
    if is_outside(path):
        raise ValueError(f"{path!r} is not a path below the dataset directory")
    target = directory / path
    with disk_errors(target):
        if target.is_file() and target.read_bytes() == content:
            return
    write_atomically(target, content)


def _damaged_shards(shards: Sequence[Shard], writer: ShardWriter, listed: Mapping[str, Entry]) -> Iterator[str]:
    """The path of each receipt of `shards` that is there and that, or whose files, are not as they were written.

    `writer` is what would write them now. A receipt is proved by the manifest that the dataset was finished with, whose
    entries are `listed`. Where there is none, it is held against what its own files say, and then only its stack is
    taken on trust. What else a damaged or a stranger's receipt names than its own files is never opened.
    """
    for stands in standing_shards(writer.directory, shards):
        if stands.shard is None or (stands.receipt is None and not stands.unreadable):
            continue
        if stands.receipt is None or _is_damaged(stands, stands.shard, stands.receipt, writer, listed):
            yield stands.path


def _is_damaged(
    stands: StandingShard, shard: Shard, receipt: Receipt, writer: ShardWriter, listed: Mapping[str, Entry]
) -> bool:
    directory, entry = writer.directory, listed.get(stands.path)
    content = (directory / stands.path).read_bytes()
    if entry is not None and hashlib.sha256(content).hexdigest() != entry.sha256:
        return True
    try:
        written = receipt.content()
    except (ValueError, TypeError, RecursionError):  # what no receipt of ours holds: not a number, half a character
        return True
    if written != content or dict(receipt.hashes) != dict(writer.hashes):
        return True
    if any(receipt_faults(stands, writer.hashes, writer.split, writer.format)):
        return True
    return any(file_faults(directory, receipt.files)) or (not listed and _counts_otherwise(directory, shard, receipt))


def _counts_otherwise(directory: Path, shard: Shard, receipt: Receipt) -> bool:
    """Whether a receipt says otherwise than its files, which are as it says."""
    decided = list(read_shard(directory, receipt, ["shift", "label", "class_id", "reason"], "candidates"))
    counts = reasons_of(shard, decided)
    rows = {
        "candidates": len(decided),
        "data": sum(reasons.get(ACCEPTED, 0) for reasons in counts.values()),
        "rejected": sum(1 for _ in read_shard(directory, receipt, ["key"], "rejected")),
    }
    stored = {what: file.rows for what in WHATS if (file := receipt.file(what)) is not None}
    return (
        (receipt.filled is not None and filled_of(shard, decided) != receipt.filled)
        or counts != receipt.counts
        or rows != receipt.rows
        or stored != {what: number for what, number in rows.items() if number}
    )
