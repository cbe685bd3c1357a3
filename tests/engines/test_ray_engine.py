"""The engine of Ray clusters, on real ones: every item once, reported in order; losses, failures
and ends."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_local_engine import alive, files, finished, once
from trivial_work import Tens, Threads, wait_for

import warm
from counterfoil.engines import (
    Advanced,
    Delivered,
    EngineChoice,
    Event,
    Finished,
    Lost,
    engine_and_device,
    engine_for,
    ray_engine,
)
from counterfoil.engines.ray_engine import RayEngine
from counterfoil.errors import UserError
from counterfoil.options import OnDevices
from ray_clusters import actors, ray, running_cluster

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    with running_cluster(2) as cluster:
        yield cluster


def engine(cluster: Any, workers: int | None = None) -> RayEngine:
    chosen = engine_for(("cpu",), workers, EngineChoice("ray", cluster.address))
    assert isinstance(chosen, RayEngine)
    return chosen


def events_of(
    cluster: Any, work: Any, items: Sequence[int], workers: int | None = None
) -> list[Event[int, Any]]:
    return list(engine(cluster, workers).run(work, items))


def counted(heard_events: Sequence[Event[int, Any]]) -> int:
    return sum(event.count for event in heard_events if isinstance(event, Advanced))


def gone(numbers: set[int]) -> None:
    wait_for(lambda: not numbers & actors())


def knows_of(cluster: Any, nodes: int) -> None:
    """Wait until the cluster knows which nodes it lost: until then it gives them actors."""
    wait_for(lambda: engine(cluster).at_once == nodes)


class Counting(list[int]):
    """Items; `requested` counts those that were requested so far."""

    requested = 0

    def __getitem__(self, index: Any) -> Any:
        self.requested = max(self.requested, index + 1)
        return super().__getitem__(index)


def test_every_item_is_done_once_and_all_of_it_is_reported_before(
    two_nodes: Any, tmp_path: Path
) -> None:
    items = Counting([4, 0, 7, 2, 5, 1, 3, 8])
    counted = done = 0
    finished = []
    delivered = []
    where = set()
    for event in engine(two_nodes).run(Tens(tmp_path), items):
        match event:
            case Advanced(count):
                counted += count
            case Delivered(part):
                delivered.append(-part)
            case Finished(item, result):
                assert result[0] == 10 * item
                done += item
                finished.append(item)
                where.add(result[1])
        assert counted >= done and set(delivered) >= set(finished), (
            "an item was finished before all of it was told"
        )
        assert items.requested <= len(finished) + 2, "items are asked for as they are handed out"
    assert sorted(finished) == sorted(delivered) == sorted(items)
    assert counted == done == sum(items)
    assert where <= files(tmp_path, "ready"), "each got ready once"
    assert 1 <= len(where) <= 2
    gone(files(tmp_path, "ready"))


def test_a_worker_that_cannot_work_is_reported_before_it_is_given_any(
    two_nodes: Any, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="this worker cannot do it"):
        events_of(two_nodes, Tens(tmp_path, unfit=True), [8, 9], 1)
    assert not files(tmp_path, "begun") & {8, 9}


def test_what_is_in_flight_is_done_before_a_failure_is_raised(
    two_nodes: Any, tmp_path: Path
) -> None:
    events = engine(two_nodes, 2).run(Tens(tmp_path, bad=(2,), late=(1,)), [1, 2])
    # Item 1 waits on one actor until the other has met the failure.
    meanwhile = once(lambda: files(tmp_path, "begun") == {1, 2}, (tmp_path / "go").touch)
    with meanwhile, pytest.raises(UserError) as refused:
        list(events)
    assert refused.value.problems == ("item 2 is bad", "and so on")
    assert refused.value.hint == "Leave it out."
    assert files(tmp_path, "done") == {1}
    gone(files(tmp_path, "ready"))


def test_an_actor_that_dies_costs_its_item_alone_and_nothing_is_counted_twice(
    two_nodes: Any, tmp_path: Path
) -> None:
    heard_events: list[Event[int, Any]] = []
    killed = False
    for event in engine(two_nodes, 2).run(Tens(tmp_path, late=(6,)), [6, 1, 2, 3]):
        heard_events.append(event)
        if finished(heard_events).keys() == {1, 2, 3} and not killed:
            idle = {event.result[1] for event in heard_events if isinstance(event, Finished)}
            (number,) = files(tmp_path, "ready") - idle
            os.kill(number, signal.SIGKILL)
            (tmp_path / "go").touch()
            killed = True
    assert killed
    assert finished(heard_events) == {6: 60, 1: 10, 2: 20, 3: 30}
    assert counted(heard_events) == 12
    losses = [event.message for event in heard_events if isinstance(event, Lost)]
    # Ray may lose the actor that replaces the killed one too, while its node is busy. That costs no
    # item.
    (lost,) = [message for message in losses if "another worker restarts" in message]
    assert "was lost" in lost
    assert "another worker restarts 6" in lost


def test_whoever_stops_listening_ends_the_actors_and_no_cluster(
    two_nodes: Any, tmp_path: Path
) -> None:
    events = engine(two_nodes, 2).run(Tens(tmp_path, late=(3, 4)), [1, 2, 3, 4, 5])
    for event in events:
        if isinstance(event, Finished):
            break
    events.close()  # the items that wait are not waited for
    assert not {3, 4, 5} & files(tmp_path, "done")
    gone(files(tmp_path, "ready"))  # and the cluster serves the tests below


def test_ctrl_c_here_ends_it(two_nodes: Any, tmp_path: Path) -> None:
    interrupt = once(
        lambda: files(tmp_path, "begun") == {3}, lambda: os.kill(os.getpid(), signal.SIGINT)
    )
    with interrupt, pytest.raises(KeyboardInterrupt):
        events_of(two_nodes, Tens(tmp_path, late=(3,)), [3, 5], 1)
    assert files(tmp_path, "done") == set()
    gone(files(tmp_path, "ready"))


def test_nothing_to_do_connects_to_nothing(two_nodes: Any, tmp_path: Path) -> None:
    assert events_of(two_nodes, Tens(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_says_how_many_items_are_done_at_once(two_nodes: Any) -> None:
    assert engine(two_nodes).at_once == 2
    assert engine(two_nodes, 7).at_once == 7


def test_whether_they_share_no_folder_is_as_it_was_chosen(two_nodes: Any) -> None:
    for collect in (False, True):
        assert (
            engine_for(("cpu",), None, EngineChoice("ray", two_nodes.address, collect)).collects
            is collect
        )


def test_auto_is_the_cluster_that_ray_finds_and_actors_of_a_cpu_run_one_thread(
    two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", two_nodes.address)
    auto, _ = engine_and_device(
        OnDevices(device="auto", workers=1, engine=EngineChoice("ray", "auto"))
    )
    (result,) = [event.result for event in auto.run(Threads(), [1]) if isinstance(event, Finished)]
    assert result == ("1", 1)


def test_a_cluster_without_gpus_is_reported(two_nodes: Any, tmp_path: Path) -> None:
    wanting, device = engine_and_device(
        OnDevices(device="cuda", engine=EngineChoice("ray", two_nodes.address))
    )
    assert device == "cpu", "this machine needs none"
    with pytest.raises(UserError, match=f"the Ray cluster at {two_nodes.address} has no GPU"):
        list(wanting.run(Tens(tmp_path), [1]))
    with pytest.raises(
        UserError, match="found 'cuda:1', expected auto, cpu or cuda with a Ray cluster"
    ):
        engine_and_device(OnDevices(device="cuda:1", engine=EngineChoice("ray", two_nodes.address)))


def test_a_node_that_is_lost_costs_no_item(two_nodes: Any, tmp_path: Path) -> None:
    node = two_nodes.add_node(num_cpus=1)
    items = [1, 2, 3, 4, 5]

    def lose() -> None:
        (raylet,) = node.all_processes["raylet"]
        its_own = psutil.Process(raylet.process.pid).children(recursive=True)
        two_nodes.remove_node(node, allow_graceful=False)
        # as a machine takes all with it; they would miss the node in seconds
        for process in its_own:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        (tmp_path / "go").touch()

    with once(lambda: files(tmp_path, "begun") == {1, 2, 3}, lose):
        heard_events = events_of(two_nodes, Tens(tmp_path, late=(1, 2, 3)), items)
    assert finished(heard_events) == {item: 10 * item for item in items}
    assert counted(heard_events) == sum(items)
    lost = [event.message for event in heard_events if isinstance(event, Lost)]
    assert len([message for message in lost if "another worker restarts" in message]) == 1
    knows_of(two_nodes, 2)


def test_who_waits_for_what_others_hold_is_reported_once(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "_TELLS_AFTER", 0.0)

    class Holder:
        def ready(self) -> bool:
            return True

    heard_events: list[Event[int, Any]] = []
    ray.init(address=two_nodes.address, log_to_driver=False)
    try:
        holders: list[Any] = [ray.remote(Holder).options(num_cpus=1).remote() for _ in range(2)]
        ray.get([holder.ready.remote() for holder in holders])
        for event in engine(two_nodes, 1).run(Tens(tmp_path), [5]):
            heard_events.append(event)
            if isinstance(event, Lost):
                assert not files(tmp_path, "ready")
                for holder in holders:
                    ray.kill(holder)
    finally:
        ray.shutdown()
    assert finished(heard_events) == {5: 50}
    (message,) = [event.message for event in heard_events if isinstance(event, Lost)]
    assert "no actor is ready" in message and "ray status" in message


def test_a_node_without_the_package_is_reported(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LACKS", "counterfoil")
    # of a GPU, so that the actor comes nowhere else
    node = two_nodes.add_node(num_cpus=0, num_gpus=1)
    wanting, _ = engine_and_device(
        OnDevices(device="cuda", engine=EngineChoice("ray", two_nodes.address))
    )
    with pytest.raises(UserError) as refused:
        list(wanting.run(Tens(tmp_path), [1]))
    two_nodes.remove_node(node)
    assert "No module named 'counterfoil'" in refused.value.problems[0]
    assert "on every node: pip install 'counterfoil[ray]==" in (refused.value.hint or "")


def test_another_version_of_ray_is_reported(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "__version__", "2.1.0")
    with pytest.raises(UserError) as raised:
        events_of(two_nodes, Tens(tmp_path), [1])
    assert "has another version" in raised.value.problems[0]
    assert "Ray: 2.1.0" in raised.value.problems[0]
    assert raised.value.hint == "Install the same Ray and the same Python on every machine."
    assert not ray.is_initialized()


def test_a_connection_of_the_program_itself_is_used_and_kept(
    two_nodes: Any, tmp_path: Path
) -> None:
    ray.init(address=two_nodes.address, log_to_driver=False)
    try:
        events_of(two_nodes, Tens(tmp_path), [1])
        assert ray.is_initialized()
        with pytest.raises(UserError, match="this program is connected to the Ray cluster at"):
            list(
                engine_for(("cpu",), None, EngineChoice("ray", "127.0.0.1:1")).run(
                    Tens(tmp_path), [1]
                )
            )
    finally:
        ray.shutdown()
    assert files(tmp_path, "done") == {1}


# The Ray cluster: one that is begun and leaves nothing, or one by its address; and why there is no
# cluster.


# Does items of Tens, two of which wait for `go`, on a cluster of its own, and prints the results as
# JSON.
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
    """Yield the program once two items wait for `go`. On a busy machine Ray may exceed its own time
    limit."""
    for last in (False, False, True):
        with program(folder) as process:
            wait_for(
                lambda running=process: (
                    files(folder, "begun") == {1, 2} or running.poll() is not None
                )
            )
            if process.poll() is None:
                yield process
                return
            errors = process.communicate()[1]
            assert "timed out during startup" in errors and not last, errors


def processes_of(process: warm.Running) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children(recursive=True)}


def folder_of(numbers: set[int]) -> Path:
    """Return the folder of the files of these processes' cluster."""
    words = [
        word
        for number in numbers
        for word in psutil.Process(number).cmdline()
        if "/cf-ray-" in word
    ]
    log_folder = Path(
        next(word.partition("=")[2] for word in words if word.startswith("--log_dir="))
    )
    return next(parent for parent in log_folder.parents if parent.name.startswith("cf-ray-"))


def test_a_cluster_that_is_begun_ends_with_the_run_and_says_nothing(tmp_path: Path) -> None:
    with begun(tmp_path) as process:
        started = processes_of(process)
        folder = folder_of(started)
        os.kill(min(files(tmp_path, "ready")), signal.SIGKILL)  # Ray would report it on stdout
        (tmp_path / "go").touch()
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out) == {"1": 10, "2": 20, "3": 30}
    assert err == ""
    wait_for(lambda: not alive(started))
    assert not folder.exists()


@pytest.mark.whole
@pytest.mark.parametrize(
    "end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name
)
def test_nothing_is_left_of_it_however_the_program_ends(
    end: signal.Signals, tmp_path: Path
) -> None:
    with begun(tmp_path) as process:
        started = processes_of(process)
        assert files(tmp_path, "ready") <= started
        folder = folder_of(started)
        if end is signal.SIGINT:
            os.killpg(process.pid, end)  # as a terminal sends it
        else:
            os.kill(process.pid, end)
        out, _ = process.communicate()
    assert process.returncode != 0
    assert out == ""
    # A killed program ends no process: actors miss it at once, and two of Ray's own within a
    # minute.
    wait_for(lambda: not alive(files(tmp_path, "ready") if end is signal.SIGKILL else started))
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


@pytest.mark.parametrize(
    "address", ["there", "ray://there:10001", "there:", ":6379", "http://there:6379", ""]
)
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


def test_where_nobody_listens_it_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        message = str(refused(f"127.0.0.1:{server.getsockname()[1]}", tmp_path))
        thread.join()
    assert "the server there is not a Ray cluster" in message
