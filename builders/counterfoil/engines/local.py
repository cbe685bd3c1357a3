"""Items of work in this process or on worker processes; each worker gets ready once (models) and takes items.

On a CPU every worker runs one torch thread and parallelism is workers, so the number of cores changes no byte.
A worker that loses its parent ends itself; its half-written files are removed by the next run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from counterfoil.engines.engine import Advanced, Event, Finished, Item, Result, Work
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import one_thread
from counterfoil.under_way import UnderWay, show, told_as


def default_workers(workers: int | None, device: str) -> int:
    """One worker a CPU core, one on a GPU, or as given. UserError below 1."""
    if workers is not None:
        if workers < 1:
            raise UserError(f"workers: found {workers}, expected 1 or more")
        return workers
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """This machine: so many worker processes, or this process where one is enough (an `Engine`)."""

    workers: int = 1

    @classmethod
    def of(cls, device: str, workers: int | None) -> LocalEngine:
        """One worker a CPU core, one on a GPU, or as given. UserError below 1."""
        return cls(default_workers(workers, device))

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> UnderWay[Event[Item, Result], None]:
        """Do every item and tell of it as it goes. See `Engine.run`."""
        workers = min(self.workers, len(items))
        if workers > 1:
            yield from _run_on_workers(work, items, workers)
        elif items:
            with one_thread(), work.ready() as do:
                for item in items:
                    result = yield from told_as(do(item), Advanced)
                    yield Finished(item, result)


def _run_on_workers(
    work: Work[Item, Result], items: Sequence[Item], workers: int
) -> UnderWay[Event[Item, Result], None]:
    context = multiprocessing.get_context("spawn")
    heard = context.Queue()
    heard.cancel_join_thread()  # a worker that is killed amid a message holds it for ever
    # What comes in, of two roads: counts (place of the item, count) and what becomes of items.
    arrived: SimpleQueue[tuple[int, int] | Future[tuple[Result, int]]] = SimpleQueue()
    listener = threading.Thread(target=_listen, args=(heard, arrived), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(work, heard))
    try:
        with _deaf_to_interrupts(), _one_thread_in_children():
            places = {pool.submit(_do, place, item): place for place, item in enumerate(items)}
        for future in places:
            future.add_done_callback(arrived.put)
        counted = dict.fromkeys(places.values(), 0)
        while counted:
            came = _next(arrived)
            if isinstance(came, Future):
                place = places[came]
                result, count = came.result()
                if missing := count - counted.pop(place):  # the other road is slower
                    yield Advanced(missing)
                yield Finished(items[place], result)
            elif came[0] in counted:
                place, count = came
                counted[place] += count
                yield Advanced(count)
    except BrokenProcessPool as error:
        raise RunFailure(
            "a worker process ended unexpectedly (killed, or out of memory)",
            "Run the same command again: what is finished is kept. Fewer --workers need less memory.",
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        heard.put(None)
        listener.join(timeout=5)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside are born with Ctrl-C blocked: it would end their imports with a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _one_thread_in_children() -> Iterator[None]:
    """Processes started inside run one thread: their libraries read this when they start, so it must stand before."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _next(arrived: SimpleQueue[Any]) -> Any:
    """What comes next. It wakes now and then: a Ctrl-C that another thread has caught would not wake it."""
    while True:
        with contextlib.suppress(Empty):
            return arrived.get(timeout=0.5)


def _listen(heard: Any, arrived: SimpleQueue[Any]) -> None:
    while (counted := heard.get()) is not None:
        arrived.put(counted)


class _Worker:
    """What a worker process keeps between items."""

    work: Any
    context: Any
    do: Callable[[Any], UnderWay[int, Any]] | None = None
    heard: Any


def _start(work: Any, heard: Any) -> None:
    # Ctrl-C reaches the whole terminal group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _Worker.work, _Worker.heard = work, heard


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _do(place: int, item: Any) -> tuple[Any, int]:
    """The result of an item, and all that was counted of it."""
    total = 0

    def tell(count: int) -> None:
        nonlocal total
        total += count
        _Worker.heard.put((place, count))

    result = show(_function()(item), tell)
    return result, total


def _function() -> Callable[[Any], UnderWay[int, Any]]:
    if _Worker.do is None:
        # Here and not in the initializer, whose errors would only break the pool.
        if _Worker.work.device == "cpu":
            import torch

            torch.set_num_threads(1)
        _Worker.context = _Worker.work.ready()  # kept: it would end with its last reference
        _Worker.do = _Worker.context.__enter__()
    assert _Worker.do is not None
    return _Worker.do
