"""So many workers that are simulated, and what the driver asks of the file system meanwhile.

What is asked is counted where Python asks it: by audit events, and by wrapped functions. What C
code asks by itself is not seen (the stat of a directory's entry, which a listing answers without
one, mostly).
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterfoil.building.workers import Job
from counterfoil.engines import Advanced, EngineChoice, Finished, LocalEngine
from counterfoil.engines.engine import Event, Item, Result, Work
from counterfoil.plan.layout import Shard
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.store.dataset_store import ShardWriter
from counterfoil.store.layout import What, shard_path
from counterfoil.store.receipts import Receipt, StoredFile

_EVENTS = {
    "open": "opens",
    "os.scandir": "listings",
    "os.listdir": "listings",
    "os.rename": "renames",
    "os.remove": "removals",
    "os.mkdir": "new folders",
}
# These raise no audit event.
_CALLS = {"stat": "stats", "lstat": "stats", "fsync": "flushes"}
KINDS = ("opens", "stats", "listings", "flushes", "renames", "removals")


class CountedFiles:
    """Counts from when it is made until the process ends, but for what is done `aside`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._counting = True
        sys.addaudithook(self._hear)
        for name, kind in _CALLS.items():
            setattr(os, name, self._wrapped(getattr(os, name), kind))

    def since(self, before: Counter[str]) -> dict[str, int]:
        """Return the requests since an earlier `counts.copy()`."""
        return {kind: self.counts[kind] - before[kind] for kind in KINDS}

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what is done inside: it is a worker's."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        # What is opened by its number was opened by its name before.
        if self._counting and event in _EVENTS and not isinstance(arguments[0], int):
            self.counts[_EVENTS[event]] += 1

    def _wrapped(self, call: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._counting:
                self.counts[kind] += 1
            return call(*arguments, **options)

        return counted


_STUB = b"a shard of images"
_STUB_SHA256 = hashlib.sha256(_STUB).hexdigest()
# Of the time of a batch: GPUs of one kind differ by a few per cent.
_SPREAD = 0.03


@dataclass
class Simulation:
    """What was simulated. clock: when the last item was done; waited: what workers waited for the
    driver, together.

    driver: seconds of a processor that the driver took between events and for handing out items.
    """

    clock: float = 0.0
    waited: float = 0.0
    driver: float = 0.0
    events: int = 0
    items: int = 0
    shards: int = 0
    first: float | None = None  # by the clock of this machine: when the first item was asked for


@dataclass
class SimulatedEngine:
    """So many workers of so many images a second each (an `Engine`). The stack is measured in this
    process."""

    workers: int
    images_per_second: float
    files: CountedFiles
    seen: Simulation = field(default_factory=Simulation)

    @classmethod
    def of(
        cls, devices: Sequence[str], workers: int | None, choice: EngineChoice
    ) -> SimulatedEngine:
        raise NotImplementedError

    @property
    def at_once(self) -> int:
        return self.workers

    @property
    def collects(self) -> bool:
        return False

    def expect(self, imports: Sequence[str]) -> None:
        """Ignore the imports: simulated workers import nothing."""

    @property
    def elsewhere(self) -> bool:
        return False

    def run(
        self, work: Work[Item, Result], items: Sequence[Item]
    ) -> Generator[Event[Item, Result]]:
        if not isinstance(work, Job):
            yield from LocalEngine().run(work, items)
            return
        seen = self.seen
        chance = random.Random(0)
        size = work.recipe.generator.batch_size
        waiting = iter(items)
        # As messages go between processes; an item and its receipts are a few kilobytes, which a
        # pipe holds.
        driver, others = multiprocessing.Pipe()
        # When a worker reports its next batch, which worker, its item and the images left in it.
        coming: list[tuple[float, int, Any, int]] = []
        idle = [(0.0, worker) for worker in range(self.workers)]
        free = 0.0
        while idle or coming:
            for since, worker in idle:
                started = time.thread_time()
                seen.first = seen.first or time.perf_counter()
                item: Any = next(waiting, None)
                driver.send(item)
                free = max(free, since) + self._took(started)
                item = others.recv()
                if item is not None:
                    seen.waited += free - since
                    left = sum(shard.candidates for shard in item)
                    heapq.heappush(coming, (free + self._batch(size, chance), worker, item, left))
            idle = []
            if not coming:
                return
            when, worker, item, left = heapq.heappop(coming)
            started = time.thread_time()
            yield Advanced(min(size, left))
            free = max(free, when) + self._took(started)
            if left > size:
                heapq.heappush(
                    coming, (when + self._batch(size, chance), worker, item, left - size)
                )
                continue
            with self.files.aside():
                others.send([write_stub(work.writer, shard) for shard in item])
            seen.items, seen.shards = seen.items + 1, seen.shards + len(item)
            started = time.thread_time()
            yield Finished(item, driver.recv())
            free = max(free, when) + self._took(started)
            seen.clock = free
            idle = [(when, worker)]

    def _batch(self, size: int, chance: random.Random) -> float:
        return size / self.images_per_second * chance.uniform(1 - _SPREAD, 1 + _SPREAD)

    def _took(self, started: float) -> float:
        took = time.thread_time() - started
        self.seen.driver += took
        self.seen.events += 1
        return took


def write_stub(writer: ShardWriter, shard: Shard) -> Receipt:
    """Write what a worker leaves of a shard: a few bytes in place of each table, and the receipt
    that lists them."""
    rows: dict[What, int] = {
        "data": shard.candidates // 2,
        "rejected": 0,
        "candidates": shard.candidates,
    }
    files = []
    for what, count in rows.items():
        if count:
            path = shard_path(
                what, shard.group, writer.split, shard.number, shard.of, writer.format
            )
            target = writer.directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_STUB)
            files.append(StoredFile(path, len(_STUB), _STUB_SHA256, count))
    counts: dict[str, Counter[str]] = {}
    for cell in shard.cells:
        accepted = cell.candidates // 2
        counts.setdefault(cell.shift, Counter()).update(
            {ACCEPTED: accepted, "low_object": cell.candidates - accepted}
        )
    reasons_by_shift = {shift: dict(reasons) for shift, reasons in counts.items()}
    receipt = Receipt(
        shard.group,
        shard.number,
        shard.of,
        rows,
        reasons_by_shift,
        tuple(files),
        dict(writer.hashes),
        dict(writer.stack),
    )
    target = writer.directory / receipt.path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(receipt.content())
    return receipt
