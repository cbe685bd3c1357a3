"""Where worker processes come from: one process imports the heavy libraries once, and workers are forked from it.

Importing torch, diffusers and transformers takes seconds of processor time, which every spawned worker pays again. The
server is that of `multiprocessing`. It imports and does nothing else: it computes nothing, starts no thread and touches
no GPU, so that a fork of it is as good as a new process.

Workers are spawned wherever a fork could differ from a new process: on platforms other than Linux, on GPUs, in a
process that was forked after it began its server, beside a server that somebody else began, and where the environment
or the import path changed since (libraries read both while they are imported). So they are where the server fails.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Protocol, runtime_checkable

from counterfoil.models.devices import holds_context

# How often whoever waits for the server wakes: a Ctrl-C that another thread has caught would not wake it.
_WAKES = 0.5  # seconds
# How often a process is asked for of a server that has just been killed, and how long to wait between.
_TRIES, _PAUSE = 20, 0.05  # seconds
# Libraries set these where they are imported, and pytest for each test: they say nothing of what a person changed.
_SET_BY_LIBRARIES = ("KMP_", "TOKENIZERS_", "TORCHINDUCTOR_", "RAY_", "PYTHONBREAKPOINT", "PYTEST_")


@runtime_checkable
class Imports(Protocol):
    """Work that names the heavy modules which its workers import: worth a server."""

    @property
    def imports(self) -> Sequence[str]: ...


@dataclass(slots=True)
class _Server:
    """The server that this process began, and what it was begun in."""

    begun_in: object
    works: bool = False
    asking: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.asking.start()

    def _ask(self) -> None:
        """A first worker, which has nothing to do, is there as soon as all is imported, or never."""
        first = multiprocessing.get_context("forkserver").Process(target=_nothing, daemon=True)
        with contextlib.suppress(OSError, EOFError):
            with deaf_to_interrupts():
                start(first)
            first.join()
            self.works = first.exitcode == 0

    def leave(self) -> None:
        """End a server that is still importing as its process ends: it would go on for seconds, and print an error."""
        number = getattr(forkserver._forkserver, "_forkserver_pid", None)
        if number is not None and self.asking.is_alive():  # in a fork of the process that thread is none
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def is_there(self) -> bool:
        """Whether workers can be forked from it; waits until it has imported all, or failed. Ctrl-C ends the wait."""
        while self.asking.is_alive():
            self.asking.join(_WAKES)
        return self.works


_servers: list[_Server] = []  # one at most


def begin_server(imports: Sequence[str], device: str) -> None:
    """Start the server, once a process, and do not wait: it imports these modules while others get ready."""
    if _servers or holds_context(device) or sys.platform != "linux":
        return
    if getattr(forkserver._forkserver, "_forkserver_pid", None) is not None:
        return  # somebody else's: nobody knows what it was begun in
    here = _here()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(imports))
    with contextlib.suppress(OSError), deaf_to_interrupts(), environment_of_workers(context):
        forkserver.ensure_running()
        _servers.append(_Server(here))
        atexit.register(_servers[0].leave)


def worker_context(device: str) -> BaseContext:
    """How the next worker on a device starts. Waits for a server that was begun."""
    usable = bool(_servers) and not holds_context(device) and _servers[0].begun_in == _here()
    return multiprocessing.get_context("forkserver" if usable and _servers[0].is_there() else "spawn")


def start(process: BaseProcess) -> None:
    """Start a process. One whose server was killed comes from another, as soon as the system knows that it is gone.

    OSError or EOFError where none can be started.
    """
    for _ in range(_TRIES):
        try:
            process.start()
            return
        except (EOFError, ConnectionError):
            time.sleep(_PAUSE)
    process.start()


def _here() -> object:
    """What decides how libraries are imported, and that a server can be asked: only who began it may."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SET_BY_LIBRARIES)}
    return os.getpid(), environment, frozenset(sys.path)  # an order alone says nothing: a worker takes that of today


@contextlib.contextmanager
def environment_of_workers(context: BaseContext) -> Iterator[dict[str, str]]:
    """Processes started inside run one thread: their libraries read this when they start, so it must stand before.

    Gives the environment that workers are to see. A server finds its modules where this process does.
    """
    changes = {"OMP_NUM_THREADS": "1"}
    given = {**os.environ, **changes}
    if context.get_start_method() == "forkserver":
        changes["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        changes["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else libraries that look for a GPU would set CUDA up there
        changes["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # else pyarrow starts a thread where it is imported
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield given
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside are born with Ctrl-C blocked: it would end their imports with a traceback.

    Nor does it end what is done here, which would leave a process that nobody knows, or one with half of what it reads
    first: any other thread may take the signal, and then Python still raises in the main one. It is raised behind.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    caught: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number)) if main else None
    try:
        # The process that watches over semaphores is started with the first worker, and that unblocks Ctrl-C behind it.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if main:
            signal.signal(signal.SIGINT, signal.default_int_handler if handler is None else handler)
        if caught:
            signal.raise_signal(signal.SIGINT)


def _nothing() -> None:
    """What the first worker does."""
