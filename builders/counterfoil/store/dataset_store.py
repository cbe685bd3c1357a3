"""Create or resume a dataset directory under its lock, write the shards, and close the dataset with
its manifest.

A shard's files are written first, each whole or not at all, and the shard's receipt last. Several
processes may each build a part. None of these processes closes the dataset.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure, UserError, first_of
from counterfoil.plan.layout import Plan, PlanPart, Shard
from counterfoil.recipe.keep.cells import ACCEPTED, keeps_image
from counterfoil.store.atomic import (
    TEMPORARY,
    atomic_file,
    disk_errors,
    make_folder,
    remove_durably,
    remove_half_written,
    write_atomically,
)
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
    TIMM_INFO,
    WHATS,
    Format,
    What,
    parse_receipt_path,
    parse_shard_path,
    receipt_path,
    shard_path,
)
from counterfoil.store.lock import (
    Lock,
    read_lock,
    refuse_other_hashes,
    refuse_other_stack,
    write_lock,
)
from counterfoil.store.manifest import Entry, file_faults, write_manifest
from counterfoil.store.messages import failure, message, refusal
from counterfoil.store.reading import planned_rows, read_receipts
from counterfoil.store.receipts import (
    Receipt,
    StoredFile,
    filled_of,
    finished_shards,
    read_receipt,
    reasons_of,
    receipt_faults,
    standing_shards,
    timm_info,
    write_receipt,
)
from counterfoil.store.rows import Candidate, TableForm, arrow_schema, stored_row, unique_names


@dataclass(frozen=True)
class ShardWriter:
    """Everything that writing a shard needs except the candidates. It can be pickled, so that
    workers can write shards.
    """

    directory: Path
    format: Format
    image_suffix: str
    split: str
    class_names: tuple[str, ...]
    keep_rejected: bool
    form: TableForm
    hashes: Mapping[str, str]
    stack: Mapping[str, Any]

    @classmethod
    def of_plan(
        cls,
        directory: Path,
        plan: Plan,
        hashes: Mapping[str, str],
        stack: Mapping[str, Any],
    ) -> ShardWriter:
        recipe = plan.recipe
        return cls(
            directory=directory,
            format=recipe.output.format,
            image_suffix=recipe.output.image.format,
            split=recipe.output.split,
            class_names=unique_names(recipe.classes),
            keep_rejected=recipe.screen.keep_rejected,
            form=TableForm.of(recipe),
            hashes=dict(hashes),
            stack=dict(stack),
        )

    def made_before(self, shard: Shard) -> Receipt | None:
        path = self.directory / receipt_path(shard.group, shard.number)
        if not path.exists():
            return None
        return read_receipt(path)

    def refuse_removed(self) -> None:
        """Raise RunFailure if the directory lost its lock, since it would become half a dataset."""
        if not (self.directory / LOCK).exists():
            raise failure("changed-meanwhile.removed", self.directory)

    def write(self, shard: Shard, candidates: Sequence[Candidate]) -> Receipt:
        """Write a shard's tables, then its receipt. Raise ValueError unless `candidates` are the
        shard's candidates, in the plan's order.
        """
        _check_candidates(shard, candidates)
        self.refuse_removed()
        # A shard that is written again (after another cut of the same renders) does not count as
        # done meanwhile.
        remove_durably(self.directory / receipt_path(shard.group, shard.number))
        tables: dict[What, list[Candidate]] = {
            "data": [],
            "rejected": [],
            "candidates": list(candidates),
        }
        decided = []
        for candidate in candidates:
            if candidate.accepted:
                tables["data"].append(candidate)
            if candidate.image is not None and keeps_image(candidate.reason, self.keep_rejected):
                tables["rejected"].append(candidate)
            row = {name: getattr(candidate.sample, name) for name in ("shift", "label", "class_id")}
            decided.append({**row, "reason": candidate.reason})
        stored = [self._write_table(shard, what, chosen) for what, chosen in tables.items()]
        receipt = Receipt(
            group=shard.group,
            shard=shard.number,
            of=shard.of,
            rows={what: len(chosen) for what, chosen in tables.items()},
            counts=reasons_of(shard, decided),
            files=tuple(file for file in stored if file is not None),
            hashes=self.hashes,
            stack=self.stack,
            filled=filled_of(shard, decided),
        )
        write_receipt(self.directory, receipt)
        return receipt

    def _write_table(
        self,
        shard: Shard,
        what: What,
        candidates: Sequence[Candidate],
    ) -> StoredFile | None:
        path = shard_path(what, shard.group, self.split, shard.number, shard.of, self.format)
        if not candidates:
            # an old file was left by a killed run with another stack
            remove_durably(self.directory / path)
            return None
        rows = [
            stored_row(candidate, what, self.form, self.image_suffix) for candidate in candidates
        ]
        with atomic_file(self.directory / path) as file:
            if self.format == "parquet":
                from counterfoil.store.shard_files import write_parquet

                write_parquet(file, rows, arrow_schema(what, self.class_names, self.form))
            else:
                from counterfoil.store.shard_files import write_tar

                write_tar(file, rows)
        return StoredFile(path, file.size, file.sha256, len(rows))


def _check_candidates(shard: Shard, candidates: Sequence[Candidate]) -> None:
    """Raise ValueError unless cells are complete and in order. Only a cell with a quota may stop
    early."""
    positions = {(cell.shift, cell.label): position for position, cell in enumerate(shard.cells)}
    counts = [0] * len(shard.cells)
    last = (-1, -1)
    for candidate in candidates:
        sample = candidate.sample
        position = positions.get((sample.shift, sample.label))
        if position is None:
            raise ValueError(f"{sample.key} is not a sample of shard {shard.id}")
        if (position, sample.index) <= last:
            raise ValueError(f"{sample.key} is out of order in shard {shard.id}")
        if candidate.accepted and candidate.image is None:
            raise ValueError(f"{sample.key} is accepted but has no image")
        last = (position, sample.index)
        counts[position] += 1
    for cell, count in zip(shard.cells, counts, strict=True):
        if count > cell.candidates or (cell.accepted is None and count < cell.candidates):
            raise ValueError(
                f"shard {shard.id}: {count} candidates of {cell.shift}, label {cell.label},"
                f" expected {cell.candidates}"
            )


class DatasetStore:
    """A dataset directory that is being built; create it with `open`. With a `part`, only the
    part's shards are pending.
    """

    def __init__(
        self,
        directory: Path,
        plan: Plan,
        writer: ShardWriter,
        part: PlanPart | None,
    ) -> None:
        self.directory = directory
        self.plan = plan
        self.writer = writer
        self.part = part
        self._receipts: list[Receipt] = []

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
        """Begin a dataset in `out`, or resume an existing one.

        Raise UserError if `out` holds something else, is in use, or has other hashes or another
        stack.

        hashes: the hashes of plan, screen and inputs. lock: the pinned inputs. attachments: path →
        content of token vectors and thresholds. repair: the manifest's entries; shards that differ
        from these entries are rendered again. part: the part to build, while other processes may
        build other parts. The first process writes the lock and the attachments, and temporary
        files stay.
        """
        directory = Path(out)
        refuse_foreign(directory)
        refuse_unfit(directory)
        make_folder(directory)
        documents = {
            "plan": plan.recipe.plan_document,
            "screen": plan.recipe.screen_document,
            "inputs": lock,
            "stack": stack,
        }
        groups = {shard.group: shard.of for shard in plan.shards}
        # In the form that JSON gives back (tuples become lists).
        documents = json.loads(document_bytes(documents))
        new_lock = Lock(hashes=dict(hashes), groups=groups, **documents)
        files = {RECIPE: recipe_yaml.encode(), **(attachments or {})}
        writer = ShardWriter.of_plan(directory, plan, new_lock.hashes, new_lock.stack)
        store = cls(directory, plan, writer, part)
        if part is not None:
            with contextlib.ExitStack() as locks:
                with opening_lock(directory):
                    alone = locks.enter_context(part_lock(directory, part))
                    _settle_lock(directory, new_lock, allow_mixed, alone)
                    _refuse_unknown_files(directory, new_lock)
                    for path, content in files.items():
                        if not (directory / path).is_file():
                            _write_if_new(directory, path, content)
                    store._no_longer_finished()
                yield store
            return
        with directory_lock(directory):
            store.remove_leftovers()
            _settle_lock(directory, new_lock, allow_mixed)
            _refuse_unknown_files(directory, new_lock)
            for path, content in files.items():
                _write_if_new(directory, path, content)
            if repair is not None:
                # The check comes before the manifest is removed, because the manifest proves the
                # receipts. After a kill, the next run checks again.
                for path in list(_damaged_shards(plan, writer, repair)):
                    remove_durably(directory / path)
            store._no_longer_finished()
            yield store

    def pending(self) -> Sequence[Shard]:
        """Return the shards that have no receipt, in the plan's order."""
        return self.plan.shards_without(finished_shards(self.directory), self.part)

    @property
    def n_shards(self) -> int:
        """The number of shards in the plan, or in the part that this process builds."""
        return len(self.plan.shards_without(frozenset(), self.part))

    def done(self) -> int:
        """Count the shards of the whole plan that have a receipt."""
        pending = self.plan.shards_without(finished_shards(self.directory))
        return self.plan.n_shards - len(pending)

    def _no_longer_finished(self) -> None:
        """If shards are pending, remove the manifest, because it would claim that the dataset is
        finished."""
        if self.pending():
            remove_durably(self.directory / MANIFEST)

    def remove_leftovers(self) -> None:
        """Remove the temporary files of lost workers."""
        for folder, _, _ in os.walk(self.directory):
            remove_half_written(Path(folder))

    def receipts(self) -> list[Receipt]:
        """Return the receipts of finished shards, in the plan's order. Raise RunFailure if a
        receipt has other hashes.
        """
        if len(self._receipts) < self.plan.n_shards:  # each receipt is parsed once
            self._receipts = read_receipts(self.directory)
        for receipt in self._receipts:
            if receipt.hashes != self.writer.hashes:
                path = self.directory / receipt.path
                raise failure("damaged-shard.dataset", path, directory=self.directory)
        return self._receipts

    def finish(
        self,
        readme: str,
        figures: Mapping[str, bytes] | None = None,
        documents: Mapping[str, bytes] | None = None,
    ) -> str:
        """Write the card, figures and documents, and the manifest last. Return the manifest's hash.
        Raise RunFailure for missing or changed shards.
        """
        if pending := self.pending():
            first = pending[0].id
            raise failure("not-finished.pending", self.directory, len(pending), first=first)
        receipts = self.checked_receipts()
        known = {}
        for receipt in receipts:
            for file in receipt.files:
                known[file.path] = Entry(file.path, file.size, file.sha256)
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
        """Return the receipts. Raise RunFailure if the size of a file differs from its receipt, or
        a file is in no receipt.
        """
        receipts = self.receipts()
        problems = []
        known = {file.path for receipt in receipts for file in receipt.files}
        for receipt in receipts:
            for file in receipt.files:
                path = self.directory / file.path
                size = path.stat().st_size if path.is_file() else None
                if size != file.size:
                    word = "missing" if size is None else "size"
                    problem = message(
                        f"damaged-shard.{word}",
                        path,
                        size,
                        file.size,
                        receipt=receipt.path,
                        directory=self.directory,
                    )
                    problems.append(problem)
        if problems:
            raise RunFailure(problems)
        for what in WHATS:
            strays = [path for path in _files_below(self.directory, what) if path not in known]
            if strays:
                unlisted = []
                for path in strays:
                    problem = message("unexpected-file", self.directory / path)
                    unlisted.append(problem)
                raise RunFailure(unlisted)
        return receipts


def _settle_lock(directory: Path, lock: Lock, allow_mixed: bool, alone: bool = True) -> None:
    """Write a new dataset's lock, or raise UserError if the existing lock differs. alone: no other
    process renders here.
    """
    existing = read_lock(directory)
    if existing is None:
        write_lock(directory, lock)
        return
    refuse_other_hashes(directory, existing, lock)
    if existing.stack == lock.stack:
        return
    if alone and not finished_shards(directory):
        write_lock(directory, lock)  # nothing is rendered yet, so two stacks cannot be mixed
    elif not allow_mixed:
        refuse_other_stack(directory, existing.stack, lock.stack)


def refuse_foreign(directory: Path) -> None:
    """Raise UserError for a file, or for a folder that holds something other than a dataset.
    Nothing is changed."""
    with disk_errors(directory):
        if not directory.exists():
            return
        if not directory.is_dir():
            raise refusal("unusable-output.file", directory)
        names = sorted(entry.name for entry in directory.iterdir())
    if LOCK in names:
        return
    # A run that is killed in its first instant leaves only these files.
    foreign = [name for name in names if name != PRIVATE and not TEMPORARY.fullmatch(name)]
    # Another process may have begun the dataset since the folder was listed.
    if foreign and not (directory / LOCK).exists():
        raise refusal("unusable-output.foreign", directory, foreign)


def _refuse_unknown_files(directory: Path, lock: Lock) -> None:
    unknown = []
    for folder in (RECEIPTS, *WHATS):
        for path in _files_below(directory, folder):
            if TEMPORARY.fullmatch(path):
                continue  # another part may be writing it now
            file = parse_shard_path(path)
            group, number = parse_receipt_path(path) or ("", 0)
            if file is not None:
                group = file.group
                number = file.number
            shards = lock.groups.get(group, 0)
            if number >= shards or (file is not None and file.of != shards):
                unknown.append(path)
    if unknown:
        shown = first_of([f"  {path}" for path in unknown], 10)
        problem = message("other-build.files", directory)
        raise UserError([problem, *shown])


def _files_below(directory: Path, folder: str) -> list[str]:
    if not (directory / folder).is_dir():
        return []
    listing = list_files(directory / folder, hidden=True)
    return [f"{folder}/{path}" for path in listing.files]


def _write_if_new(directory: Path, path: str, content: bytes) -> None:
    if is_outside(path):
        raise ValueError(f"{path!r} is not a path below the dataset directory")
    target = directory / path
    with disk_errors(target):
        if target.is_file() and target.read_bytes() == content:
            return
    write_atomically(target, content)


def _damaged_shards(plan: Plan, writer: ShardWriter, listed: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the receipt path of each shard whose receipt or files are damaged.

    `listed` are the manifest's entries, which prove a receipt. Without a manifest, a receipt is
    compared with its own files, and only the stack in it is trusted. A file that does not belong to
    the receipt's shard is never opened.
    """
    directory = writer.directory
    for standing in standing_shards(directory, plan.shards):
        shard = standing.shard
        receipt = standing.receipt
        if shard is None:
            continue
        if receipt is None:
            if standing.unreadable:
                yield standing.path
            continue
        content = (directory / standing.path).read_bytes()
        entry = listed.get(standing.path)
        is_listed = entry is None or hashlib.sha256(content).hexdigest() == entry.sha256
        if (
            receipt.content() != content
            or not is_listed
            or receipt.hashes != writer.hashes
            or any(receipt_faults(standing, writer.hashes, writer.split, writer.format))
            or any(file_faults(directory, receipt.files))
            or (not listed and not _counts_match(writer, plan, shard, receipt))
        ):
            yield standing.path


def _counts_match(writer: ShardWriter, plan: Plan, shard: Shard, receipt: Receipt) -> bool:
    """Check a receipt's counts against the rows of the shard's files, and these rows against the
    plan."""
    directory = writer.directory
    tables = dict.fromkeys(WHATS, 0)
    decided: list[dict[str, Any]] = []
    try:
        for what in WHATS:
            columns = ["reason"] if what == "candidates" else []
            rows = list(planned_rows(directory, plan, shard, receipt, what, columns, writer.form))
            tables[what] = len(rows)
            if what == "candidates":
                decided = rows
    except RunFailure:
        return False
    counts = reasons_of(shard, decided)
    accepted = sum(reasons.get(ACCEPTED, 0) for reasons in counts.values())
    stored = {what: file.rows for what in WHATS if (file := receipt.file(what)) is not None}
    return (
        (receipt.filled is None or filled_of(shard, decided) == receipt.filled)
        and counts == receipt.counts
        and tables == receipt.rows
        and accepted == tables["data"]
        and stored == {what: number for what, number in tables.items() if number}
    )
