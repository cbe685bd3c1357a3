"""Run items of work in this process or on worker processes; each worker gets ready once (models) and takes items.

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
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any, Protocol

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import one_thread


class Task(Protocol):
    """What a worker does: plain data that pickles, and a way to get ready."""

    @property
    def device(self) -> str: ...

    def ready(self, tell: Callable[[int], None]) -> AbstractContextManager[Callable[[Any], Any]]:
        """Load what is needed and give the function of one item; `tell` reports steps inside an item."""
        ...


def default_workers(workers: int | None, device: str) -> int:
    """One worker a CPU core, one on a GPU, or as given. UserError below 1."""
    if workers is not None:
        if workers < 1:
            raise UserError(f"workers: found {workers}, expected 1 or more")
        return workers
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_items(
    task: Task, items: Sequence[Any], workers: int, tell: Callable[[int], None], on_result: Callable[[Any], None]
) -> None:
    """Do every item; results come as they are done. Raises the first failure once items in flight are done."""
    workers = min(workers, len(items))
    if workers <= 1:
        with one_thread(), task.ready(tell) as do:
            for item in items:
                on_result(do(item))
    else:
        _run_on_workers(task, items, workers, tell, on_result)


def _run_on_workers(
    task: Any, items: Sequence[Any], workers: int, tell: Callable[[int], None], on_result: Callable[[Any], None]
) -> None:
    context = multiprocessing.get_context("spawn")
    heard = context.Queue()
    listener = threading.Thread(target=_listen, args=(heard, tell), daemon=True)
    listener.start()
    # The libraries read this when they start, so it must stand before the workers do.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(task, heard))
    try:
        with _deaf_to_interrupts():
            waiting = [pool.submit(_do, item) for item in items]
        for done in as_completed(waiting):
            on_result(done.result())
    except BrokenProcessPool as error:
        raise RunFailure(
            "a worker process ended unexpectedly (killed, or out of memory)",
            "Run the same command again: what is finished is kept. Fewer --workers need less memory.",
        ) from error
    except KeyboardInterrupt:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        heard.put(None)
        listener.join(timeout=5)
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before


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


def _listen(heard: Any, tell: Callable[[int], None]) -> None:
    while (count := heard.get()) is not None:
        tell(count)


class _Worker:
    """What a worker process keeps between items."""

    task: Any
    context: Any
    do: Callable[[Any], Any] | None = None
    heard: Any


def _start(task: Any, heard: Any) -> None:
    # Ctrl-C reaches the whole terminal group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _Worker.task, _Worker.heard = task, heard


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    if _Worker.do is None:
        # Here and not in the initializer, whose errors would only break the pool.
        import torch

        if _Worker.task.device == "cpu":
            torch.set_num_threads(1)
        _Worker.context = _Worker.task.ready(_Worker.heard.put)  # kept: it would end with its last reference
        do = _Worker.do = _Worker.context.__enter__()
        return do(item)
    return _Worker.do(item)
