"""Items of work in this process or on worker processes; each worker gets ready once (models) and takes items.

On a CPU every worker runs one torch thread and parallelism is workers, so the number of cores changes no byte.
On GPUs work is never done in this process: it holds no context there, and each worker is on one GPU.
A worker that loses its parent ends itself; its half-written files are removed by the next run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.engines.engine import (
    Advanced,
    Delivered,
    Doing,
    EngineChoice,
    Event,
    Finished,
    Item,
    Lost,
    Result,
    Work,
)
from counterfoil.engines.fork_server import Imports, begin_server, deaf_to_interrupts, worker_context
from counterfoil.engines.lost_workers import Deaths, ending_of, named, no_device_left
from counterfoil.engines.worker_process import (
    DeviceFailed,
    Done,
    Ended,
    Failed,
    Heard,
    NoMemory,
    WorkerProcess,
    in_words,
)
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import holds_context, one_thread
from counterfoil.models.loading_errors import memory_error


def default_workers(workers: int | None, device: str) -> int:
    """Workers on a device: one a CPU core, one on a GPU, or as given. UserError below 1."""
    if workers is not None:
        if workers < 1:
            raise UserError(f"workers: found {workers}, expected 1 or more")
        return workers
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """This machine: so many worker processes on each device, or this process where a CPU needs one (an `Engine`)."""

    workers: int = 1
    devices: tuple[str, ...] = ("cpu",)

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> LocalEngine:
        """One worker a CPU core, one on each GPU, or as given. UserError below 1."""
        return cls(default_workers(workers, devices[0]), tuple(devices))

    @property
    def at_once(self) -> int:
        return self.workers * len(self.devices)

    @property
    def collects(self) -> bool:
        return False

    @property
    def elsewhere(self) -> bool:
        return False

    def expect(self, imports: Sequence[str]) -> None:
        """Start importing for workers, where there will be any. See `Engine.expect`."""
        if self.at_once > 1:
            begin_server(imports, self.devices[0])

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        """Do every item and tell of it as it goes. See `Engine.run`."""
        # Every device has its first worker before any has its second: there may be fewer items than workers.
        devices = [device for _ in range(self.workers) for device in self.devices]
        at_once = min(len(devices), len(items))
        deaths = Deaths(work, self.workers, at_once)
        if at_once > 1 or (at_once == 1 and holds_context(devices[0])):
            if isinstance(work, Imports):
                begin_server(work.imports, devices[0])
            yield from _run_on_workers(work, items, devices, deaths)
        elif items:
            yield from _run_here(work.on(devices[0]), items, deaths)


def _run_here(work: Work[Item, Result], items: Sequence[Item], deaths: Deaths) -> Generator[Event[Item, Result]]:
    item = items[0]
    try:
        with one_thread(), work.ready() as do:
            for item in items:
                result = yield from _events_of(do(item))
                yield Finished(item, result)
    except Exception as error:
        reason = memory_error(error)
        if reason is None:
            raise
        raise deaths.out_of_memory(item, work.device, reason) from error


def _events_of(doing: Doing[Any, Result]) -> Doing[Advanced | Delivered[Any], Result]:
    """An item as it is done here; closed before its end, it closes the item."""
    with contextlib.closing(doing):
        while True:
            try:
                told = next(doing)
            except StopIteration as end:
                return end.value
            yield in_words(told)


@dataclass(slots=True, eq=False)
class _Place:
    """A worker's place on a device: the process, if one runs, which item it has, and how much it counted of that."""

    device: str
    worker: WorkerProcess | None = None
    item: int | None = None
    counted: int = 0


def _run_on_workers(
    work: Work[Item, Result], items: Sequence[Item], devices: Sequence[str], deaths: Deaths
) -> Generator[Event[Item, Result]]:
    places = [_Place(device) for device in devices[: len(items)]]
    spare = list(devices[len(items) :])
    waiting = deque(range(len(items)))
    counted = [0] * len(items)  # what was told of each, whoever did it
    gone: list[str] = []
    failure: BaseException | None = None

    def terminate() -> None:
        for place in places:
            if place.worker is not None:
                place.worker.terminate()

    atexit.register(terminate)  # where nobody closes this, whoever exits would wait for workers that wait for him
    try:
        while True:
            if failure is None:
                failure = _deal(work, items, waiting, places)
            if all(place.item is None for place in places):
                break
            for place, heard in _heard(places):
                item, place.item = place.item, None
                if item is None:  # it died before it was given anything more
                    place.worker = None
                    continue
                match heard:
                    case Advanced(count):
                        place.item = item
                        place.counted += count
                        if (more := place.counted - counted[item]) > 0:
                            counted[item] = place.counted
                            yield Advanced(more)
                    case Delivered():
                        place.item = item
                        yield heard
                    case Done(result):
                        deaths.finished += 1
                        yield Finished(items[item], result)
                    case Failed(error):
                        failure = failure or error
                    case NoMemory(reason):
                        failure = failure or deaths.out_of_memory(items[item], place.device, reason)
                    case DeviceFailed() | Ended():
                        waiting.appendleft(item)
                        _let_go(place)
                        if isinstance(heard, DeviceFailed) and not heard.was_ready:
                            places.remove(place)
                            gone.append(f"{place.device}: {heard.reason}")
                            places += [_Place(device) for device in spare[:1]]
                            spare = spare[1:]
                        if failure is not None:
                            continue
                        try:
                            told = _told(heard, place, places, gone, deaths, item, items[item])
                        except RunFailure as error:
                            failure = error
                        else:
                            yield Lost(told)
    except BaseException:
        terminate()
        raise
    finally:
        atexit.unregister(terminate)
        for place in places:
            if place.worker is not None:
                place.worker.dismiss()
        for place in places:
            _let_go(place)
    if failure is not None:
        raise failure


def _deal(
    work: Work[Item, Result], items: Sequence[Item], waiting: deque[int], places: Sequence[_Place]
) -> RunFailure | None:
    """Give every place that has nothing the next item, and a process where it has none; what prevents that.

    Processes are started before any item is read, so that all get ready while the first ones are sent.
    """
    idle = [place for place in places if place.item is None][: len(waiting)]
    failure = None
    for place in idle:
        if place.worker is not None:
            continue
        context = worker_context(place.device)
        try:
            with deaf_to_interrupts():  # a worker is known as soon as it is there, and so ended with the others
                place.worker = WorkerProcess(work.on(place.device), context)
        except RunFailure as error:
            failure = error
            break
    for place in idle:
        if place.worker is not None:
            place.worker.give(items[waiting[0]])
            place.item, place.counted = waiting.popleft(), 0
    return failure


def _heard(places: Sequence[_Place]) -> Iterator[tuple[_Place, Heard]]:
    """What workers tell next, one thing of each at most."""
    running = [(place, place.worker) for place in places if place.worker is not None]
    WorkerProcess.wait_for([worker for _, worker in running])
    for place, worker in running:
        for heard in worker.told():
            yield place, heard


def _let_go(place: _Place) -> None:
    if place.worker is not None:
        place.worker.ended()
        place.worker = None


def _told(
    heard: DeviceFailed | Ended,
    place: _Place,
    others: Sequence[_Place],
    gone: Sequence[str],
    deaths: Deaths,
    number: int,
    item: Any,
) -> str:
    """What to tell of a worker that is lost while the run goes on. RunFailure where it cannot."""
    match heard:
        case DeviceFailed(reason, was_ready=False):
            if not others:
                raise no_device_left(gone)
            return f"{place.device} cannot be used: {reason}; {named(item)} and what follows go to other workers"
        case DeviceFailed(reason):
            return deaths.count(number, item, place.device, f"lost its device ({reason})", None, True)
        case Ended(code, began):
            return deaths.count(number, item, place.device, ending_of(code), code, began)
