"""A worker process from its first instant."""

from __future__ import annotations

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
    from counterfoil.engines.worker_process import Done, WorkerProcess

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
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.split() == ["blocked"], done.stderr
