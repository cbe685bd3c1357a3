"""Start Python processes from a warm one; used as `subprocess.run` and `subprocess.Popen` are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, TimeoutExpired
from types import TracebackType
from typing import Any, BinaryIO, TextIO

import psutil
from filelock import FileLock

from counterfoil.engines.processes import environment_of_workers
from printed_json import check_printed_json

# Heavy, and reading nothing of the environment that tests set: what test processes are forked with,
# too.
ANYWHERE = (
    "torch", "torch._dynamo", "torchvision", "scipy.stats", "scipy.optimize", "pandas", "pyarrow.parquet",
    "pyarrow.dataset", "matplotlib.figure", "PIL.Image", "pydantic", "typer", "rich.live", "rich.progress", "jinja2",
    "sympy", "fsspec", "yaml", "httpcore2", "h11", "multiprocess", "xxhash", "tqdm", "filelock",
    "httpx2", "requests", "ftfy", "regex", "tokenizers", "safetensors.torch", "psutil", "jinja2.sandbox", "tqdm.auto",
    "torch.distributed.checkpoint", "torch.distributed._composable.fsdp", "torch.distributed.elastic.multiprocessing",
    "torchvision.transforms.v2", "fsspec.implementations.local", "sklearn.svm",
    "counterfoil.cli.progress", "support.drawn_ahead",
)  # fmt: skip
# These read the Hub's variables where they are imported, so they are warm for the environment
# without network only.
_OFFLINE = (
    "diffusers", "diffusers.models.controlnets.controlnet", "diffusers.loaders.lora_base",
    "diffusers.pipelines.auto_pipeline", "diffusers.pipelines.stable_diffusion", "transformers",
    "transformers.models.clip.modeling_clip", "open_clip", "timm", "datasets",
    "diffusers.models.transformers.transformer_lumina2", "counterfoil.publishing.publish_dataset",
)  # fmt: skip
_HUB = ("HF_", "HUGGING")
# The number of the process that began the run, for those that are forked themselves
# (`pytest_worker.py`).
KEEPER = "WARM_KEEPER"
_began = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
_keeper = int(os.environ.pop(KEEPER, _began))
# Not what a test adds, such as the folder of a plugin, which every process would have.
_PATH = [entry for entry in sys.path if entry]
_nurseries: dict[frozenset[tuple[str, str]] | None, Nursery] = {}
_started: list[object] = []  # that they are not collected


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | Path | None = None,
    input: str = "",
    stdin: int | None = None,
    check: bool = False,
) -> CompletedProcess[str]:
    """Do `subprocess.run` of `[sys.executable, …]` with output as text; `stdin`, open, replaces
    `input`.

    The output of a command with `--json` is checked by its schema.
    """
    with start(words, env, cwd=cwd, input=input, stdin=stdin) as process:
        out, err = process.communicate()
    check_printed_json(words, out)
    done = CompletedProcess(list(words), process.returncode or 0, out, err)
    if check:
        done.check_returncode()
    return done


def start(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | Path | None = None,
    input: str = "",
    stdin: int | None = None,
    talking: bool = False,
    start_new_session: bool = False,
) -> Running:
    """Do `subprocess.Popen` of `[sys.executable, …]`: a module by -m, code by -c, or a script, and
    its arguments.

    What it wrote is there when it ends (`communicate`). `talking`, it is asked by `stdin` and
    answers by `stdout`.
    """
    assert words[0] == sys.executable
    request = {
        "words": list(words[1:]),
        "environment": dict(env),
        "folder": str(cwd or Path.cwd()),
        "path": [entry for entry in sys.path if entry],
        "new_session": start_new_session,
    }
    return _nursery_for(env).start(request, input, stdin, talking)


def script_of(code: str, env: Mapping[str, str]) -> str:
    """Return an executable script that runs this code in a warm process, with the script's
    arguments, streams, folder and environment. For shells that tests run."""
    address = _nursery_for(env).place
    path = [entry for entry in sys.path if entry]
    return f"""#!{sys.executable} -IS
import json, os, socket, sys
request = {{
    "words": ["-c", {code!r}, *sys.argv[1:]],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "path": {path!r},
    "new_session": False,
}}
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
answers = connection.makefile()
answers.readline()  # the number of the process
sys.exit(int(answers.readline() or 1))
"""


class Running:
    """A process that was started warm."""

    def __init__(
        self,
        words: Sequence[str],
        connection: socket.socket,
        pid: int,
        written: tuple[BinaryIO | None, BinaryIO],
        talk: tuple[TextIO, TextIO] | None,
    ) -> None:
        self.args, self.pid = list(words), pid
        self.returncode: int | None = None
        self.stdin, self.stdout = talk or (None, None)
        self._connection = connection
        self._written = written

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.kill()
        self.wait()
        for file in (*self._written, self.stdin, self.stdout):
            if file is not None:
                with contextlib.suppress(OSError):  # text for a process that has ended
                    file.close()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise TimeoutExpired(self.args, timeout or 0.0)
            self._ended()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return its stdout and stderr once it has ended; close its stdin first."""
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        self.wait(timeout)
        texts = []
        for file in self._written:
            if file is None:
                texts.append("")
            else:
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self) -> None:
        line = self._connection.recv(64)
        self.returncode = int(line) if line else -signal.SIGKILL
        self._connection.close()


class Nursery:
    """The process that others are forked from, and the way to ask it: one for all that need it in a
    run.

    Whichever needs it first starts it, forked from `first` if there is one. It ends with the process
    that began the run.
    """

    def __init__(
        self,
        modules: Sequence[str],
        hub: Mapping[str, str],
        keeper: int,
        first: Nursery | None = None,
    ) -> None:
        of_the_run = [keeper, psutil.Process(keeper).create_time()]
        what = hashlib.sha256(json.dumps([of_the_run, modules, dict(hub)]).encode()).hexdigest()[
            :16
        ]
        folder = Path(tempfile.gettempdir(), f"warm-{what}")
        folder.mkdir(mode=0o700, exist_ok=True)
        self.place = str(folder / "socket")
        with FileLock(folder / "lock"):
            if (folder / "socket").exists():
                return
            # Imported as the package's own server imports: libraries start no thread that a fork
            # would lose.
            with environment_of_workers(get_context("forkserver")):
                kept = {
                    name: value for name, value in os.environ.items() if not name.startswith(_HUB)
                }
            kept |= {"OPENBLAS_NUM_THREADS": "1", **hub}
            kept["PYTHONPATH"] = os.pathsep.join(_PATH)
            script = str(Path(__file__).with_name("nursery.py"))
            words = [script, self.place, str(keeper), *modules]
            ready, printing = os.pipe()
            if first is None:
                line = [sys.executable, *words]
                _started.append(
                    subprocess.Popen(
                        line,
                        env=kept,
                        stdin=DEVNULL,
                        stdout=printing,
                        stderr=DEVNULL,
                    )
                )
            else:
                request = {
                    "words": words,
                    "environment": kept,
                    "folder": "/",
                    "path": [],
                }
                with Path(os.devnull).open("r+b") as nothing:
                    streams = [nothing.fileno(), printing, nothing.fileno()]
                    _started.append(first.fork(request | {"new_session": False}, streams))
            os.close(printing)
            with os.fdopen(ready) as printed:
                assert printed.readline() == "ready\n"

    def start(
        self, request: Mapping[str, Any], input: str, stdin: int | None, talking: bool
    ) -> Running:
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        talk = None
        output = None
        if talking:
            (child_stdin, to_child), (from_child, child_stdout) = os.pipe(), os.pipe()
            talk = (os.fdopen(to_child, "w"), os.fdopen(from_child))
            streams = [child_stdin, child_stdout]
        else:
            output = tempfile.TemporaryFile()  # noqa: SIM115
            with tempfile.TemporaryFile() as standard_input:
                standard_input.write(input.encode())
                standard_input.seek(0)
                streams = [
                    os.dup(standard_input.fileno() if stdin is None else stdin),
                    os.dup(output.fileno()),
                ]
        connection, number = self.fork(request, [*streams, errors.fileno()])
        for stream in streams:
            os.close(stream)
        return Running(
            [sys.executable, *request["words"]], connection, number, (output, errors), talk
        )

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> tuple[socket.socket, int]:
        """Fork a process with these as stdin, stdout and stderr; return the source of its exit
        code, and its number."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.place)
        socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], list(streams))
        return connection, int(self._number(connection))

    @staticmethod
    def _number(connection: socket.socket) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            piece = connection.recv(1)
            assert piece, "the nursery is gone"
            line += piece
        return line


def _nursery_for(environment: Mapping[str, str]) -> Nursery:
    hub = {name: value for name, value in environment.items() if name.startswith(_HUB)}
    warm = hub.get("HF_HUB_OFFLINE") == "1" and set(hub) <= {"HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"}
    key = frozenset(hub.items()) if warm else None
    if key not in _nurseries:
        first = _nursery_for({}) if warm else None
        _nurseries[key] = Nursery(
            _OFFLINE if warm else ANYWHERE, hub if warm else {}, _keeper, first
        )
    return _nurseries[key]
