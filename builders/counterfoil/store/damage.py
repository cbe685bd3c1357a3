"""Which finished shards are not as they were written: their files against the receipt, and the receipt itself.

A receipt is proved by the manifest that the dataset was finished with. Where there is none, it is held against what
it says of its own files, and then only its stack is taken on trust.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import RunFailure
from counterfoil.keep import ACCEPTED
from counterfoil.store.layout import MANIFEST, WHATS, receipt_path, shard_path
from counterfoil.store.manifest import Entry, hash_files
from counterfoil.store.reading import read_shard
from counterfoil.store.receipts import Receipt, filled_of, finished_shards, read_receipt

if TYPE_CHECKING:
    from counterfoil.plan import Shard
    from counterfoil.store.shard_writer import ShardWriter


def damaged_shards(shards: Sequence[Shard], writer: ShardWriter, listed: Mapping[str, Entry]) -> dict[str, str]:
    """Receipt's path → what is wrong, for each of the `shards` that has a receipt and is not as it was written.

    `writer` is what would write them now; `listed` the entries of the manifest, empty where it is not known.
    """
    done = finished_shards(writer.directory)
    damaged: dict[str, str] = {}
    sound: list[tuple[Shard, Receipt]] = []
    for shard in shards:
        if (shard.group, shard.number) not in done:
            continue
        path = receipt_path(shard.group, shard.number)
        try:
            receipt = read_receipt(writer.directory / path)
            wrong = _wrong_receipt(shard, receipt, writer, listed.get(path))
        except (RunFailure, TypeError, ValueError, AttributeError, KeyError):
            damaged[path] = f"{path} cannot be read"
            continue
        if wrong:
            damaged[path] = wrong
        else:
            sound.append((shard, receipt))
    damaged |= _wrong_files(writer.directory, [receipt for _, receipt in sound])
    if not listed:
        left = [(shard, receipt) for shard, receipt in sound if receipt.path not in damaged]
        damaged |= {r.path: wrong for shard, r in left if (wrong := _wrong_rows(writer.directory, shard, r))}
    return damaged


def _wrong_receipt(shard: Shard, receipt: Receipt, writer: ShardWriter, entry: Entry | None) -> str | None:
    path = receipt_path(shard.group, shard.number)
    content = (writer.directory / path).read_bytes()
    if entry is not None and hashlib.sha256(content).hexdigest() != entry.sha256:
        return f"{path} is not as {MANIFEST} lists it"
    if dict(receipt.hashes) != dict(writer.hashes):
        return f"{path} is of another dataset"
    place = (receipt.group, receipt.shard, receipt.of)
    expected = [
        shard_path(what, shard.group, writer.split, shard.number, shard.of, writer.format)
        for what in WHATS
        if receipt.rows.get(what)
    ]
    # Of exactly these paths: what else a damaged or a stranger's receipt names is never opened.
    if place != (shard.group, shard.number, shard.of) or [file.path for file in receipt.files] != expected:
        return f"{path} is of another shard"
    if receipt.content() != content:
        return f"{path} is not of the form that is written"
    return None


def _wrong_files(directory: Path, receipts: Sequence[Receipt]) -> dict[str, str]:
    files = [(receipt, file) for receipt in receipts for file in receipt.files]
    present = [file.path for _, file in files if (directory / file.path).is_file()]
    sizes = {path: (directory / path).stat().st_size for path in present}
    expected = {file.path: file.size for _, file in files}
    found = {e.path: e for e in hash_files(directory, [path for path in present if sizes[path] == expected[path]])}
    wrong: dict[str, str] = {}
    for receipt, file in files:
        entry = found.get(file.path)
        if file.path in sizes and entry is None:
            wrong.setdefault(receipt.path, f"{file.path} is changed")
        elif entry is None:
            wrong.setdefault(receipt.path, f"{file.path} is missing")
        elif (entry.size, entry.sha256) != (file.size, file.sha256):
            wrong.setdefault(receipt.path, f"{file.path} is changed")
    return wrong


def _wrong_rows(directory: Path, shard: Shard, receipt: Receipt) -> str | None:
    """Counts and rows of a receipt against its files, which are as it says."""
    counts: dict[str, Counter[str]] = {cell.shift: Counter() for cell in shard.cells}
    decided = list(read_shard(directory, receipt, ["shift", "label", "class_id", "reason"], "candidates"))
    for row in decided:
        counts.setdefault(row["shift"], Counter())[row["reason"]] += 1
    if receipt.filled is not None and filled_of(shard, decided) != receipt.filled:
        return f"{receipt.path} does not say when its cells were filled"
    rows = {
        "candidates": sum(reasons.total() for reasons in counts.values()),
        "data": sum(reasons[ACCEPTED] for reasons in counts.values()),
        "rejected": sum(1 for _ in read_shard(directory, receipt, ["key"], "rejected")),
    }
    stored = {what: file.rows for what in WHATS if (file := receipt.file(what)) is not None}
    if {shift: dict(reasons) for shift, reasons in counts.items()} != receipt.counts or rows != receipt.rows:
        return f"{receipt.path} does not count what its files hold"
    if stored != {what: number for what, number in rows.items() if number}:
        return f"{receipt.path} does not count what its files hold"
    return None
