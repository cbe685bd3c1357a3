"""A worker process from its first instant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

if not hasattr(signal, "pthread_sigmask"):
    pytest.skip("needs POSIX signals", allow_module_level=True)

# In an interpreter of its own: the process that watches over semaphores starts with its first worker.
_FIRST_WORKER = """
import signal
from contextlib import contextmanager

class Blocked:
    device, less_memory = "cpu", ""

    def on(self, device):
        return self

    @contextmanager
    def ready(self):
        def do(item):
            yield 0
            return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        yield do

if __name__ == "__main__":
    from counterfoil.engines.worker_process import Done, WorkerProcess, deaf_to_interrupts

    with deaf_to_interrupts():
        worker = WorkerProcess(Blocked())
    worker.give(1)
    while True:
        WorkerProcess.wait_for([worker])
        for heard in worker.told():
            if isinstance(heard, Done):
                print("blocked" if heard.result else "open")
                worker.dismiss()
                worker.ended()
                raise SystemExit(0)
"""


def test_the_first_worker_of_a_process_is_born_deaf_to_ctrl_c(tmp_path) -> None:
    """Its interpreter would answer with a traceback before it has read what to do."""
    program = tmp_path / "first_worker.py"
    program.write_text(_FIRST_WORKER)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split() == ["blocked"], done.stderr


# Ctrl-C at every line that begets workers, one run each; what is left then would be waited for by whoever exits.
_INTERRUPTED = """
import multiprocessing, os, pathlib, signal, sys

def interrupts_at(nth):
    met = 0

    def trace(frame, event, argument):
        nonlocal met
        if frame.f_code.co_filename not in FILES or "_send_all" in frame.f_code.co_name:
            return None
        if event == "line":
            met += 1
            if met == nth:
                sys.settrace(None)
                os.kill(os.getpid(), signal.SIGINT)
        return trace

    return trace

if __name__ == "__main__":
    from counterfoil.engines import local, worker_process
    from counterfoil.engines.local import LocalEngine
    from trivial_work import Tens

    work = Tens(pathlib.Path(sys.argv[2]))
    FILES = {module.__file__ for module in (local, worker_process)}
    for nth in range(1, 1 + int(sys.argv[1])):
        sys.settrace(interrupts_at(nth))
        try:
            list(LocalEngine(workers=2).run(work, [1, 2]))
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            print(nth, "met", repr(error))
        else:
            print(nth, "went on")
        sys.settrace(None)
        for process in multiprocessing.active_children():
            print(nth, "left", process)
            process.kill()
    print("done")
"""


def test_ctrl_c_at_any_line_while_workers_are_begotten_leaves_none(tmp_path) -> None:
    program = tmp_path / "interrupted.py"
    program.write_text(_INTERRUPTED)
    line = [sys.executable, str(program), "140", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.split("\n") == ["done", ""], done.stdout + done.stderr
