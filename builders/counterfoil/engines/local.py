"""Do work in this process or in worker processes of this machine. A worker loads models once for
all its items.

A CPU worker runs one thread, so the number of cores changes no byte of the results. Work on a GPU
is never done in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from counterfoil.engines.engine import (
    Doing,
    Engine,
    EngineChoice,
    Event,
    Finished,
    Item,
    Result,
    Work,
)
from counterfoil.engines.executor import (
    Deaths,
    DeviceFailed,
    Done,
    Ended,
    Failed,
    Heard,
    NoMemory,
    events_of,
    hand_out,
)
from counterfoil.engines.processes import (
    WorkerProcess,
    begin_server,
    deaf_to_interrupts,
    worker_context,
)
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.devices import holds_context, touch_device
from counterfoil.models.loading_errors import memory_error


def default_workers(workers: int | None, device: str) -> int:
    """Return the number of workers on a device. UserError if `workers` is below 1.

    If `workers` is None, there is one worker for each CPU core, or one worker on a GPU.
    """
    if workers is not None:
        if workers < 1:
            raise UserError(f"workers: found {workers}, expected 1 or more")
        return workers
    if device != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class LocalEngine(Engine):
    """The `Engine` that works on this machine: by this process for a single CPU worker, else by
    worker processes."""

    workers: int = 1
    devices: tuple[str, ...] = ("cpu",)

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> LocalEngine:
        return cls(default_workers(workers, devices[0]), tuple(devices))

    @property
    def at_once(self) -> int:
        return self.workers * len(self.devices)

    def expect(self, imports: Sequence[str]) -> None:
        if self.at_once > 1:
            begin_server(imports, self.devices[0])

    def run(
        self,
        work: Work[Item, Result],
        items: Sequence[Item],
    ) -> Generator[Event[Item, Result]]:
        # Every device gets its first worker before any gets its second: there may be fewer items
        # than workers.
        devices = [device for _ in range(self.workers) for device in self.devices]
        at_once = min(len(devices), len(items))
        deaths = Deaths(work, self.workers, at_once)
        if at_once > 1 or (at_once == 1 and holds_context(devices[0])):
            if imports := getattr(work, "imports", None):
                begin_server(imports, devices[0])
            crew = _Processes(work, devices, at_once)
            # If this generator is never closed, this process would wait at exit for its workers,
            # which wait for this process.
            atexit.register(crew.terminate)
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
            return
        if not items:
            return
        work = work.on(devices[0])
        item = items[0]
        try:
            threads = one_thread() if getattr(work, "models", True) else contextlib.nullcontext()
            with threads, work.ready() as do:
                for item in items:
                    for event in events_of(do(item)):
                        yield Finished(item, event.result) if isinstance(event, Done) else event
        except Exception as error:
            reason = memory_error(error)
            if reason is None:
                raise
            raise deaths.out_of_memory(item, work.device, reason) from error


class _Processes:
    """The `executor.Crew` of worker processes. Each process occupies a slot, which is a place on a
    device.

    Spare slots replace the slots on a lost device.
    """

    def __init__(self, work: Work[Any, Any], devices: Sequence[str], at_once: int) -> None:
        self._work = work
        self._free = list(devices[:at_once])  # slots without a process
        self._spare = list(devices[at_once:])
        self._unstarted: RunFailure | None = None  # why a process could not start
        self._workers: dict[WorkerProcess, bool] = {}  # worker → whether it has an item

    def idle(self, wanted: int) -> list[WorkerProcess]:
        """Return idle processes. New processes all start before one gets an item, so they load at
        the same time."""
        if self._unstarted is not None:  # raised only after the others got items
            raise self._unstarted
        idle = [worker for worker, busy in self._workers.items() if not busy][:wanted]
        while self._free and len(idle) < wanted:
            device = self._free[0]
            context = worker_context(device)
            try:
                with deaf_to_interrupts():  # Ctrl-C waits until the process is recorded
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

    def can_continue(self) -> bool:
        return bool(self._workers or self._free)

    def heard(self) -> Iterator[tuple[WorkerProcess, Heard]]:
        """Yield the next events, at most one for each worker."""
        workers = list(self._workers)
        WorkerProcess.wait_for(workers)
        for worker in workers:
            for event in worker.messages():
                if isinstance(event, DeviceFailed | Ended):
                    worker.ended()
                    del self._workers[worker]
                    if isinstance(event, Ended):
                        self._free.append(worker.device)
                    else:
                        self._free += self._spare[:1]
                        del self._spare[:1]
                else:
                    self._workers[worker] = not isinstance(event, Done | Failed | NoMemory)
                yield worker, event

    def terminate(self) -> None:
        for worker in self._workers:
            worker.terminate()

    def end(self) -> None:
        """Dismiss the remaining workers and wait until they have ended."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.ended()


Value = TypeVar("Value")


def called_on(device: str, function: Callable[..., Value], *arguments: Any) -> Value:
    """Return `function(*arguments)`, whose arguments include the device. Errors of the function
    pass through.

    If work on the device would leave a CUDA context in this process, another process calls the
    function. The function must then be defined at the top level of a module, and its arguments,
    result and errors must pickle.
    """
    if not holds_context(device):
        return function(*arguments)
    call = Call(partial(_called_with, function, arguments), device)
    return _only_result(LocalEngine(devices=(device,)), call, function.__name__.replace("_", " "))


def stack_where_done(
    engine: Engine,
    device: str,
    measure: Callable[[str], dict[str, Any]],
    *,
    models: bool = True,
) -> dict[str, Any]:
    """Return the stack of a device that this engine works on.

    measure: pickles, and is called with the device. models: whether it needs torch.
    """
    return _only_result(engine, Call(measure, device, models), "the stack")


@dataclass(frozen=True, slots=True)
class Call:
    """An `engines.Work` that calls a function with the worker's device. Its only item is the name
    of the call."""

    function: Callable[[str], Any]
    device: str
    models: bool = True

    def on(self, device: str) -> Call:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[str], Doing[int, Any]]]:
        if self.models:
            touch_device(self.device)
        yield self._called

    def _called(self, item: str) -> Doing[int, Any]:
        yield from ()  # a call counts no progress
        return self.function(self.device)


def _called_with(function: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> Any:
    """Return `function(*arguments)`. A `Call` also passes the device, which the arguments include."""
    return function(*arguments)


def _only_result(engine: Engine, call: Call, name: str) -> Any:
    with contextlib.closing(engine.run(call, [name])) as events:
        return next(event.result for event in events if isinstance(event, Finished))
