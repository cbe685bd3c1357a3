"""Shards that come back to whoever builds, from workers that share no folder: made there, written here.

A worker writes each shard into a temporary folder of its own, as any worker writes, and sends what lies there. Here it
is written again in the same way: whole files, the receipt last.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, overload

from counterfoil.building.spans import Span
from counterfoil.building.workers import Job
from counterfoil.engines import Delivered, Doing
from counterfoil.engines.lost_workers import named
from counterfoil.errors import RunFailure
from counterfoil.plan import Shard
from counterfoil.store import Receipt, ShardWriter
from counterfoil.store.atomic import remove_durably, write_atomically
from counterfoil.store.layout import LOCK, WHATS, parse_shard_path, shard_path
from counterfoil.store.receipts import write_receipt
from counterfoil.store.rows import Candidate


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """A shard on its way here: its receipt, and the content of every file that this names."""

    receipt: Receipt
    contents: Mapping[str, bytes]


@dataclass(frozen=True)
class SendingWriter(ShardWriter):
    """A writer that puts every shard into `sent` instead of the dataset's directory, which is elsewhere.

    came: receipts of shards that lie there already, by their ids.
    """

    sent: deque[ShardFiles] = field(default_factory=deque)
    came: dict[str, Receipt] = field(default_factory=dict)

    @classmethod
    def like(cls, writer: ShardWriter) -> SendingWriter:
        return cls(**{each.name: getattr(writer, each.name) for each in fields(ShardWriter)})

    def made_before(self, shard: Shard) -> Receipt | None:
        """The receipt of a shard that came there already; a folder of the dataset's name on this machine is another."""
        return self.came.get(shard.id)

    def write(self, shard: Shard, candidates: Sequence[Candidate]) -> Receipt:
        """Write a shard where it is read again at once, and remember it to be sent. See `ShardWriter.write`."""
        with tempfile.TemporaryDirectory(prefix="counterfoil-shard-") as folder:
            directory = Path(folder)
            (directory / LOCK).touch()  # without one a writer thinks that the dataset was removed
            given: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(ShardWriter)}
            given["directory"] = directory
            receipt = ShardWriter(**given).write(shard, candidates)
            self.sent.append(ShardFiles(receipt, {f.path: (directory / f.path).read_bytes() for f in receipt.files}))
        return receipt


@dataclass(frozen=True, slots=True)
class SpanToCollect:
    """A span for a worker, and the receipts of its shards that came already from one that was lost, by their ids."""

    span: Span
    came: Mapping[str, Receipt]

    @property
    def id(self) -> str:
        return named(self.span)


class SpansToCollect(Sequence[SpanToCollect]):
    """Spans as they stand whenever they are asked for: an engine asks again for one whose worker was lost."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._came: dict[str, Receipt] = {}

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, at: int) -> SpanToCollect: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SpanToCollect]: ...
    def __getitem__(self, at: int | slice) -> SpanToCollect | Sequence[SpanToCollect]:
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        span = self._spans[at]
        return SpanToCollect(span, {shard.id: self._came[shard.id] for shard in span if shard.id in self._came})

    def note(self, shard: str, receipt: Receipt) -> None:
        """Remember that a shard came and is written."""
        self._came[shard] = receipt


@dataclass(frozen=True, slots=True)
class CollectedJob:
    """A build's work (an `engines.Work`) whose shards are delivered as they are whole."""

    job: Job

    @property
    def device(self) -> str:
        return self.job.device

    @property
    def less_memory(self) -> str:
        return self.job.less_memory

    @property
    def imports(self) -> Sequence[str]:
        return self.job.imports

    def on(self, device: str) -> CollectedJob:
        """The same for a worker on this device."""
        return CollectedJob(self.job.on(device))

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[SpanToCollect], Doing[Any, list[Receipt]]]]:
        """As `Job.ready`; between counts an item yields `Delivered` with `ShardFiles`."""
        writer = SendingWriter.like(self.job.writer)

        with replace(self.job, writer=writer).ready() as make:

            def send(given: SpanToCollect) -> Doing[Any, list[Receipt]]:
                writer.sent.clear()  # of an item that failed
                writer.came.clear()
                writer.came.update(given.came)
                with contextlib.closing(make(given.span)) as work:
                    while True:
                        try:
                            told = next(work)
                        except StopIteration as end:
                            yield from _all_of(writer.sent)
                            return end.value
                        yield from _all_of(writer.sent)
                        if not isinstance(told, Delivered):  # a receipt: it comes with its files
                            yield told

            yield send


def _all_of(sent: deque[ShardFiles]) -> Iterator[Delivered[ShardFiles]]:
    while sent:
        yield Delivered(sent.popleft())


def write_collected(writer: ShardWriter, came: ShardFiles, asked: Collection[tuple[str, int, int]]) -> None:
    """Write a shard that a worker sent into the writer's directory, unless it is there: one may come twice.

    `asked` are the shards that workers make: group, number, of how many. RunFailure for one that is none of these or
    not whole, or that names files that are not its own.
    """
    receipt = came.receipt
    if (receipt.group, receipt.shard, receipt.of) not in asked:
        raise RunFailure(
            f"a worker sent a shard that nobody asked for: {receipt.shard} of {receipt.of} of {receipt.group[:80]!r}",
            "Nothing of it was written. Look at that machine.",
        )
    directory = writer.directory
    if not (directory / LOCK).exists():
        raise RunFailure(
            f"{directory} was removed while it was being built (it has no {LOCK})",
            "Nothing more was written there. Run the same command again.",
        )
    if (directory / receipt.path).exists():
        return
    _refuse_damaged(writer, came)
    for what in WHATS:
        path = shard_path(what, receipt.group, writer.split, receipt.shard, receipt.of, writer.format)
        if path not in came.contents:
            remove_durably(directory / path)  # left by a run that was killed under another stack
    for path, content in came.contents.items():
        write_atomically(directory / path, content)
    write_receipt(directory, receipt)


def _refuse_damaged(writer: ShardWriter, came: ShardFiles) -> None:
    receipt = came.receipt
    named = {file.path: file for file in receipt.files}
    place = (receipt.group, receipt.shard, receipt.of)
    own = all((p := parse_shard_path(path)) is not None and (p.group, p.number, p.of) == place for path in named)
    whole = named.keys() == came.contents.keys() and all(
        hashlib.sha256(content).hexdigest() == named[path].sha256 for path, content in came.contents.items()
    )
    if not own or not whole or dict(receipt.hashes) != dict(writer.hashes):
        raise RunFailure(
            f"{receipt.path}: what a worker sent of this shard is not what its receipt says",
            "Nothing of it was written. Run the same command again; if it happens again, look at that machine.",
        )
