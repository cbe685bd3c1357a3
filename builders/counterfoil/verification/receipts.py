"""Receipts: one for every shard of the plan and no other, of this dataset, and true of the files that they list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.dataset import StandingDataset
from counterfoil.dataset.faults import told_in_one_line
from counterfoil.errors import CounterfoilError
from counterfoil.keep import ACCEPTED
from counterfoil.store import Receipt, StoredFile
from counterfoil.store.differences import differences
from counterfoil.store.layout import LOCK, RECEIPTS, WHATS, parse_receipt_path, receipt_path, shard_path
from counterfoil.store.manifest import Entry
from counterfoil.store.receipts import read_receipt
from counterfoil.store.verify import FileCheck, difference
from counterfoil.verification.problems import ProblemsFound

if TYPE_CHECKING:
    from counterfoil.plan import Shard

_MOST_DIFFERENCES = 3


def read_shard_receipts(
    directory: Path, described: StandingDataset, files: FileCheck, findings: ProblemsFound
) -> dict[tuple[str, int], Receipt]:
    """The receipts that can be relied on, by group and shard number, in the plan's order where there is a plan.

    Receipts that are missing, damaged, of another dataset or of no shard, and files that are not as their receipt
    says, go to `findings`.
    """
    plan = described.plan
    receipts: dict[tuple[str, int], Receipt] = {}
    if plan is not None:
        for shard in plan.shards:
            receipt = _read(directory, receipt_path(shard.group, shard.number), shard, described, files, findings)
            if receipt is not None:
                receipts[shard.group, shard.number] = receipt
        known = {receipt_path(shard.group, shard.number) for shard in plan.shards}
        for path in files.found:
            if path.startswith(f"{RECEIPTS}/") and path not in known:
                findings.unexpected(path, "is unexpected: the plan has no such shard")
    else:
        for path in files.found:
            place = parse_receipt_path(path)
            receipt = place and _read(directory, path, None, described, files, findings)
            if place and receipt:
                receipts[place] = receipt
    _refuse_strays(receipts.values(), described, files, findings)
    _note_mixed(receipts.values(), described, findings)
    return receipts


def _read(
    directory: Path,
    path: str,
    shard: Shard | None,
    described: StandingDataset,
    files: FileCheck,
    findings: ProblemsFound,
) -> Receipt | None:
    if path not in files.found:
        if not findings.is_damaged(path):
            findings.add(path, "is missing")
        return None
    try:
        receipt = read_receipt(directory / path)
    except (CounterfoilError, OSError, RecursionError) as error:
        shown = told_in_one_line(error, directory / path)
        findings.add(path, shown if isinstance(error, CounterfoilError) else f"cannot be read: {error}")
        return None
    changed = findings.is_damaged(path)
    faults = list(_faults(receipt, path, shard, described))
    for fault in faults:
        findings.add(path, fault)
    if changed or faults:
        return None
    for file in receipt.files:
        _check_file(file, path, files.found, findings)
    return receipt


def _check_file(file: StoredFile, receipt: str, found: Mapping[str, Entry], findings: ProblemsFound) -> None:
    if findings.is_damaged(file.path):
        return
    if file.path not in found:
        findings.add(file.path, "is missing")
    elif what := difference(found[file.path], file.size, file.sha256):
        findings.add(file.path, f"{what} by {receipt}")


def _faults(receipt: Receipt, path: str, shard: Shard | None, described: StandingDataset) -> Iterator[str]:
    """What a well-formed receipt says that cannot be."""
    expected = _hashes(described)
    lines = differences({name: receipt.hashes.get(name) for name in expected}, expected, "hashes")
    if lines:
        yield f"is of another dataset (it there, {LOCK} here): {'; '.join(lines[:_MOST_DIFFERENCES])}"
    if receipt.path != path:
        yield f"is that of shard {receipt.group}-{receipt.shard:05d}, expected one with this name"
    accepted = sum(reasons.get(ACCEPTED, 0) for reasons in receipt.counts.values())
    candidates = sum(sum(reasons.values()) for reasons in receipt.counts.values())
    for what, rows, counted in (
        ("accepted", receipt.rows["data"], accepted),
        ("candidates", receipt.rows["candidates"], candidates),
    ):
        if rows != counted:
            yield f"counts {counted} {what}, and {rows} rows of them"
    if shard is None or described.recipe is None:
        return
    if receipt.of != shard.of:
        yield f"is of {receipt.of} shards of its group, expected {shard.of}"
    shifts = {cell.shift for cell in shard.cells}
    if set(receipt.counts) != shifts:
        yield f"counts the shifts {', '.join(sorted(receipt.counts))}, expected {', '.join(sorted(shifts))}"
    listed = sorted((file.path, file.rows) for file in receipt.files)
    output = described.recipe.output
    planned = sorted(
        (shard_path(what, shard.group, output.split, shard.number, shard.of, output.format), receipt.rows[what])
        for what in WHATS
        if receipt.rows[what]
    )
    if listed != planned:
        yield f"lists the files {_listing(listed)}, expected {_listing(planned)}"


def _listing(files: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{path} of {rows} rows" for path, rows in files) or "none"


def _hashes(described: StandingDataset) -> dict[str, str]:
    """What the hashes of receipts must be: the lock's, or where that is damaged those that the recipe gives."""
    if described.lock is not None:
        return dict(described.lock.hashes)
    if described.recipe is not None:
        return {"plan": described.recipe.plan_hash, "screen": described.recipe.screen_hash}
    return {}


def _refuse_strays(receipts: Any, described: StandingDataset, files: FileCheck, findings: ProblemsFound) -> None:
    """Files in the folders of shards that no receipt lists, and no receipt that is damaged may have listed."""
    listed = {file.path for receipt in receipts for file in receipt.files}
    planned = set()
    if described.plan is not None and described.recipe is not None:
        output, have = described.recipe.output, {(receipt.group, receipt.shard) for receipt in receipts}
        for shard in described.plan.shards:
            if (shard.group, shard.number) not in have:
                planned |= {
                    shard_path(what, shard.group, output.split, shard.number, shard.of, output.format) for what in WHATS
                }
    for path in files.found:
        if path.partition("/")[0] in WHATS and path not in listed | planned and described.plan is not None:
            findings.unexpected(path, "is unexpected: no receipt lists it")


def _note_mixed(receipts: Any, described: StandingDataset, findings: ProblemsFound) -> None:
    """Shards that another stack rendered: no damage, and the card tells of them too."""
    if described.lock is None:
        return
    shards: dict[tuple[str, ...], int] = {}
    for receipt in receipts:
        lines = tuple(differences(described.lock.stack, receipt.stack))
        if lines:
            shards[lines] = shards.get(lines, 0) + 1
    for lines, count in shards.items():
        findings.note(
            f"{count} shard{'s were' if count > 1 else ' was'} rendered by another stack than {LOCK} names (“there”):"
            f" {'; '.join(lines)}"
        )
