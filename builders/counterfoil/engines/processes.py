"""The worker processes of this machine: how they start, what they do, and how the parent talks with them.

Importing torch and diffusers takes seconds. So one process, the server of `multiprocessing`, imports them once and
computes nothing; workers are forked from it. They are spawned wherever a fork could differ from a new process: on GPUs,
on other platforms than Linux, and if the environment or the import path has changed.

Each worker has a pipe of its own, so that one killed amid a message takes nothing of the others along, and a thread in
the parent that sends to it: a worker reads nothing while it loads its models.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from counterfoil.engines.engine import Doing, Work
from counterfoil.engines.executor import DeviceFailed, Ended, Failed, Heard, NoMemory, ending_of, events_of
from counterfoil.errors import RunFailure
from counterfoil.models.devices import holds_context, prepare_worker
from counterfoil.models.loading_errors import device_error, error_line, memory_error
from counterfoil.progress import disable_progress_bars

# How often a waiting process wakes: a Ctrl-C that another thread has caught would not wake it.
_WAKES = 0.5  # seconds
# How often to ask a server that has just been killed for a process, and how long to wait in between.
_TRIES, _PAUSE = 20, 0.05  # seconds
# Libraries set these when they are imported, and pytest for each test; they are no change by a person.
_SET_BY_LIBRARIES = ("KMP_", "TOKENIZERS_", "TORCHINDUCTOR_", "RAY_", "PYTHONBREAKPOINT", "PYTEST_")


@dataclass(slots=True)
class _Server:
    """The server that this process began, and the circumstances (`_here`) in which it began."""

    begun_in: object
    works: bool = False
    asking: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.asking.start()

    def _ask(self) -> None:
        """Start an empty worker: it ends once everything is imported, or fails."""
        first = multiprocessing.get_context("forkserver").Process(daemon=True)
        with contextlib.suppress(OSError, EOFError):
            with deaf_to_interrupts():
                start(first)
            first.join()
            self.works = first.exitcode == 0

    def leave(self) -> None:
        """Kill a server that is still importing when its process ends; it would run on and print an error."""
        number = getattr(forkserver._forkserver, "_forkserver_pid", None)
        if number is not None and self.asking.is_alive():  # a fork of this process does not have the thread
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def is_there(self) -> bool:
        """Wait until the server has imported everything or failed; return whether it works. Ctrl-C ends the wait."""
        while self.asking.is_alive():
            self.asking.join(_WAKES)
        return self.works


_servers: list[_Server] = []  # one at most


def begin_server(imports: Sequence[str], device: str) -> None:
    """Start the server, once a process, and return: it imports these modules while other work goes on."""
    if _servers or holds_context(device) or sys.platform != "linux":
        return
    if getattr(forkserver._forkserver, "_forkserver_pid", None) is not None:
        return  # begun by other code, in an unknown environment
    begun_in = _here()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(imports))
    with contextlib.suppress(OSError), deaf_to_interrupts(), environment_of_workers(context):
        forkserver.ensure_running()
        _servers.append(_Server(begun_in))
        atexit.register(_servers[0].leave)


def worker_context(device: str) -> BaseContext:
    """Choose how the next worker on a device starts. Wait for a server that was begun."""
    usable = bool(_servers) and not holds_context(device) and _servers[0].begun_in == _here()
    return multiprocessing.get_context("forkserver" if usable and _servers[0].is_there() else "spawn")


def start(process: BaseProcess) -> None:
    """Start a process; try again if its server was just killed. OSError or EOFError if none can be started."""
    for _ in range(_TRIES):
        try:
            process.start()
            return
        except (EOFError, ConnectionError):
            time.sleep(_PAUSE)
    process.start()


def _here() -> object:
    """Return what decides how libraries are imported, and the process: only the one that began a server may ask it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SET_BY_LIBRARIES)}
    return os.getpid(), environment, frozenset(sys.path)  # without the order, which a worker takes over


@contextlib.contextmanager
def environment_of_workers(context: BaseContext) -> Iterator[dict[str, str]]:
    """Let processes started inside run one thread, and yield the environment that workers are to see."""
    changes = {"OMP_NUM_THREADS": "1"}
    given = {**os.environ, **changes}
    if context.get_start_method() == "forkserver":
        changes["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        changes["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else libraries that look for a GPU would set CUDA up
        changes["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # else importing pyarrow starts a thread
    with changed_environment(changes):
        yield given


@contextlib.contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Block Ctrl-C while processes start: it would end their imports with a traceback. Raise it after the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    caught: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number)) if main else None
    try:
        # The resource tracker starts with the first worker and would then unblock Ctrl-C.
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


# How long a dismissed worker may take to end; then it is killed.
_PATIENCE = 30.0  # seconds


# The first message of a process, before it takes its work.
_BEGAN = "began"


class WorkerProcess:
    """A worker as its parent sees it: it is given work for its device once, then items."""

    def __init__(self, work: Work[Any, Any], device: str, context: Any) -> None:
        """Start the process; call it inside `deaf_to_interrupts`. RunFailure if the machine starts no more."""
        self.device = device
        self._pipe, child_end = context.Pipe()
        self._began = False
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(target=_send_all, args=(self._pipe, self._outgoing), daemon=True)
        try:
            with environment_of_workers(context) as environment:
                self._process = context.Process(target=_serve, args=(child_end, environment))
                start(self._process)
        except (OSError, EOFError) as error:
            reason = "the process it forks from has ended" if isinstance(error, EOFError) else error.strerror or error
            raise RunFailure(
                f"a worker process could not be started: {reason}",
                "Stop other programs on this machine, or use fewer --workers.",
            ) from error
        finally:
            child_end.close()
        self._sender.start()
        try:
            self._send(work)
        except BaseException:  # for example, it does not pickle
            self.terminate()
            self.ended()
            raise

    def give(self, item: Any) -> None:
        """Send the next item to an idle worker; return at once, even if it is still loading."""
        self._send((item,))

    def _send(self, message: object) -> None:
        self._outgoing.put(ForkingPickler.dumps(message))  # pickled here, so that the sender gets the error

    def messages(self) -> Iterator[Heard]:
        """Yield the next message, if one has come, or else that the worker has ended, if it has."""
        try:
            while self._pipe.poll():
                message = self._pipe.recv()
                if message == _BEGAN:
                    self._began = True
                else:
                    yield message
                    return  # one at a time, so that no worker is served alone
            if self._process.is_alive():
                return
        except (EOFError, OSError):
            pass  # the worker's end is closed: it is dead or about to be
        code = self.ended()
        yield Ended(ending_of(code), code, self._began)

    def dismiss(self) -> None:
        self._send(None)

    def terminate(self) -> None:
        self._process.terminate()

    def ended(self) -> int | None:
        """Wait until a dismissed, terminated or failing worker has ended; return its exit code if it ended itself."""
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self._outgoing.put(None)
        self._sender.join(_PATIENCE)  # the pipe has no reader any more, so sending fails
        self._pipe.close()
        return code

    @staticmethod
    def wait_for(workers: Sequence[WorkerProcess]) -> None:
        """Wait until one of them has a message or has ended, or a short time is over."""
        sources = [source for worker in workers for source in (worker._pipe, worker._process.sentinel)]
        wait(sources, timeout=_WAKES)


def _send_all(pipe: Connection, outgoing: queue.SimpleQueue[Any]) -> None:
    with contextlib.suppress(OSError):  # the worker is dead, which `messages` reports
        while (message := outgoing.get()) is not None:
            pipe.send_bytes(message)


def _serve(pipe: Connection, environment: Mapping[str, str]) -> None:
    """Run the process: take its work, then items, until it is dismissed or its device fails."""
    if os.environ != environment:  # a fork of the server has the server's environment
        os.environ.clear()
        os.environ.update(environment)
    # Ctrl-C reaches the whole terminal group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    disable_progress_bars()  # the terminal is the parent's, which reports progress
    _tell(pipe, _BEGAN)
    with contextlib.ExitStack() as kept:
        try:
            work = pipe.recv()
            prepare_worker(work.device)
            do: Callable[[Any], Doing[int, Any]] = kept.enter_context(work.ready())
        except Exception as error:
            _tell_failure(pipe, error, was_ready=False)
            return
        while True:
            try:
                message = pipe.recv()
            except (EOFError, OSError):  # the parent is gone
                return
            if message is None:
                return
            (item,) = message
            try:
                for event in events_of(do(item)):
                    _tell(pipe, event)
            except Exception as error:
                _tell_failure(pipe, error, was_ready=True)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _tell(pipe: Connection, message: object) -> None:
    try:
        pipe.send(message)
    except OSError as error:  # the parent is gone; this is no error of the item
        raise SystemExit(1) from error


def _tell_failure(pipe: Connection, error: Exception, *, was_ready: bool) -> None:
    """Report an error by its kind: memory first, since CUDA reports that as a device error too."""
    if (reason := memory_error(error)) is not None:
        _tell(pipe, NoMemory(reason))
    elif (reason := device_error(error)) is not None:
        _tell(pipe, DeviceFailed(reason, was_ready))
        os._exit(1)  # a normal exit would wait for the device, or fail on it again
    else:
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        try:
            copy.copy(error)  # as unpickling does: errors of some libraries cannot be rebuilt
            _tell(pipe, Failed(error))
        except Exception:
            _tell(pipe, Failed(RunFailure(error_line(error))))
