"""The engine of this machine: every item once, reported in order; its failures in words; and no
worker left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from trivial_work import Tens, Threads, Together, wait_for

from counterfoil.engines import (
    ENGINES,
    Advanced,
    Delivered,
    Engine,
    EngineChoice,
    Event,
    Finished,
    Lost,
    engine_for,
    executor,
    local,
    processes,
)
from counterfoil.engines.local import LocalEngine, called_on, default_workers
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_devices

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

Events = list[Event[int, tuple[int, int]]]
both = pytest.mark.parametrize("workers", [1, 2], ids=["this process", "two workers"])


def events_of(workers: int, work: Tens, items: Sequence[int]) -> Events:
    return list(LocalEngine(workers).run(work, items))


def finished(heard_events: Events) -> dict[int, int]:
    return {event.item: event.result[0] for event in heard_events if isinstance(event, Finished)}


def counted_of(heard_events: Events) -> int:
    """Return the count; check that it is of what was finished, and came before it."""
    counted = done = 0
    for event in heard_events:
        if isinstance(event, Advanced):
            counted += event.count
        elif isinstance(event, Finished):
            done += event.item
        assert counted >= done, "an item was finished before it was counted"
    assert counted == done
    return counted


def lost(heard_events: Events) -> list[str]:
    return [event.message for event in heard_events if isinstance(event, Lost)]


def files(folder: Path, kind: str) -> set[int]:
    return {int(path.name.removeprefix(f"{kind}-")) for path in folder.glob(f"{kind}-*")}


def alive(processes: set[int]) -> set[int]:
    """Return the processes that still run; a child that ended is a zombie until its parent reads
    its status."""
    running = set()
    for number in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                running.add(number)
    return running


@both
def test_every_item_is_done_once_and_all_of_it_is_counted_before(
    workers: int, tmp_path: Path
) -> None:
    heard_events = events_of(workers, Tens(tmp_path), [4, 0, 7, 2, 5])
    assert len([event for event in heard_events if isinstance(event, Finished)]) == 5
    assert finished(heard_events) == {4: 40, 0: 0, 7: 70, 2: 20, 5: 50}
    assert counted_of(heard_events) == 18
    assert sorted(-event.part for event in heard_events if isinstance(event, Delivered)) == [
        0,
        2,
        4,
        5,
        7,
    ]
    assert isinstance(heard_events[-1], Finished)


def test_in_this_process_each_step_is_reported_as_it_is_done(tmp_path: Path) -> None:
    events = LocalEngine(1).run(Tens(tmp_path), [2, 1])
    assert next(events) == Advanced(1)
    assert files(tmp_path, "begun") == {2}
    assert files(tmp_path, "done") == set()
    mine = os.getpid()
    first = [Delivered(-2), Finished(2, (20, mine))]
    second = [Delivered(-1), Finished(1, (10, mine))]
    assert list(events) == [Advanced(1), *first, Advanced(1), *second]


@both
def test_each_worker_gets_ready_once(workers: int, tmp_path: Path) -> None:
    heard_events = events_of(workers, Tens(tmp_path), range(6))
    where = {event.result[1] for event in heard_events if isinstance(event, Finished)}
    assert files(tmp_path, "ready") == where
    assert 1 <= len(where) <= workers
    assert (os.getpid() in where) is (workers == 1)
    assert not alive(where - {os.getpid()})


@both
def test_nothing_to_do_starts_nothing(workers: int, tmp_path: Path) -> None:
    assert events_of(workers, Tens(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []


def test_workers_get_ready_at_once_though_an_item_fills_a_pipe(tmp_path: Path) -> None:
    items = [bytes(length) for length in (1_000_000, 1_000_001, 1_000_002)]
    heard_events = list(LocalEngine(2).run(Together(tmp_path, 2), items))
    done = sorted(event.result for event in heard_events if isinstance(event, Finished))
    assert done == [1_000_000, 1_000_001, 1_000_002]


def test_who_stops_while_large_items_wait_for_their_workers_leaves_nobody(tmp_path: Path) -> None:
    """Both workers wait for a third that never comes, and have read nothing yet."""
    both_wait = lambda: len(files(tmp_path, "getting")) == 2  # noqa: E731
    interrupt = once(both_wait, lambda: os.kill(os.getpid(), signal.SIGINT))
    with interrupt, pytest.raises(KeyboardInterrupt):
        list(LocalEngine(2).run(Together(tmp_path, 3), [bytes(1_000_000)] * 3))
    assert not alive(files(tmp_path, "getting"))


@both
def test_a_refusal_reaches_the_caller_whole(workers: int, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        events_of(workers, Tens(tmp_path, bad=(3,)), [3, 1])
    assert refused.value.problems == ("item 3 is bad", "and so on")
    assert refused.value.hint == "Leave it out."
    with pytest.raises(UserError, match="this worker cannot do it"):
        events_of(workers, Tens(tmp_path, unfit=True), [8, 9])
    assert not files(tmp_path, "begun") & {8, 9}


@contextlib.contextmanager
def once(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Meanwhile call `act` in a thread once the condition holds."""

    def watch() -> None:
        wait_for(condition)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_what_is_in_flight_is_done_before_a_failure_is_raised(tmp_path: Path) -> None:
    events = LocalEngine(2).run(Tens(tmp_path, bad=(2,), late=(1,)), [1, 2])
    # Item 1 waits on one worker until the other has met the failure.
    meanwhile = once(lambda: files(tmp_path, "begun") == {1, 2}, (tmp_path / "go").touch)
    with meanwhile, pytest.raises(UserError, match="item 2 is bad"):
        list(events)
    assert files(tmp_path, "done") == {1}
    assert not alive(files(tmp_path, "ready"))


def test_of_several_failures_the_first_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hear = local._Processes.heard

    def heard(crew: Any) -> Iterator[Any]:
        for worker, heard_events in hear(crew):
            yield worker, heard_events
            if isinstance(heard_events, executor.Failed):  # and the engine has taken note of it
                (tmp_path / "go").touch()

    monkeypatch.setattr(local._Processes, "heard", heard)
    with pytest.raises(UserError, match="item 2 is bad"):
        events_of(2, Tens(tmp_path, bad=(1, 2), late=(1,)), [1, 2])


def test_an_error_that_no_pickle_holds_is_reported_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match="1 is not 2"):
        events_of(2, Tens(tmp_path, strange=True), [1, 2])


def test_a_worker_that_dies_is_replaced_and_its_item_is_done_again(tmp_path: Path) -> None:
    heard_events = events_of(2, Tens(tmp_path, mortal=(6, 5)), [6, 1, 5, 2])
    assert finished(heard_events) == {6: 60, 1: 10, 5: 50, 2: 20}
    assert counted_of(heard_events) == 14, "what was counted before the death is not counted again"
    assert len(lost(heard_events)) == 2
    assert "SIGKILL" in lost(heard_events)[0]
    assert len((tmp_path / "begun-6").read_text().split()) == 2
    # Two and a replacement; the other replacement may come when nothing is left to do.
    assert 3 <= len(files(tmp_path, "ready")) <= 4
    assert not alive(files(tmp_path, "ready"))


def test_one_that_is_killed_from_outside_while_others_work_is_replaced(tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(int((tmp_path / "begun-3").read_text()), signal.SIGKILL)
        (tmp_path / "go").touch()

    with once(lambda: files(tmp_path, "begun") == {3, 4}, kill):
        heard_events = events_of(2, Tens(tmp_path, late=(3, 4)), [3, 4, 5])
    assert finished(heard_events) == {3: 30, 4: 40, 5: 50}
    assert counted_of(heard_events) == 12
    assert len(lost(heard_events)) == 1


def test_an_item_that_kills_every_worker_ends_the_run_and_is_named(tmp_path: Path) -> None:
    heard: Events = []
    with pytest.raises(RunFailure) as failed:
        for event in LocalEngine(2).run(Tens(tmp_path, deadly=(2,)), [2, 1, 3]):
            heard.append(event)
    assert failed.value.problems == (
        "2: 3 workers died while working on it; the last one, on cpu, was ended by SIGKILL",
    )
    hint = failed.value.hint or ""
    assert "run the same command again" in hint
    assert "Count to less." in hint
    assert "Fewer --workers (now 2)" in hint
    assert len((tmp_path / "begun-2").read_text().split()) == 3
    assert finished(heard) == {1: 10, 3: 30}, "what others finished is told"
    assert not alive(files(tmp_path, "ready"))


@both
def test_too_little_memory_comes_with_what_helps(workers: int, tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as failed:
        events_of(workers, Tens(tmp_path, vast=(2,)), [2, 1])
    assert "2: out of memory on" in failed.value.problems[0]
    assert "Count to less." in (failed.value.hint or "")
    assert ("Fewer --workers" in (failed.value.hint or "")) is (workers > 1)
    assert (tmp_path / "begun-2").read_text().count("\n") == 1, "another worker would meet the same"


@pytest.fixture
def words_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all GPUs from workers: `cuda:0` and `cuda:1` are words, which none of this work uses.

    So these workers are forked, unlike those of a GPU.
    """
    processes.begin_server(Tens(Path()).imports, "cpu")
    processes.worker_context("cpu")  # waits until it is there
    monkeypatch.setattr(
        local, "worker_context", lambda device: multiprocessing.get_context("forkserver")
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("words_for_gpus")
def test_a_gpu_is_worked_on_by_another_process_even_for_one_item(tmp_path: Path) -> None:
    heard_events = list(LocalEngine(1, ("cuda:0",)).run(Tens(tmp_path), [3]))
    assert counted_of(heard_events) == 3
    [where] = files(tmp_path, "ready")
    assert where != os.getpid()
    assert not alive({where})
    assert files(tmp_path, "closed") == {where}


@pytest.mark.usefixtures("words_for_gpus")
@pytest.mark.parametrize(
    ("workers", "devices"), [(1, ["cuda:0", "cuda:1"]), (2, ["cuda:0", "cuda:0", "cuda:1"])]
)
def test_each_device_has_its_workers_and_the_first_of_each_come_first(
    workers: int, devices: list[str], tmp_path: Path
) -> None:
    """Each of three items waits until every possible worker has one."""
    ready = lambda: len(files(tmp_path, "ready")) == len(devices)  # noqa: E731
    with once(ready, (tmp_path / "go").touch):
        heard_events = list(
            LocalEngine(workers, ("cuda:0", "cuda:1")).run(
                Tens(tmp_path, late=(3, 4, 5)), [3, 4, 5]
            )
        )
    assert finished(heard_events) == {3: 30, 4: 40, 5: 50}
    assert sorted(path.read_text() for path in tmp_path.glob("ready-*")) == devices


@pytest.mark.usefixtures("words_for_gpus")
def test_a_device_that_fails_an_item_is_tried_again_by_another_process(tmp_path: Path) -> None:
    heard_events = list(LocalEngine(1, ("cuda:0",)).run(Tens(tmp_path, struck=(4,)), [4, 1]))
    assert finished(heard_events) == {4: 40, 1: 10}
    assert counted_of(heard_events) == 5
    assert "device-side assert triggered" in lost(heard_events)[0]
    assert [path.read_text() for path in tmp_path.glob("ready-*")] == ["cuda:0", "cuda:0"]


@pytest.mark.usefixtures("words_for_gpus")
def test_the_others_go_on_with_the_items_of_a_device_that_is_gone(tmp_path: Path) -> None:
    heard_events = list(
        LocalEngine(1, ("cuda:0", "cuda:1")).run(Tens(tmp_path, gone=("cuda:0",)), [4, 1, 2])
    )
    assert finished(heard_events) == {4: 40, 1: 10, 2: 20}
    assert counted_of(heard_events) == 7
    assert len(lost(heard_events)) == 1
    assert (
        "cuda:0 cannot be used: CUDA error: CUDA-capable device(s) is/are busy"
        in lost(heard_events)[0]
    )
    assert [path.read_text() for path in tmp_path.glob("ready-*")] == ["cuda:1"]


@pytest.mark.usefixtures("words_for_gpus")
def test_a_device_that_had_nothing_to_do_stands_in_for_one_that_is_gone(tmp_path: Path) -> None:
    heard_events = list(
        LocalEngine(1, ("cuda:0", "cuda:1")).run(Tens(tmp_path, gone=("cuda:0",)), [4])
    )
    assert finished(heard_events) == {4: 40}
    assert len(lost(heard_events)) == 1


@pytest.mark.usefixtures("words_for_gpus")
def test_where_no_device_is_left_each_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as failed:
        list(
            LocalEngine(1, ("cuda:0", "cuda:1")).run(
                Tens(tmp_path, gone=("cuda:0", "cuda:1")), [4, 1, 2]
            )
        )
    first, *others = failed.value.problems
    assert "no device is left" in first
    assert sorted(line.partition(": ")[0] for line in others) == ["cuda:0", "cuda:1"]
    assert "nvidia-smi" in (failed.value.hint or "")
    assert not files(tmp_path, "begun")


@both
def test_whoever_stops_listening_ends_the_work(workers: int, tmp_path: Path) -> None:
    events = LocalEngine(workers).run(Tens(tmp_path, late=(3, 4)), [1, 2, 3, 4, 5])
    for event in events:
        if isinstance(event, Finished):
            break
    events.close()  # the items that wait are not waited for
    assert 5 not in files(tmp_path, "begun")
    assert not {3, 4} & files(tmp_path, "done")
    assert not alive(files(tmp_path, "ready") - {os.getpid()})
    if workers == 1:
        assert files(tmp_path, "closed") == {os.getpid()}


def test_workers_are_deaf_to_ctrl_c(tmp_path: Path) -> None:
    def interrupt() -> None:
        for worker in files(tmp_path, "ready"):
            os.kill(worker, signal.SIGINT)
        (tmp_path / "go").touch()

    with once(lambda: files(tmp_path, "begun") == {3, 4}, interrupt):
        assert finished(events_of(2, Tens(tmp_path, late=(3, 4)), [3, 4, 5])) == {
            3: 30,
            4: 40,
            5: 50,
        }


def test_ctrl_c_here_ends_them(tmp_path: Path) -> None:
    interrupt = once(
        lambda: files(tmp_path, "begun") == {3, 4}, lambda: os.kill(os.getpid(), signal.SIGINT)
    )
    with interrupt, pytest.raises(KeyboardInterrupt):
        events_of(2, Tens(tmp_path, late=(3, 4)), [3, 4, 5])
    assert files(tmp_path, "done") == set()
    assert not alive(files(tmp_path, "ready"))


def test_workers_of_a_cpu_run_one_thread_and_the_environment_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    # else one item is done in this process
    monkeypatch.setattr(local, "holds_context", lambda device: True)
    for event in LocalEngine(1).run(Threads(), [1]):
        assert isinstance(event, Finished)
        assert event.result == ("1", 1)
        assert os.environ["OMP_NUM_THREADS"] == "7"
    monkeypatch.delenv("OMP_NUM_THREADS")
    list(LocalEngine(2).run(Tens(tmp_path), [1, 2]))
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_number_of_workers_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="found 0, expected 1 or more"):
        engine_for(("cpu",), 0)
    assert engine_for(("cuda:0", "cuda:2")) == LocalEngine(1, ("cuda:0", "cuda:2"))
    assert engine_for(("cuda:1",), 3) == LocalEngine(3, ("cuda:1",))


def test_the_table_of_engines_holds_engines() -> None:
    for name in ENGINES:
        engine: Engine = engine_for(("cpu",), 1, EngineChoice(name))
        assert type(engine) is ENGINES[name]


def test_ctrl_c_while_a_process_is_started_waits_until_it_has_all_that_it_reads_first() -> None:
    order: list[str] = []
    end = threading.Event()
    # takes the signal, which the main thread has blocked
    other = threading.Thread(target=end.wait, daemon=True)
    other.start()
    with pytest.raises(KeyboardInterrupt), processes.deaf_to_interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        order.append("started")
    end.set()
    assert order == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_workers_of_a_cpu_are_as_many_as_cores_that_it_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert default_workers(None, "cpu") == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert default_workers(None, "cpu") == 8
    assert default_workers(None, "cuda") == 1 and default_workers(5, "cpu") == 5


# A call on a device: in this process on a CPU; on a GPU in a process that ends with it, so that
# none is held here.


def number_of_this_process(unused: str) -> int:
    return os.getpid()


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each request for a CUDA context in this process; all of torch makes it in one
    function."""
    requests: list[str] = []

    def begin() -> None:
        requests.append("a context")
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    return requests


def test_on_a_cpu_this_process_calls() -> None:
    assert called_on("cpu", number_of_this_process, "word") == os.getpid()


def test_on_a_gpu_another_process_meets_the_device(
    uses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RunFailure) as failed:
        called_on("cuda:0", number_of_this_process, "word")
    assert failed.value.problems[0] == "no device is left to work on"
    assert failed.value.problems[1].startswith("cuda:0: ")
    assert uses == []


def test_its_value_and_its_refusals_come_back_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a device that this machine has."""
    monkeypatch.setattr(local, "holds_context", lambda device: True)
    assert called_on("cpu", number_of_this_process, "word") != os.getpid()
    with pytest.raises(UserError, match="'gpu': cannot be used"):
        called_on("cpu", resolve_devices, "gpu")
