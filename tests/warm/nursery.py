"""The process that commands are forked from. It has imported heavy libraries, computed nothing and
started no thread.

Started with a socket to listen on, the process with which it ends, and the modules to import. A
connection brings one line of JSON (what to run, its environment, its folder) and three file
descriptors; back come the child's number and, when it ended, its exit code. A child may be another
such process, which imports what this one must not.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_LINE = 1 << 20


def main(address: str, keeper: int, modules: list[str]) -> None:
    gc.disable()  # a million objects, which all stay
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()  # else each child's first collection would copy all that is shared
    for finalizer in list(weakref.finalize._registry):  # pyrefly: ignore[missing-attribute]
        finalizer.atexit = False  # else each child would take apart what it has imported
    assert threading.active_count() == 1, "a fork takes no threads along"
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen(64)
        parent = os.pidfd_open(keeper)
        selector.register(parent, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fd == parent:
                    shutil.rmtree(Path(address).parent, ignore_errors=True)
                    return
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    child = _fork(connection, selector)
                    selector.register(
                        os.pidfd_open(child), selectors.EVENT_READ, (child, connection)
                    )
                else:
                    child, connection = key.data
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    _, status = os.waitpid(child, 0)
                    with contextlib.suppress(OSError):  # the process that asked may be gone
                        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                    connection.close()


def _fork(connection: socket.socket, selector: selectors.BaseSelector) -> int:
    """Fork a child that becomes what the connection asks for, and return its number."""
    line, streams, _, _ = socket.recv_fds(connection, _LINE, 3)
    while not line.endswith(b"\n"):
        line += connection.recv(_LINE)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        connection.sendall(f"{child}\n".encode())
        return child
    for key in list(selector.get_map().values()):  # what only the nursery may hold open
        os.close(key.fd)
        if key.data:
            key.data[1].close()
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return _become(json.loads(line))


def _become(request: dict[str, Any]) -> NoReturn:
    """Be the Python process that was asked for, and end as one ends."""
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in first if entry and entry not in sys.path]
    sys.path += [entry for entry in request["path"] if entry not in sys.path]
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")  # which Python reads at its start
    if request["words"][0] != __file__:  # a nursery starts no workers of its own
        _wait_to_fork_workers()
    _leave(_ended(lambda: _run(request["words"])))


def _wait_to_fork_workers() -> None:
    """Fork a child that becomes multiprocessing's fork server when that is started: warm, and a
    child as that is."""
    from multiprocessing import util

    ours, for_child = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        line, numbers, _, _ = socket.recv_fds(for_child, _LINE, 8)
        for_child.close()
        if not line:  # the process that could have asked is gone
            os._exit(0)
        request = json.loads(line)
        for number, wanted in zip(
            [fcntl.fcntl(number, fcntl.F_DUPFD, 1000) for number in numbers],
            request["numbers"],
            strict=True,
        ):
            os.dup2(number, wanted)
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path[:] = request["path"]
        _leave(_ended(lambda: _run(request["words"])))
    for_child.close()
    start = util.spawnv_passfds

    def warm_start(path: Any, args: Any, passfds: Any) -> int:
        words = [os.fsdecode(word) for word in args]
        if "multiprocessing.forkserver" not in words[-1] or ours.fileno() < 0:
            return start(path, words, passfds)
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
        request = {"words": ["-c", words[-1]], "environment": dict(os.environ), "path": sys.path}
        line = json.dumps({**request, "blocked": blocked, "numbers": list(passfds)}).encode()
        socket.send_fds(ours, [line], list(passfds))
        ours.close()
        return child

    util.spawnv_passfds = warm_start


def _ended(run: Callable[[], object]) -> int:
    """Return the exit code of a process that ran this."""
    code: Any = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    return 0 if code is None else int(code)


def _run(words: list[str]) -> None:
    how, *rest = words
    sys.argv = words
    if how == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        runpy.run_path(how, run_name="__main__")


def _leave(code: int) -> NoReturn:
    """End as Python does: wait for threads, call exit functions, flush streams."""
    import atexit

    threading._shutdown()  # pyrefly: ignore[missing-attribute]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
