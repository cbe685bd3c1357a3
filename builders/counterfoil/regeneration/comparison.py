"""A dataset that was made again beside its original: which files differ, whether the stack does, and how far rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from counterfoil.errors import RunFailure
from counterfoil.generate.pictures import decoded, psnr
from counterfoil.regeneration.original import Original
from counterfoil.store import Receipt, read_receipts
from counterfoil.store.decoding import UnreadableImage
from counterfoil.store.differences import differences
from counterfoil.store.layout import (
    CARD,
    CROISSANT,
    EMBEDDINGS,
    FIGURES,
    LOCK,
    RECEIPTS,
    RECIPE,
    ROWS,
    THRESHOLDS,
    TIMM_INFO,
    TOKENS,
    WHATS,
    What,
    parse_shard_path,
    receipt_path,
)
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import hash_files, read_manifest
from counterfoil.store.reading import read_shard
from counterfoil.store.receipts import finished_shards, read_receipt
from counterfoil.store.sealed_folder import SEALED_FOLDERS

# What a build writes beside shards; whatever else lies in a directory is not its business.
_DESCRIBING = (CARD, CROISSANT)
_WRITTEN = (*_DESCRIBING, RECIPE, LOCK, THRESHOLDS, TIMM_INFO, EMBEDDINGS, ROWS)
_WRITTEN_FOLDERS = (TOKENS, RECEIPTS, FIGURES)

MOST_ROWS = 200  # whose pixels are compared, over all shards that differ
MOST_LISTED = 20

Shards = Mapping[tuple[str, int], Receipt]


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A candidate that the screen decided otherwise; None where it was not rendered."""

    key: str
    there: str | None
    here: str | None


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """How rows of differing shards differ: `rows` with an image on both sides were compared, at most 200.

    The others of these, neither of `same_bytes` nor of `same_pixels`, have `least_psnr` and `median_psnr` in decibels.
    `decisions` counts candidates of these shards that were decided otherwise; `changed` lists the first of them.
    """

    rows: int
    same_bytes: int
    same_pixels: int
    least_psnr: float | None
    median_psnr: float | None
    decisions: int
    changed: tuple[DecisionChange, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the files of a dataset that was made again are to those that its original's manifest lists.

    `shard_files` of data, candidates and rejected were compared, of which `differing` are others, missing or new;
    `others` are further files of a build that differ; `left_out` those that could not be equal or that no build writes.
    `stack` has a line for each field of the stack that differs, `unexplained` the files that differ without one.
    `rows` is None where no row was compared: nothing differs, or the original's images are not at hand.
    """

    shard_files: int
    differing: tuple[str, ...]
    others: tuple[str, ...]
    left_out: tuple[str, ...]
    stack: tuple[str, ...]
    unexplained: tuple[str, ...]
    rows: RowDifferences | None

    @property
    def identical(self) -> bool:
        """Whether every file that was compared is the same, byte for byte."""
        return not self.differing and not self.others


def readable_receipts(directory: Path) -> dict[tuple[str, int], Receipt]:
    """The receipts of a directory that can be read, by group and number."""
    found: dict[tuple[str, int], Receipt] = {}
    for group, number in finished_shards(directory):
        try:
            receipt = read_receipt(directory / receipt_path(group, number))
        except RunFailure:
            continue  # it proves nothing; the manifest tells that it differs
        if all(isinstance(file.path, str) for file in receipt.files):
            found[group, number] = receipt
    return found


def compare(original: Original, there: Shards, out: Path, *, described: bool, images: bool) -> Comparison | None:
    """The dataset in `out` against its original; None where the original has no manifest that tells what it was.

    `there` are the original's receipts as they were before; `described` says that recipe and card may be compared,
    which words of their own (`--set license=…`) forbid; `images` that the original's images are still at hand.
    """
    here = read_manifest(out)
    lock = read_lock(out)
    if not original.dataset.listed or here is None or lock is None:
        return None
    paths = sorted(original.dataset.listed.keys() | here.keys())
    hashes = {path: [e and e.sha256 for e in (original.dataset.listed.get(path), here.get(path))] for path in paths}
    other = {path for path, (before, after) in hashes.items() if before != after}
    evaluated = any(path.startswith(f"{folder.name}/") for path in other for folder in SEALED_FOLDERS)
    left_out = {path for path in paths if not _is_shard(path) and not _is_written(path)}
    if evaluated or not described:
        left_out |= {*_DESCRIBING} & set(paths)
    if not described:
        left_out |= {RECIPE} & set(paths)
    differing = tuple(path for path in paths if path in other and _is_shard(path))
    others = tuple(path for path in paths if path in other and not _is_shard(path) and path not in left_out)
    after = {(receipt.group, receipt.shard): receipt for receipt in read_receipts(out)}
    stacks = [differences(original.dataset.lock.stack, lock.stack)]
    by_shard = {
        shard: differences(there[shard].stack if shard in there else original.dataset.lock.stack, receipt.stack)
        for shard, receipt in after.items()
    }
    stack = tuple(dict.fromkeys(line for lines in [*stacks, *by_shard.values()] for line in lines))
    alike = [path for path in differing if not by_shard.get(_shard_of(path))]
    return Comparison(
        shard_files=sum(map(_is_shard, paths)),
        differing=differing,
        others=others,
        left_out=tuple(path for path in sorted(left_out) if path in original.dataset.listed),
        stack=stack,
        unexplained=(*alike, *(() if stack else others)),
        rows=_compare_rows(original.dataset.directory, there, out, after, differing) if images and differing else None,
    )


def _is_shard(path: str) -> bool:
    return path.partition("/")[0] in WHATS


def _is_written(path: str) -> bool:
    return path in _WRITTEN or path.partition("/")[0] in _WRITTEN_FOLDERS


def _shard_of(path: str) -> tuple[str, int]:
    file = parse_shard_path(path)
    return (file.group, file.number) if file else ("", 0)


def _compare_rows(
    directory: Path, there: Shards, out: Path, here: Shards, differing: Sequence[str]
) -> RowDifferences | None:
    shards = [
        shard
        for shard in dict.fromkeys(map(_shard_of, differing))
        if shard in here and shard in there and _at_hand(directory, shard, there[shard])
    ]
    if not shards:
        return None
    apart: list[float] = []
    same_bytes = 0
    changed: list[DecisionChange] = []
    decisions = 0
    each = max(1, MOST_ROWS // len(shards))
    for shard in shards:
        if len(apart) + same_bytes < MOST_ROWS:
            before = dict(islice(_images(directory, there[shard]), each))
            for key, image in _images(out, here[shard]):
                if key in before:
                    same_bytes += before[key] == image
                    apart += [] if before[key] == image else [_apart(before[key], image)]
        for change in _changed(directory, there[shard], out, here[shard]):
            decisions += 1
            changed += [change] if len(changed) < MOST_LISTED else []
    finite = [decibels for decibels in apart if decibels != float("inf")]
    return RowDifferences(
        rows=same_bytes + len(apart),
        same_bytes=same_bytes,
        same_pixels=len(apart) - len(finite),
        least_psnr=min(finite, default=None),
        median_psnr=statistics.median(finite) if finite else None,
        decisions=decisions,
        changed=tuple(changed),
    )


def _apart(before: bytes, after: bytes) -> float:
    """The PSNR of two encoded images in decibels; 0 where one is none, or has another size."""
    try:
        one, other = decoded(before), decoded(after)
    except UnreadableImage:
        return 0.0
    return psnr(one, other) if one.shape == other.shape else 0.0


def _at_hand(directory: Path, shard: tuple[str, int], receipt: Receipt) -> bool:
    """Whether the original's own files of a shard are here and as they were written: others prove nothing."""
    if any(_shard_of(file.path) != shard for file in receipt.files):
        return False  # nor is another path opened because a receipt names it
    if not all((directory / file.path).is_file() for file in receipt.files):
        return False
    found = hash_files(directory, [file.path for file in receipt.files])
    return [entry.sha256 for entry in found] == [file.sha256 for file in receipt.files]


def _images(directory: Path, receipt: Receipt) -> Iterator[tuple[str, bytes]]:
    kinds: tuple[What, ...] = ("data", "rejected")
    for what in kinds:
        for row in read_shard(directory, receipt, ["key", "image"], what):
            yield row["key"], (row["image"] or {}).get("bytes") or b""


def _changed(directory: Path, there: Receipt, out: Path, here: Receipt) -> Iterator[DecisionChange]:
    before, after = (
        {row["key"]: row["reason"] for row in read_shard(place, receipt, ["key", "reason"], "candidates")}
        for place, receipt in ((directory, there), (out, here))
    )
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            yield DecisionChange(key, before.get(key), after.get(key))
