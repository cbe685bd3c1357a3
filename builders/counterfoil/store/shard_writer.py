"""Write one shard: its files first, each whole or absent, and the receipt last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.plan import Plan, Shard
from counterfoil.recipe.keep import keeps_image
from counterfoil.store.atomic import atomic_file, remove_durably
from counterfoil.store.layout import LOCK, Format, What, receipt_path, shard_path
from counterfoil.store.receipts import Receipt, StoredFile, filled_of, read_receipt, reasons_of, write_receipt
from counterfoil.store.rows import Candidate, TableForm, arrow_schema, stored_row, unique_names


@dataclass(frozen=True)
class ShardWriter:
    """Everything but the candidates that writing a shard needs; it pickles, so that workers can write."""

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
    def of_plan(cls, directory: Path, plan: Plan, hashes: Mapping[str, str], stack: Mapping[str, Any]) -> ShardWriter:
        recipe = plan.recipe
        return cls(
            directory=directory,
            format=recipe.output.format,
            image_suffix=recipe.output.image.format,
            split=recipe.output.split,
            class_names=unique_names([(entry.id, entry.name) for entry in recipe.classes]),
            keep_rejected=recipe.screen.keep_rejected,
            form=TableForm.of(recipe),
            hashes=dict(hashes),
            stack=dict(stack),
        )

    def made_before(self, shard: Shard) -> Receipt | None:
        path = self.directory / receipt_path(shard.group, shard.number)
        return read_receipt(path) if path.exists() else None

    def write(self, shard: Shard, candidates: Sequence[Candidate]) -> Receipt:
        """Write a shard's accepted rows, rejected images and candidates, then its receipt.

        ValueError unless `candidates` are those of the shard, in the plan's order.
        """
        _check_candidates(shard, candidates)
        if not (self.directory / LOCK).exists():  # never into what would be half a dataset
            raise RunFailure(
                f"{self.directory} was removed while it was being built (it has no {LOCK})",
                "Nothing more was written there. Run the same command again.",
            )
        # A shard that is written again (another cut of the same renders) is not done meanwhile.
        remove_durably(self.directory / receipt_path(shard.group, shard.number))
        tables: dict[What, list[Candidate]] = {"data": [], "rejected": [], "candidates": list(candidates)}
        decided = []
        for candidate in candidates:
            if candidate.accepted:
                tables["data"].append(candidate)
            if candidate.image is not None and keeps_image(candidate.reason, self.keep_rejected):
                tables["rejected"].append(candidate)
            sample = candidate.sample
            identity = {"shift": sample.shift, "label": sample.label, "class_id": sample.class_id}
            decided.append({**identity, "reason": candidate.reason})
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

    def _write_table(self, shard: Shard, what: What, candidates: Sequence[Candidate]) -> StoredFile | None:
        path = shard_path(what, shard.group, self.split, shard.number, shard.of, self.format)
        if not candidates:
            remove_durably(self.directory / path)  # left by a run that was killed under another stack
            return None
        rows = [stored_row(candidate, what, self.form, self.image_suffix) for candidate in candidates]
        with atomic_file(self.directory / path) as file:
            if self.format == "parquet":
                from counterfoil.store.shard_files import write_parquet

                write_parquet(file, rows, arrow_schema(what, self.class_names, self.form))
            else:
                from counterfoil.store.shard_files import write_tar

                write_tar(file, rows)
        return StoredFile(path, file.size, file.sha256, len(rows))


def _check_candidates(shard: Shard, candidates: Sequence[Candidate]) -> None:
    """Raise ValueError unless cells are complete and in order; only a cell with a quota may stop early."""
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
                f"shard {shard.id}: {count} candidates of {cell.shift}, label {cell.label}, expected {cell.candidates}"
            )
