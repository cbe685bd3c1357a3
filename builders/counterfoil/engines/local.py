"""Items of work, or one call, in this process or on worker processes; a worker loads models once and takes items.

On a CPU every worker runs one torch thread and parallelism is workers, so the number of cores changes no byte.
On GPUs work is never done in this process: it holds no context there, and each worker is on one GPU.
A worker that loses its parent ends itself; its half-written files are removed by the next run.
Stacks are measured where work is done, by each worker again when it gets ready, since they need not be alike.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from counterfoil.engines.engine import Doing, Engine, EngineChoice, Event, Finished, Item, Result, Work
from counterfoil.engines.executor import Deaths, DeviceFailed, Done, Ended, Failed, Heard, NoMemory, events_of, hand_out
from counterfoil.engines.processes import WorkerProcess, begin_server, deaf_to_interrupts, worker_context
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import holds_context, one_thread, stack_of, touch
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
            if imports := getattr(work, "imports", None):
                begin_server(imports, devices[0])
            yield from _run_on_workers(_Processes(work, devices, at_once), items, deaths)
        elif items:
            yield from _run_here(work.on(devices[0]), items, deaths)


def _run_here(work: Work[Item, Result], items: Sequence[Item], deaths: Deaths) -> Generator[Event[Item, Result]]:
    item = items[0]
    try:
        with one_thread(), work.ready() as do:
            for item in items:
                for event in events_of(do(item)):
                    yield Finished(item, event.result) if isinstance(event, Done) else event
    except Exception as error:
        reason = memory_error(error)
        if reason is None:
            raise
        raise deaths.out_of_memory(item, work.device, reason) from error


def _run_on_workers(crew: _Processes, items: Sequence[Any], deaths: Deaths) -> Generator[Event[Any, Any]]:
    atexit.register(crew.terminate)  # where nobody closes this, whoever exits would wait for workers that wait for him
    try:
        failure = yield from hand_out(crew, items, deaths)
    except BaseException:
        crew.terminate()
        raise
    finally:
        atexit.unregister(crew.terminate)
        crew.end()
    if failure is not None:
        raise failure


class _Processes:
    """Worker processes on the places of devices (an `executor.Crew`); other places stand in for a device that is gone.

    Each place has a process from when an item waits for it, and a new one where that is lost.
    """

    def __init__(self, work: Work[Any, Any], devices: Sequence[str], at_once: int) -> None:
        self._work = work
        self._free = list(devices[:at_once])  # places without a process
        self._spare = list(devices[at_once:])
        self._unstarted: RunFailure | None = None  # why a process could not start
        self._workers: dict[WorkerProcess, bool] = {}  # whether it has an item

    def idle(self, wanted: int) -> list[WorkerProcess]:
        """Processes are started before any item is read, so that all get ready while the first ones are sent."""
        if self._unstarted is not None:  # raised now that those which were there had something to do first
            raise self._unstarted
        idle = [worker for worker, busy in self._workers.items() if not busy][:wanted]
        while self._free and len(idle) < wanted:
            device = self._free[0]
            context = worker_context(device)
            try:
                with deaf_to_interrupts():  # a worker is known as soon as it is there, and so ended with the others
                    worker = WorkerProcess(self._work.on(device), device, context)
                    self._workers[worker] = False
            except RunFailure as error:
                self._unstarted = error
                break
            self._free.pop(0)
            idle.append(worker)
        if self._unstarted is not None and not idle:
            raise self._unstarted
        self._workers |= dict.fromkeys(idle, True)
        return idle

    def stands_in(self) -> bool:
        return bool(self._workers or self._free)

    def heard(self) -> Iterator[tuple[WorkerProcess, Heard]]:
        """What workers tell next, one thing of each at most."""
        workers = list(self._workers)
        WorkerProcess.wait_for(workers)
        for worker in workers:
            for event in worker.messages():
                if isinstance(event, DeviceFailed | Ended):
                    worker.ended()
                    del self._workers[worker]
                    gone = isinstance(event, DeviceFailed) and not event.was_ready
                    self._free += self._spare[:1] if gone else [worker.device]
                    self._spare = self._spare[1:] if gone else self._spare
                else:
                    self._workers[worker] = not isinstance(event, Done | Failed | NoMemory)
                yield worker, event

    def terminate(self) -> None:
        for worker in self._workers:
            worker.terminate()

    def end(self) -> None:
        """Let those that are left end themselves, and wait for that."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.ended()


Value = TypeVar("Value")


def called_on(device: str, function: Callable[..., Value], *arguments: Any) -> Value:
    """`function(*arguments)`, whose arguments name the device. What it raises is raised.

    Where work on the device would leave a context in this process, another one calls: then the function is one of a
    module, and it, its arguments and its value pickle.
    """
    if not holds_context(device):
        return function(*arguments)
    call = Call(partial(_met, function, arguments), device)
    return _only_result(LocalEngine(devices=(device,)), call, function.__name__.replace("_", " "))


def stack_where_done(
    engine: Engine, device: str, dtype: str, batch_size: int, libraries: tuple[str, ...] = (), *, compiled: bool = False
) -> dict[str, Any]:
    """What bytes depend on beside a recipe and its inputs, where this engine works. See `stack_of`."""
    measure = partial(stack_of, dtype=dtype, batch_size=batch_size, libraries=libraries, compiled=compiled)
    return _only_result(engine, Call(measure, device), "the stack")


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the worker's device as its work (an `engines.Work`), whose only item is what the call is called."""

    function: Callable[[str], Any]
    device: str

    def on(self, device: str) -> Call:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[str], Doing[int, Any]]]:
        touch(self.device)
        yield self._called

    def _called(self, item: str) -> Doing[int, Any]:
        yield from ()  # nothing to count
        return self.function(self.device)


def _met(function: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> Any:
    return function(*arguments)


def _only_result(engine: Engine, call: Call, name: str) -> Any:
    with contextlib.closing(engine.run(call, [name])) as events:
        return next(event.result for event in events if isinstance(event, Finished))
