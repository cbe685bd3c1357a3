"""Read and write receipts. A receipt proves that a shard is done. It is written last and
atomically, and contains no time, host name or path outside the dataset.

The manifest proves receipts, and receipts prove files. A repair first removes the receipts of
damaged shards, then the manifest, and only then writes a file, so that it can resume after a kill.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, FailFast, Field

from counterfoil.documents import (
    Count,
    Form,
    Strict,
    document_bytes,
    document_differences,
)
from counterfoil.errors import CounterfoilError, ProblemLine
from counterfoil.plan.layout import Shard
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.cells import ACCEPTED, filled_at
from counterfoil.recipe.names import GROUP_NAME
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import read_own
from counterfoil.store.layout import (
    RECEIPTS,
    WHATS,
    Format,
    What,
    parse_receipt_path,
    parse_shard_path,
    receipt_path,
    shard_paths,
)
from counterfoil.store.lock import HASHES
from counterfoil.store.messages import failure, message

_MOST_DIFFERENCES = 3
_MOST_VALUES = 250_000  # more than a shard has cells


@dataclass(frozen=True, slots=True)
class StoredFile(Strict):
    path: str
    size: Count
    sha256: str
    rows: Count


def _of_every_table(rows: Mapping[What, int]) -> Mapping[What, int]:
    if set(rows) != set(WHATS):
        raise ValueError(f"expected a number for each of {', '.join(WHATS)}")
    return rows


@dataclass(frozen=True, slots=True)
class Receipt(Strict):
    """The record of one written shard."""

    FORM: ClassVar[Form] = Form(
        "of the form that Counterfoil writes",
        "Build it again.",
        most=_MOST_VALUES,
    )
    group: Annotated[str, Field(pattern=f"^{GROUP_NAME.pattern}$")]
    shard: Count
    of: Count
    rows: Annotated[Mapping[What, Count], AfterValidator(_of_every_table)]
    counts: Mapping[str, Mapping[str, Count]]
    """Shift → reason → the number of candidates."""
    files: Annotated[tuple[StoredFile, ...], FailFast(), Field(max_length=len(WHATS))]
    hashes: Mapping[str, str]
    stack: Mapping[str, Any]
    filled: Mapping[str, Mapping[str, Count | None]] | None = None
    """For cells with a quota, shift → class id → the number of candidates that filled it (None if
    not filled); None without quotas and in receipts of early releases."""

    @property
    def path(self) -> str:
        return receipt_path(self.group, self.shard)

    def content(self) -> bytes:
        document = dataclasses.asdict(self)
        if self.filled is None:
            del document["filled"]
        return document_bytes(document)

    def file(self, what: What) -> StoredFile | None:
        """Return the shard's file of one table, or None if the table has no row."""
        return next((file for file in self.files if file.path.startswith(f"{what}/")), None)


def reasons_of(shard: Shard, candidates: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count `Receipt.counts` from the shift and reason of each candidate of a shard."""
    counts: dict[str, Counter[str]] = {cell.shift: Counter() for cell in shard.cells}
    for row in candidates:
        counts.setdefault(row["shift"], Counter())[row["reason"]] += 1
    return {shift: dict(reasons) for shift, reasons in counts.items()}


def filled_of(
    shard: Shard, candidates: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, int | None]] | None:
    """Compute `Receipt.filled` from a shard's candidates (shift, label, class_id, reason) in order
    of index."""
    reasons = defaultdict[tuple[str, int], list[str]](list)
    ids = {}
    for row in candidates:
        reasons[row["shift"], row["label"]].append(row["reason"])
        ids[row["label"]] = row["class_id"]
    filled = defaultdict[str, dict[str, int | None]](dict)
    for cell in shard.cells:
        cell_reasons = reasons.get((cell.shift, cell.label))
        if cell.accepted is not None and cell_reasons is not None:
            class_id = ids[cell.label]
            filled[cell.shift][class_id] = filled_at(cell_reasons, cell.accepted)
    return dict(filled) or None


def write_receipt(directory: Path, receipt: Receipt) -> None:
    write_atomically(directory / receipt.path, receipt.content())


def read_receipt(path: Path) -> Receipt:
    """Read a receipt. Raise RunFailure if it is damaged, or names files of another shard."""
    directory = path.parents[1]
    receipt = read_own(directory, f"{RECEIPTS}/{path.name}", Receipt, repair_hint(directory))
    # The files that a receipt names are opened. Each of them must therefore belong to the receipt's
    # shard, and each table has one file.
    shard = (receipt.group, receipt.shard, receipt.of)
    files = [parse_shard_path(file.path) for file in receipt.files]
    if any(file is None or (file.group, file.number, file.of) != shard for file in files):
        raise failure("damaged-shard.files", path, directory=directory)
    if len({file.what for file in files if file is not None}) < len(files):
        raise failure("damaged-shard.tables", path, directory=directory)
    return receipt


def repair_hint(directory: Path) -> str:
    return (
        f"Repair it: `counterfoil build --from {directory} --out {directory}` rebuilds only"
        " damaged shards."
    )


def remake_hint(directory: Path, receipt: str) -> str:
    """Return advice for a shard that is proved by receipt and manifest but does not match the
    recipe."""
    return (
        f"Remove {directory / receipt}, then `counterfoil build --from {directory} --out"
        f" {directory}` rebuilds only its shard."
    )


def finished_shards(directory: Path) -> set[tuple[str, int]]:
    """Return (group, number) of every shard that has a receipt. Links are not followed."""
    folder = directory / RECEIPTS
    if folder.is_symlink() or not folder.is_dir():
        return set()
    parsed = [parse_receipt_path(f"{RECEIPTS}/{entry.name}") for entry in folder.iterdir()]
    return {shard for shard in parsed if shard is not None}


def timm_info(receipts: Iterable[Receipt]) -> dict[str, Any]:
    """Build the document that `timm.data.create_dataset("wds/…", root=directory, split=group)`
    reads."""
    splits: dict[str, Any] = {}
    for receipt in receipts:
        file = receipt.file("data")
        if file is None:
            continue
        for name in (receipt.group, "all"):
            empty = {"name": name, "num_samples": 0, "filenames": [], "shard_lengths": []}
            split = splits.setdefault(name, empty)
            split["filenames"].append(file.path)
            split["shard_lengths"].append(file.rows)
            split["num_samples"] += file.rows
    return {"splits": splits}


@dataclass(frozen=True, slots=True)
class StandingShard:
    """A shard with its receipt, as the directory has it."""

    path: str
    """The path of the receipt."""
    shard: Shard | None
    """None if the plan lacks the shard."""
    receipt: Receipt | None = None
    unreadable: ProblemLine | None = None
    """Why the receipt cannot be read."""


def standing_shards(directory: Path, shards: Iterable[Shard]) -> Iterator[StandingShard]:
    """Yield every shard of a plan, in order, with its receipt. Then yield the receipts that belong
    to no shard."""
    surplus = finished_shards(directory)

    def standing(shard: Shard | None, path: str) -> StandingShard:
        try:
            return StandingShard(path, shard, read_receipt(directory / path))
        except CounterfoilError as error:
            return StandingShard(path, shard, None, error.problems[0])

    for shard in shards:
        path = receipt_path(shard.group, shard.number)
        finished = (shard.group, shard.number) in surplus
        surplus.discard((shard.group, shard.number))
        yield standing(shard, path) if finished else StandingShard(path, shard)
    for group, number in sorted(surplus):
        yield standing(None, receipt_path(group, number))


def receipt_faults(
    standing: StandingShard,
    hashes: Mapping[str, str],
    split: str | None = None,
    format: Format | None = None,
) -> Iterator[ProblemLine]:
    """Yield the contradictions between a receipt and `hashes`, and, given `split` and `format`,
    between the receipt and its shard.
    """
    receipt = standing.receipt
    shard = standing.shard
    assert receipt is not None
    if hashes:
        # a changed lock may have other hashes
        compared = {*hashes, *(receipt.hashes.keys() - set(HASHES))}
        recorded = {name: receipt.hashes.get(name) for name in compared}
        lines = document_differences(recorded, hashes, "hashes")
        if lines:
            shown = "; ".join(lines[:_MOST_DIFFERENCES])
            yield message("wrong-receipt.hashes", None, shown)
    if receipt.path != standing.path:
        number = receipt.shard
        yield message("wrong-receipt.shard", group=receipt.group, number=number)
    reasons = sum(map(Counter, receipt.counts.values()), Counter[str]())
    accepted = ("accepted", "data", reasons[ACCEPTED])
    for what, table, count in (accepted, ("candidates", "candidates", reasons.total())):
        rows = receipt.rows[table]
        if rows != count:
            yield message(
                "wrong-receipt.rows",
                None,
                count,
                rows,
                what=what,
            )
    if shard is None or split is None or format is None:
        return
    if receipt.of != shard.of:
        yield message("wrong-receipt.of", None, receipt.of, shard.of)
    shifts = {cell.shift for cell in shard.cells}
    if set(receipt.counts) != shifts:
        yield message("wrong-receipt.shifts", None, sorted(receipt.counts), sorted(shifts))
    listed = sorted((file.path, file.rows) for file in receipt.files)
    planned = []
    for what, path in shard_paths(shard, split, format).items():
        if receipt.rows[what]:
            planned.append((path, receipt.rows[what]))
    planned.sort()
    if listed != planned:
        yield message("wrong-receipt.files", None, _shown(listed), _shown(planned))


def _shown(files: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{path} of {rows} rows" for path, rows in files) or "none"


def counts_of(
    receipts: Iterable[Receipt], before: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, dict[str, int]]:
    """Sum shift → reason → candidates over receipts, and add `before`. The shifts are in the order
    of the receipts."""
    totals = defaultdict[str, Counter[str]](Counter)
    for shift, reasons in (before or {}).items():
        totals[shift].update(reasons)
    for receipt in receipts:
        for shift, reasons in receipt.counts.items():
            totals[shift].update(reasons)
    return {shift: dict(reasons) for shift, reasons in totals.items()}


def preview_images(recipe: Recipe, receipts: Iterable[Receipt]) -> int | None:
    """Return the largest number of images of a shift if a dataset is a preview, otherwise None.

    It is less than `samples.limit` if the limit is no multiple of the number of classes, or if
    classes have few images.
    """
    if recipe.samples.limit is None:
        return None
    wanted = 0
    for shift in recipe.all_shifts():
        wanted = max(wanted, len(shift.class_labels) * (shift.accepted or shift.candidates))
    made = [sum(reasons.values()) for reasons in counts_of(receipts).values()]
    return min(wanted, max(made, default=0))
