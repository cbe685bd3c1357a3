"""A worker process of this machine: it gets ready once, does items one after another, and tells of each on a pipe.

Each has a pipe of its own, so that one that is killed amid a message takes nothing of the others with it. What is sent
to one waits in a thread of its own: a worker reads nothing while it loads its models, and a pipe holds little.
"""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from counterfoil.engines.engine import Advanced, Delivered, Doing, Work
from counterfoil.engines.fork_server import environment_of_workers, start
from counterfoil.errors import RunFailure
from counterfoil.models.devices import make_current
from counterfoil.models.loading_errors import device_error, memory_error, one_line
from counterfoil.progress import disable_progress_bars

# How often whoever waits wakes: a Ctrl-C that another thread has caught would not wake it.
_WAKES = 0.5  # seconds
# How long a worker that was told to end may take; then it is killed. Nothing of it is waited for any more.
_PATIENCE = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class Done:
    """An item is done. All that was counted of it came before, on the same pipe."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An item failed: another worker would meet the same."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NoMemory:
    """An item, or getting ready for it, took more memory than there is."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """The device cannot be used by this process any more, which ends.

    was_ready: it could be used before. A process that gets ready meets the device anew, so else it is gone.
    """

    reason: str
    was_ready: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The process ended by itself, with this code (minus a signal's number); None if it had to be killed.

    began: it came as far as to take its work.
    """

    code: int | None
    began: bool


@dataclass(frozen=True, slots=True)
class _Began:
    """The process is there, and takes its work."""


@dataclass(frozen=True, slots=True)
class _Given:
    """An item for a worker."""

    item: Any


Heard = Advanced | Delivered[Any] | Done | Failed | NoMemory | DeviceFailed | Ended


def in_words(told: Any) -> Advanced | Delivered[Any]:
    """What an item yields, as an event."""
    return told if isinstance(told, Delivered) else Advanced(told)


class WorkerProcess:
    """A worker as its parent sees it: work that is put on its device already, given once, then items."""

    def __init__(self, work: Work[Any, Any], context: Any) -> None:
        """Start it: inside `deaf_to_interrupts`, until whoever starts it has it, and so can end it.

        `context` is that of `worker_context`. RunFailure where the machine starts no more processes.
        """
        self._pipe, theirs = context.Pipe()
        self._began = False
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._sender = threading.Thread(target=_send_all, args=(self._pipe, self._outgoing), daemon=True)
        try:
            with environment_of_workers(context) as environment:
                self._process = context.Process(target=_serve, args=(theirs, environment))
                start(self._process)
        except (OSError, EOFError) as error:
            reason = (
                "the process that it was to be forked from ended"
                if isinstance(error, EOFError)
                else error.strerror or error
            )
            raise RunFailure(
                f"a worker process could not be started: {reason}",
                "End what else runs on this machine, or use fewer --workers.",
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

    def told(self) -> Iterator[Heard]:
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
        yield Ended(self._joined(), self._began)

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
    with contextlib.suppress(OSError):  # one that is dead is heard of by `told`
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
                _tell(pipe, Done(_done(do(given.item), pipe)))
            except Exception as error:
                _tell_failure(pipe, error, was_ready=True)


def _done(doing: Doing[int, Any], pipe: Connection) -> Any:
    """The result of an item; what is told of it on the way goes to the parent."""
    with contextlib.closing(doing):
        while True:
            try:
                told = next(doing)
            except StopIteration as end:
                return end.value
            _tell(pipe, in_words(told))


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
