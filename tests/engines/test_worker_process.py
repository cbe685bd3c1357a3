"""A worker process from its first instant."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from trivial_work import wait_for

import warm
from counterfoil.building.workers import Job
from counterfoil.engines import executor, processes
from counterfoil.recipe import load_recipe

if not hasattr(signal, "pthread_sigmask"):
    pytest.skip("needs POSIX signals", allow_module_level=True)

both = pytest.mark.parametrize("how", ["forkserver", "spawn"])

# Work that lets a worker report on itself, as a module, since workers do not import the program.
_ASKED = """
import os, signal, sys
from contextlib import contextmanager

class Asked:
    device, less_memory = "none", ""  # on a CPU a worker imports torch

    def on(self, device):
        return self

    @contextmanager
    def ready(self):
        def do(item):
            yield 0
            server = f"/proc/{os.getppid()}/task"
            return {
                "blocked": signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []),
                "ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
                "environment": dict(os.environ), "path": sys.path, "folder": os.getcwd(), "words": sys.argv,
                "imported": "torch" in sys.modules, "threads there": len(os.listdir(server)),
                "cuda": "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized(),
            }
        yield do
"""

# In an interpreter of its own, which has one server as long as it lives: start the first worker,
# and print the start method and the worker's report of itself.
_FIRST_WORKER = """
import json, os, signal, sys
from asked import Asked

def first(context, work):
    from counterfoil.engines.executor import Done
    from counterfoil.engines.processes import WorkerProcess, deaf_to_interrupts

    with deaf_to_interrupts():
        worker = WorkerProcess(work, "none", context)
    worker.give(1)
    while True:
        WorkerProcess.wait_for([worker])
        for heard in worker.messages():
            if isinstance(heard, Done):
                worker.dismiss()
                worker.ended()
                return heard.result

if __name__ == "__main__":
    from counterfoil.engines.processes import begin_server, worker_context

    if sys.argv[1]:
        begin_server(sys.argv[1].split(), "cpu")
    exec(sys.argv[2])
    context = worker_context("cpu")
    how = context.get_start_method()
    print(json.dumps([how, {} if sys.argv[3:] else first(context, Asked())]))
"""
_LIGHT = "fractions"


def run_program(
    folder: Path, *words: str, program: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with its words or a program on standard input."""
    # Without what scikit-learn sets where it is imported, as it may have been here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in (str(folder), *sys.path) if path)
    return subprocess.run(
        [sys.executable, *words],
        input=program,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def first_worker(
    folder: Path, imports: str, then: str = "", *only: str
) -> tuple[str, dict[str, Any]]:
    """Return start method and report of the first worker after a server began these imports;
    `only`: no report."""
    program = folder / "first_worker.py"
    program.write_text(_FIRST_WORKER)
    (folder / "asked.py").write_text(_ASKED)
    done = run_program(folder, str(program), imports, then, *only)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return tuple(json.loads(done.stdout))


def test_a_forked_worker_finds_itself_where_a_spawned_one_does(tmp_path: Path) -> None:
    forked = first_worker(tmp_path, _LIGHT)
    spawned = first_worker(tmp_path, "")
    assert (forked[0], spawned[0]) == ("forkserver", "spawn")
    assert forked[1].pop("threads there") == 1, "a fork takes no threads along"
    spawned[1].pop("threads there")
    assert forked[1] == {**spawned[1], "words": forked[1]["words"]}
    assert forked[1]["blocked"] and forked[1]["ignored"], (
        "Python would answer to Ctrl-C with a traceback"
    )
    assert forked[1]["environment"]["OMP_NUM_THREADS"] == "1"


def imports_of_a_build() -> tuple[str, ...]:
    lacking: Any = None
    job = Job(load_recipe("wardrobe-mini"), lacking, "cpu", lacking)
    return (*job.imports, "timm")


# A report of this process and of the process that it was forked from, with the imports of a server.
_IMPORTED = """
import json, os, sys
import torch
task = len(os.listdir(f"/proc/{os.getppid()}/task"))
print(json.dumps([sorted(set(sys.argv[1:]) - set(sys.modules)), task, torch.cuda.is_initialized()]))
"""


def test_what_workers_import_starts_no_thread_and_touches_no_gpu() -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = warm.run(
        [sys.executable, "-c", _IMPORTED, *imports_of_a_build()], environment, check=True
    )
    assert json.loads(done.stdout) == [[], 1, False]


@pytest.mark.whole
def test_the_server_has_imported_started_no_thread_and_touched_no_gpu(tmp_path: Path) -> None:
    # what these set in the environment changes nothing
    then = "import torch, open_clip, sklearn.svm, datasets"
    how, report = first_worker(tmp_path, " ".join(imports_of_a_build()), then)
    assert how == "forkserver"
    assert report["imported"]
    assert (report["threads there"], report["cuda"]) == (1, False)


@pytest.mark.parametrize(
    ("imports", "then"),
    [
        (_LIGHT, "os.environ['HF_HUB_OFFLINE'] = 'other'"),
        (_LIGHT, "sys.path.insert(0, '/elsewhere')"),
        (
            _LIGHT,
            "worker_context('cpu'); pid = os.fork(); pid and (os.waitpid(pid, 0), os._exit(0))",
        ),
        ("ends_at_once", ""),
        (
            "",
            "import multiprocessing.forkserver as f; f.ensure_running();"
            " begin_server(['fractions'], 'cpu')",
        ),
    ],
    ids=["environment", "path", "forked", "cannot import", "another's server"],
)
def test_where_a_fork_could_differ_workers_are_spawned(
    imports: str, then: str, tmp_path: Path
) -> None:
    (tmp_path / "ends_at_once.py").write_text("import os\nos._exit(3)\n")
    assert first_worker(tmp_path, imports, then, "how")[0] == "spawn"


def test_a_gpu_s_workers_are_spawned_and_what_libraries_set_in_the_environment_changes_nothing(
    tmp_path: Path,
) -> None:
    then = """
assert worker_context('cuda:0').get_start_method() == 'spawn'
os.environ["KMP_INIT_AT_FORK"] = "FALSE"  # as scikit-learn does
"""
    assert first_worker(tmp_path, _LIGHT, then, "how")[0] == "forkserver"


def test_a_process_that_ends_takes_a_server_along_that_is_still_importing(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import threading\nopen('begun', 'w').close()\nthreading.Event().wait()\n"
    )
    program = """
import multiprocessing.forkserver, pathlib, time
from counterfoil.engines.processes import begin_server
begin_server(["endless"], "cpu")
while not pathlib.Path("begun").exists():
    time.sleep(0.01)
pathlib.Path("server").write_text(str(multiprocessing.forkserver._forkserver._forkserver_pid))
"""
    done = run_program(tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr
    server = int((tmp_path / "server").read_text())
    try:
        wait_for(lambda: not psutil.pid_exists(server))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(server, signal.SIGKILL)


def test_a_server_that_was_killed_is_started_again(tmp_path: Path) -> None:
    then = """
import psutil
first(worker_context("cpu"), Asked())
[server] = [child for child in psutil.Process().children() if "forkserver" in " ".join(child.cmdline())]
server.kill()
"""
    how, report = first_worker(tmp_path, _LIGHT, then)
    assert how == "forkserver" and report["threads there"] == 1


# Ctrl-C at every line that starts workers, one run each; an exit would wait for the processes that
# are left.
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
    from counterfoil.engines import executor, local, processes
    from counterfoil.engines.local import LocalEngine
    from trivial_work import Tens

    if sys.argv[1] == "spawn":
        local.begin_server = lambda *_: None
    work = Tens(pathlib.Path(sys.argv[2]))
    FILES = {module.__file__ for module in (executor, local, processes)}
    for nth in range(1, 200, 1 if sys.argv[1] == "forkserver" else 13):
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
            if not process.daemon:  # the one that only asks whether the server is there ends by itself
                print(nth, "left", process)
                process.kill()
    print("done")
"""


@both
def test_ctrl_c_at_any_line_while_workers_are_begotten_leaves_none(
    how: str, tmp_path: Path
) -> None:
    program = tmp_path / "interrupted.py"
    program.write_text(_INTERRUPTED)
    done = run_program(tmp_path, str(program), how, str(tmp_path))
    assert done.stdout.split("\n") == ["done", ""], done.stdout + done.stderr


# A program without a guard, which leaves a line each time that it runs. Its function and its class
# stay with it.
_UNGUARDED = """
import pathlib, sys
from counterfoil.engines import local
from counterfoil.engines.local import LocalEngine
from trivial_work import Tens

HOW = "{how}"
if HOW == "spawn":
    local.begin_server = lambda *_: None
with open("runs", "a") as runs:
    runs.write("run\\n")
events = list(LocalEngine(workers=2).run(Tens(pathlib.Path.cwd()), [1, 2]))
done = [event.result for event in events if hasattr(event, "result")]
print(sorted(number for number, _ in done), len({{process for _, process in done}}))
"""


@both
@pytest.mark.parametrize("given", ["script", "standard input"])
def test_a_program_without_a_guard_runs_once(given: str, how: str, tmp_path: Path) -> None:
    program = _UNGUARDED.format(how=how)
    (tmp_path / "unguarded.py").write_text(program)
    words = ["unguarded.py"] if given == "script" else []
    done = run_program(tmp_path, *words, program=program)
    assert (done.stdout, done.stderr) == ("[10, 20] 2\n", "")
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_program_s_own_processes_still_import_it(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text("""
import multiprocessing
from counterfoil.engines import processes

def mine():
    print("mine")

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=mine)
    process.start()
    process.join()
""")
    done = run_program(tmp_path, str(program))
    assert (done.stdout, done.stderr) == ("mine\n", "")


class Left(BaseException):
    """A worker would end here."""


def test_a_gpu_without_memory_is_reported_as_that_though_cuda_calls_it_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    receiver, sender = multiprocessing.Pipe()
    processes._tell_failure(sender, RuntimeError("CUDA error: out of memory"), was_ready=True)
    assert isinstance(receiver.recv(), executor.NoMemory)
    with pytest.raises(Left):
        processes._tell_failure(
            sender, RuntimeError("CUDA error: an illegal memory access"), was_ready=True
        )
    assert (
        receiver.recv().ending
        == "lost its device (CUDA error: an illegal memory access (RuntimeError))"
    )
