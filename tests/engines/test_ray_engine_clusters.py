"""Which Ray cluster it is: one that is begun and leaves nothing, or one by its address; and why there is none."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

from test_local_engine import alive, files
from trivial_work import Tens, wait_for

import warm
from counterfoil.engines import EngineChoice, engine_for
from counterfoil.errors import UserError
from ray_clusters import ray

# Does items of Tens, two of which wait for `go`, on a cluster of its own, and prints the results as JSON.
_PROGRAM = """
import json, pathlib, sys
from counterfoil.engines import EngineChoice, Finished, engine_for
from trivial_work import Tens

work = Tens(pathlib.Path(sys.argv[1]), late=(1, 2))
events = engine_for(("cpu",), 2, EngineChoice("ray")).run(work, [1, 2, 3])
print(json.dumps({event.item: event.result[0] for event in events if isinstance(event, Finished)}))
"""


@contextlib.contextmanager
def program(folder: Path) -> Iterator[warm.Running]:
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "RAY_ADDRESS": "127.0.0.1:1"}
    words = [sys.executable, "-c", _PROGRAM, str(folder)]
    with warm.start(words, environment, start_new_session=True) as process:
        yield process


@contextlib.contextmanager
def begun(folder: Path) -> Iterator[warm.Running]:
    """The program, once two items wait for `go`. On a busy machine Ray may need more time than it gives itself."""
    for last in (False, False, True):
        with program(folder) as process:
            wait_for(lambda of=process: files(folder, "begun") == {1, 2} or of.poll() is not None)
            if process.poll() is None:
                yield process
                return
            said = process.communicate()[1]
            assert "timed out during startup" in said and not last, said


def processes_of(process: warm.Running) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children(recursive=True)}


def folder_of(numbers: set[int]) -> Path:
    """Where the cluster of these processes keeps its files."""
    words = [word for number in numbers for word in psutil.Process(number).cmdline() if "/cf-ray-" in word]
    place = Path(next(word.partition("=")[2] for word in words if word.startswith("--log_dir=")))
    return next(parent for parent in place.parents if parent.name.startswith("cf-ray-"))


def test_a_cluster_that_is_begun_ends_with_the_run_and_says_nothing(tmp_path: Path) -> None:
    with begun(tmp_path) as process:
        there = processes_of(process)
        folder = folder_of(there)
        os.kill(min(files(tmp_path, "ready")), signal.SIGKILL)  # Ray would tell of it on stdout
        (tmp_path / "go").touch()
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out) == {"1": 10, "2": 20, "3": 30}
    assert err == ""
    wait_for(lambda: not alive(there))
    assert not folder.exists()


@pytest.mark.whole
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_nothing_is_left_of_it_however_the_program_ends(end: signal.Signals, tmp_path: Path) -> None:
    with begun(tmp_path) as process:
        there = processes_of(process)
        assert files(tmp_path, "ready") <= there
        folder = folder_of(there)
        if end is signal.SIGINT:
            os.killpg(process.pid, end)  # as a terminal sends it
        else:
            os.kill(process.pid, end)
        out, _ = process.communicate()
    assert process.returncode != 0
    assert out == ""
    # Killed, it can end nobody: actors miss it at once, and two of Ray's own processes within a minute.
    wait_for(lambda: not alive(files(tmp_path, "ready") if end is signal.SIGKILL else there))
    assert files(tmp_path, "done") == set()
    if end is signal.SIGKILL:
        shutil.rmtree(folder)
    assert not folder.exists()


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError) as refused:
        engine_for(("cpu",), None, EngineChoice("ray"))
    assert refused.value.problems == ("engine ray: Ray is not installed here",)
    assert refused.value.hint == "Install it: pip install 'counterfoil[ray]'."


@pytest.mark.parametrize("address", ["there", "ray://there:10001", "there:", ":6379", "http://there:6379", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="expected auto or HOST:PORT"):
        engine_for(("cpu",), None, EngineChoice("ray", address))


def test_an_address_and_collecting_go_with_a_cluster() -> None:
    for choice in (EngineChoice("local", "auto"), EngineChoice("local", None, True)):
        with pytest.raises(UserError, match="goes with a cluster"):
            engine_for(("cpu",), None, choice)


def refused(address: str, folder: Path) -> UserError:
    with pytest.raises(UserError) as raised:
        list(engine_for(("cpu",), None, EngineChoice("ray", address)).run(Tens(folder), [1]))
    assert "`ray start --head`" in (raised.value.hint or "")
    assert not ray.is_initialized()
    return raised.value


def test_where_nobody_listens_it_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert f"address {address}: no Ray cluster answers there" in str(refused(address, tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert "address auto" in str(refused("auto", tmp_path))
    with pytest.raises(UserError, match="address auto"):
        engine_for(("cpu",), None, EngineChoice("ray", "auto"))  # before any work


def test_what_answers_there_may_be_no_cluster(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        told = str(refused(f"127.0.0.1:{server.getsockname()[1]}", tmp_path))
        thread.join()
    assert "what answers there is no Ray cluster" in told
