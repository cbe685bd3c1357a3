"""The worker processes of this machine: where they come from, what they do, and how they are talked with.

**The server.** One process imports the heavy libraries once, and workers are forked from it. Importing torch, diffusers
and transformers takes seconds of processor time, which every spawned worker pays again. The server is that of
`multiprocessing`. It imports and does nothing else: it computes nothing, starts no thread and touches no GPU, so that a
fork of it is as good as a new process. Workers are spawned wherever a fork could differ from a new process: on
platforms other than Linux, on GPUs, in a process that was forked after it began its server, beside a server that
somebody else began, and where the environment or the import path changed since (libraries read both while they are
imported). So they are where the server fails.

**A worker** gets ready once, does items one after another, and tells of each on a pipe. Each has a pipe of its own, so
that one that is killed amid a message takes nothing of the others with it. What is sent to one waits in a thread of its
own: a worker reads nothing while it loads its models, and a pipe holds little.
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
from counterfoil.models.devices import holds_context, keep_freed_memory, make_current
from counterfoil.models.loading_errors import device_error, memory_error, one_line
from counterfoil.progress import disable_progress_bars

# How often whoever waits wakes: a Ctrl-C that another thread has caught would not wake it.
_WAKES = 0.5  # seconds
# How often a process is asked for of a server that has just been killed, and how long to wait between.
_TRIES, _PAUSE = 20, 0.05  # seconds
# Libraries set these where they are imported, and pytest for each test: they say nothing of what a person changed.
_SET_BY_LIBRARIES = ("KMP_", "TOKENIZERS_", "TORCHINDUCTOR_", "RAY_", "PYTHONBREAKPOINT", "PYTEST_")


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


# How long a worker that is to end may take; then it is killed. Nothing of it is waited for any more.
_PATIENCE = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class _Began:
    """The process is there, and takes its work."""


@dataclass(frozen=True, slots=True)
class _Given:
    """An item for a worker."""

    item: Any


class WorkerProcess:
    """A worker as its parent sees it: work that is put on its device already, given once, then items."""

    def __init__(self, work: Work[Any, Any], device: str, context: Any) -> None:
        """Start it: inside `deaf_to_interrupts`, until whoever starts it has it, and so can end it.

        `context` is that of `worker_context`. RunFailure where the machine starts no more processes.
        """
        self.device = device
        self._pipe, theirs = context.Pipe()
        self._began = False
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(target=_send_all, args=(self._pipe, self._outgoing), daemon=True)
        try:
            with environment_of_workers(context) as environment:
                self._process = context.Process(target=_serve, args=(theirs, environment))
                start(self._process)
        except (OSError, EOFError) as error:
            reason = "the process it forks from has ended" if isinstance(error, EOFError) else error.strerror or error
            raise RunFailure(
                f"a worker process could not be started: {reason}",
                "Stop other programs on this machine, or use fewer --workers.",
            ) from error
        finally:
            theirs.close()
        self._sender.start()
        try:
            self._send(work)
        except BaseException:  # what does not pickle
            self.terminate()
            self._joined()
            raise

    def give(self, item: Any) -> None:
        """Send the next item, to a worker that has none: at once, also where it is not ready to read it."""
        self._send(_Given(item))

    def _send(self, message: object) -> None:
        self._outgoing.put(ForkingPickler.dumps(message))  # here: what does not pickle is an error of whoever sends

    def messages(self) -> Iterator[Heard]:
        """What has come, if anything has; last that it ended, if it has."""
        try:
            while self._pipe.poll():
                message = self._pipe.recv()
                if isinstance(message, _Began):
                    self._began = True
                else:
                    yield message
                    return  # one at a time, so that nobody is heard alone
            if self._process.is_alive():
                return
        except (EOFError, OSError):
            pass  # its end of the pipe is closed: by its death, wherever that is by now
        code = self._joined()
        yield Ended(ending_of(code), code, self._began)

    def dismiss(self) -> None:
        """Let an idle worker end itself."""
        self._send(None)

    def terminate(self) -> None:
        """End it now, whatever it does."""
        self._process.terminate()

    def ended(self) -> None:
        """Wait until one that was dismissed or terminated, or that fails, has ended."""
        self._joined()

    def _joined(self) -> int | None:
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self._outgoing.put(None)
        self._sender.join(_PATIENCE)  # nobody reads any more, so what it sends fails
        self._pipe.close()
        return code

    @staticmethod
    def wait_for(workers: Sequence[WorkerProcess]) -> None:
        """Until one of them has something to tell, or a short time is over."""
        wait([thing for worker in workers for thing in (worker._pipe, worker._process.sentinel)], timeout=_WAKES)


def _send_all(pipe: Connection, outgoing: queue.SimpleQueue[Any]) -> None:
    """What is put there, until it is None."""
    with contextlib.suppress(OSError):  # one that is dead is heard of by `messages`
        while (message := outgoing.get()) is not None:
            pipe.send_bytes(message)


def _serve(pipe: Connection, environment: Mapping[str, str]) -> None:
    """The life of the process: its work, then items until there is none, or until the device fails it."""
    if os.environ != environment:  # forked from a server, it has what that was begun in
        os.environ.clear()
        os.environ.update(environment)
    # Ctrl-C reaches the whole terminal group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    disable_progress_bars()  # its terminal is the parent's, who hears of items
    _tell(pipe, _Began())
    with contextlib.ExitStack() as kept:
        try:
            do: Callable[[Any], Doing[int, Any]] = kept.enter_context(_settled(pipe.recv()).ready())
        except Exception as error:
            _tell_failure(pipe, error, was_ready=False)
            return
        while (given := _next(pipe)) is not None:
            try:
                for event in events_of(do(given.item)):
                    _tell(pipe, event)
            except Exception as error:
                _tell_failure(pipe, error, was_ready=True)


def _next(pipe: Connection) -> _Given | None:
    try:
        return pipe.recv()
    except (EOFError, OSError):  # the parent is gone
        return None


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _settled(work: Work[Any, Any]) -> Work[Any, Any]:
    """The work, in a process that has settled on its device."""
    if work.device == "cpu":
        import torch

        torch.set_num_threads(1)
        keep_freed_memory()
    make_current(work.device)
    return work


def _tell(pipe: Connection, message: object) -> None:
    try:
        pipe.send(message)
    except OSError as error:  # nobody listens any more; no error of an item
        raise SystemExit(1) from error


def _tell_failure(pipe: Connection, error: Exception, *, was_ready: bool) -> None:
    """What an error means for whoever hands out items; memory first, since CUDA tells of that as of a failure too."""
    if (reason := memory_error(error)) is not None:
        _tell(pipe, NoMemory(reason))
    elif (reason := device_error(error)) is not None:
        _tell(pipe, DeviceFailed(reason, was_ready))
        os._exit(1)  # its libraries would wait for the device, or fail on it again, while they end
    else:
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        try:
            copy.copy(error)  # made again as a pipe does it: errors of libraries need not bear that
            _tell(pipe, Failed(error))
        except Exception:
            _tell(pipe, Failed(RunFailure(one_line(error))))
