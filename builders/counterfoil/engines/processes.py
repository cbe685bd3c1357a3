"""Start the worker processes of this machine, run work in them, and exchange messages with them.

Importing torch and diffusers takes seconds. So one process, the fork server of `multiprocessing`,
imports these libraries once, and workers are forked from the server. The server computes nothing.
Workers are spawned instead if a fork could differ from a new process: on GPUs, on platforms other
than Linux, and if the environment or the import path has changed.

Workers do not import the program that called this package, as those of `multiprocessing` do: see
`_without_program`.

Each worker has its own pipe, so a worker that is killed while sending does not damage the messages
of other workers. A thread in the parent sends messages to each worker, because a worker reads no
messages while it loads its models.
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
from multiprocessing import forkserver, resource_tracker, spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from counterfoil.engines.engine import Doing, Work
from counterfoil.engines.executor import (
    DeviceFailed,
    Ended,
    Failed,
    Heard,
    NoMemory,
    ending_of,
    events_of,
)
from counterfoil.errors import RunFailure
from counterfoil.models.devices import holds_context, prepare_worker
from counterfoil.models.loading_errors import device_error, error_line, memory_error
from counterfoil.progress import disable_progress_bars

# A waiting process wakes after so many seconds. A Ctrl-C that another thread has caught would not
# wake the process.
_WAKES = 0.5  # seconds
# If the server has just been killed, ask for a process so many times, with a pause between two
# tries.
_TRIES = 20
_PAUSE = 0.05  # seconds
# Libraries set environment variables with these prefixes when they are imported, and pytest sets
# some for each test. So a change of such a variable does not mean that a user changed the
# environment.
_SET_BY_LIBRARIES = ("KMP_", "TOKENIZERS_", "TORCHINDUCTOR_", "RAY_", "PYTHONBREAKPOINT", "PYTEST_")
# The name of every process that starts here. By it, `_without_program` recognises them among a
# program's processes.
_NAME = "Counterfoil worker"

_preparation_of_multiprocessing = spawn.get_preparation_data


def _without_program(name: str) -> dict[str, Any]:
    """Return how a process prepares itself, for a process of ours without the program that called
    this package.

    `multiprocessing` runs that program again in each process, so that the process can unpickle its
    functions. A script without `if __name__ == "__main__":` would start all over there, and a
    program on standard input has no file to run. No work of ours holds anything of that program, so
    nothing is lost: its functions answer in its own process.
    """
    preparation = _preparation_of_multiprocessing(name)
    if name == _NAME:
        preparation.pop("init_main_from_name", None)
        preparation.pop("init_main_from_path", None)
    return preparation


# The module offers no other way; every start method calls this function by its name in this module.
spawn.get_preparation_data = _without_program


@dataclass(slots=True)
class _Server:
    """The fork server that this process started. `begun_in`: the result of `_state` at the start of
    the server."""

    begun_in: object
    works: bool = False
    asking: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.asking.start()

    def _ask(self) -> None:
        """Start a worker without work. The worker ends when the server has imported everything, or
        fails."""
        first = multiprocessing.get_context("forkserver").Process(name=_NAME, daemon=True)
        with contextlib.suppress(OSError, EOFError):
            with deaf_to_interrupts():
                start(first)
            first.join()
            self.works = first.exitcode == 0

    def leave(self) -> None:
        """Kill the server at the end of this process if it is still importing: it would run on and
        print an error."""
        number = getattr(forkserver._forkserver, "_forkserver_pid", None)
        # in a fork of this process, the thread is not alive
        if number is not None and self.asking.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def is_there(self) -> bool:
        """Wait until the server has imported everything or failed; return whether it works. Ctrl-C
        ends the wait."""
        while self.asking.is_alive():
            self.asking.join(_WAKES)
        return self.works


_servers: list[_Server] = []  # one at most


def begin_server(imports: Sequence[str], device: str) -> None:
    """Start the server, at most once in this process, and return while the server imports these
    modules."""
    if _servers or holds_context(device) or sys.platform != "linux":
        return
    if getattr(forkserver._forkserver, "_forkserver_pid", None) is not None:
        return  # other code started a server, in an unknown environment
    begun_in = _state()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(imports))
    with contextlib.suppress(OSError), deaf_to_interrupts(), environment_of_workers(context):
        forkserver.ensure_running()
        _servers.append(_Server(begun_in))
        atexit.register(_servers[0].leave)


def worker_context(device: str) -> BaseContext:
    """Choose how the next worker on a device starts: by fork server or spawned. Wait for a server
    that is importing."""
    usable = bool(_servers) and not holds_context(device) and _servers[0].begun_in == _state()
    # `is_there` waits.
    if usable and _servers[0].is_there():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def start(process: BaseProcess) -> None:
    """Start a process, and try again if its server was just killed. OSError or EOFError if the
    process cannot start."""
    for _ in range(_TRIES):
        try:
            process.start()
            return
        except (EOFError, ConnectionError):
            time.sleep(_PAUSE)
    process.start()


def _state() -> object:
    """Return the process id, and everything that decides how libraries are imported.

    The process id is included because only the process that started a server may ask it for
    workers.
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_SET_BY_LIBRARIES)
    }
    return (
        os.getpid(),
        environment,
        frozenset(sys.path),
    )  # without the order, because each worker gets the order of this process


@contextlib.contextmanager
def environment_of_workers(context: BaseContext) -> Iterator[dict[str, str]]:
    """Let processes that start inside the block run one thread. Yield the environment that workers
    must have."""
    changes = {"OMP_NUM_THREADS": "1"}
    # The changes below are for the fork server's start alone.
    of_workers = {**os.environ, **changes}
    if context.get_start_method() == "forkserver":
        changes["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        # otherwise libraries that look for a GPU would initialise CUDA
        changes["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        # otherwise importing pyarrow starts a thread
        changes["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    with changed_environment(changes):
        yield of_workers


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
    """Delay Ctrl-C until after the block, in which processes start: it would end their imports with
    a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    caught: list[int] = []
    handler = None
    # Only the main thread may set handlers.
    if threading.current_thread() is threading.main_thread():
        handler = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
        if handler is None:  # it was not set from Python, which cannot set it again
            handler = signal.default_int_handler
    try:
        # Start the resource tracker now. Otherwise it starts with the first worker, and its start
        # unblocks Ctrl-C.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if caught:
            signal.raise_signal(signal.SIGINT)


# A dismissed worker that has not ended after this time is killed.
_PATIENCE = 30.0  # seconds


class WorkerProcess:
    """A worker process, seen from its parent. The parent sends the work once, and then items."""

    def __init__(self, work: Work[Any, Any], device: str, context: Any) -> None:
        """Start the process. Call this inside `deaf_to_interrupts`. RunFailure if the process
        cannot start."""
        self.device = device
        self._pipe, child_end = context.Pipe()
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(
            target=_send_all,
            args=(self._pipe, self._outgoing),
            daemon=True,
        )
        try:
            with environment_of_workers(context) as environment:
                self._process = context.Process(
                    target=_serve,
                    name=_NAME,
                    args=(child_end, environment),
                )
                start(self._process)
        except (OSError, EOFError) as error:
            reason = (
                "the process it forks from has ended"
                if isinstance(error, EOFError)
                else error.strerror or error
            )
            raise RunFailure(
                f"a worker process could not be started: {reason}",
                "Stop other programs on this machine, or use fewer --workers.",
            ) from error
        finally:
            child_end.close()
        self._sender.start()
        try:
            self._send(work)
        except BaseException:  # for example, if the work does not pickle
            self.terminate()
            self.ended()
            raise

    def give(self, item: Any) -> None:
        """Send the next item to an idle worker, and return at once, even if the worker is still
        loading."""
        self._send((item,))

    def _send(self, message: object) -> None:
        # pickled here, so that the caller gets an error of pickling
        self._outgoing.put(ForkingPickler.dumps(message))

    def messages(self) -> Iterator[Heard]:
        """Yield the next message of the worker, if there is one. Yield `Ended` if the worker has
        ended."""
        try:
            if self._pipe.poll():
                yield self._pipe.recv()
                return  # one message at a time, so that every worker gets its turn
            if self._process.is_alive():
                return
        except (EOFError, OSError):
            pass  # the worker has closed its end of the pipe: it has ended or is ending
        code = self.ended()
        yield Ended(ending_of(code), code)

    def dismiss(self) -> None:
        self._send(None)

    def terminate(self) -> None:
        self._process.terminate()

    def ended(self) -> int | None:
        """Wait until a dismissed, terminated or failing worker has ended, and kill it if the wait
        is too long.

        Return the exit code, or None if the worker was killed here.
        """
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self._outgoing.put(None)
        # sending fails now, because nothing reads the pipe, so the thread ends
        self._sender.join(_PATIENCE)
        self._pipe.close()
        return code

    @staticmethod
    def wait_for(workers: Sequence[WorkerProcess]) -> None:
        """Wait until a worker has a message or has ended, but only for a short time."""
        sources = [
            source for worker in workers for source in (worker._pipe, worker._process.sentinel)
        ]
        wait(sources, timeout=_WAKES)


def _send_all(pipe: Connection, outgoing: queue.SimpleQueue[Any]) -> None:
    with contextlib.suppress(OSError):  # the worker has ended, and `messages` reports it
        while (message := outgoing.get()) is not None:
            pipe.send_bytes(message)


def _serve(pipe: Connection, environment: Mapping[str, str]) -> None:
    """Run a worker process: read the work, then items, until the parent dismisses the worker or its
    device fails."""
    if os.environ != environment:  # a forked worker begins with the environment of the server
        os.environ.clear()
        os.environ.update(environment)
    # Ctrl-C reaches all processes of the terminal. The parent alone reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    disable_progress_bars()  # only the parent writes progress to the terminal
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
    """Report an error to the parent by its kind. Check memory first: for CUDA, this is a device
    error too."""
    if (reason := memory_error(error)) is not None:
        _tell(pipe, NoMemory(reason))
    elif (reason := device_error(error)) is not None:
        if was_ready:
            _tell(pipe, Ended(f"lost its device ({reason})", None))
        else:
            _tell(pipe, DeviceFailed(reason))
        os._exit(1)  # a normal exit would wait for the device, or fail on it again
    else:
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        try:
            # unpickling rebuilds an error as a copy does, which fails for errors of some libraries
            copy.copy(error)
            _tell(pipe, Failed(error))
        except Exception:
            _tell(pipe, Failed(RunFailure(error_line(error))))
