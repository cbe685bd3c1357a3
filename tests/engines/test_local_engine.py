"""The engine of this machine: every item once, told in order; its failures in words; and no worker left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from trivial_work import Tens, Threads, wait_for

from counterfoil.engines import ENGINES, Advanced, Engine, Event, Finished, engine_for
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure, UserError

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

Told = list[Event[int, tuple[int, int]]]
both = pytest.mark.parametrize("workers", [1, 2], ids=["this process", "two workers"])


def told_by(workers: int, work: Tens, items: Sequence[int]) -> Told:
    return list(LocalEngine(workers).run(work, items))


def finished(told: Told) -> dict[int, int]:
    return {event.item: event.result[0] for event in told if isinstance(event, Finished)}


def files(folder: Path, kind: str) -> set[int]:
    return {int(path.name.removeprefix(f"{kind}-")) for path in folder.glob(f"{kind}-*")}


def alive(processes: set[int]) -> set[int]:
    """Those that still run: a child that ended is a zombie until it is asked for."""
    running = set()
    for number in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                running.add(number)
    return running


@both
def test_every_item_is_done_once_and_all_of_it_is_counted_before(workers: int, tmp_path: Path) -> None:
    told = told_by(workers, Tens(tmp_path), [4, 0, 7, 2, 5])
    assert len([event for event in told if isinstance(event, Finished)]) == 5
    assert finished(told) == {4: 40, 0: 0, 7: 70, 2: 20, 5: 50}
    counted = done = 0
    for event in told:
        if isinstance(event, Advanced):
            counted += event.count
        else:
            done += event.item
        assert counted >= done, "an item was finished before it was counted"
    assert counted == done == 18
    assert isinstance(told[-1], Finished)


def test_in_this_process_each_step_is_told_as_it_is_done(tmp_path: Path) -> None:
    events = LocalEngine(1).run(Tens(tmp_path), [2, 1])
    assert next(events) == Advanced(1)
    assert files(tmp_path, "begun") == {2}
    assert files(tmp_path, "done") == set()
    mine = os.getpid()
    assert list(events) == [Advanced(1), Finished(2, (20, mine)), Advanced(1), Finished(1, (10, mine))]


@both
def test_each_worker_gets_ready_once(workers: int, tmp_path: Path) -> None:
    told = told_by(workers, Tens(tmp_path), range(6))
    where = {event.result[1] for event in told if isinstance(event, Finished)}
    assert files(tmp_path, "ready") == where
    assert 1 <= len(where) <= workers
    assert (os.getpid() in where) is (workers == 1)
    assert not alive(where - {os.getpid()})


@both
def test_nothing_to_do_starts_nothing(workers: int, tmp_path: Path) -> None:
    assert told_by(workers, Tens(tmp_path), []) == []
    assert list(tmp_path.iterdir()) == []


@both
def test_a_refusal_reaches_the_caller_whole(workers: int, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        told_by(workers, Tens(tmp_path, bad=(3,)), [3, 1])
    assert refused.value.problems == ("item 3 is bad", "and so on")
    assert refused.value.hint == "Leave it out."
    with pytest.raises(UserError, match="this worker cannot do it"):
        told_by(workers, Tens(tmp_path, unfit=True), [8, 9])
    assert not files(tmp_path, "begun") & {8, 9}


@contextlib.contextmanager
def once(condition: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Meanwhile, in a thread: `act` once the condition holds."""

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


def test_a_worker_that_dies_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as failed:
        told_by(2, Tens(tmp_path, deadly=(2,)), [1, 2, 3])
    assert "a worker process ended unexpectedly" in failed.value.problems[0]
    assert "Run the same command again" in (failed.value.hint or "")
    assert not alive(files(tmp_path, "ready"))


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
        assert finished(told_by(2, Tens(tmp_path, late=(3, 4)), [3, 4, 5])) == {3: 30, 4: 40, 5: 50}


def test_ctrl_c_here_ends_them(tmp_path: Path) -> None:
    interrupt = once(lambda: files(tmp_path, "begun") == {3, 4}, lambda: os.kill(os.getpid(), signal.SIGINT))
    with interrupt, pytest.raises(KeyboardInterrupt):
        told_by(2, Tens(tmp_path, late=(3, 4)), [3, 4, 5])
    assert files(tmp_path, "done") == set()
    assert not alive(files(tmp_path, "ready"))


def test_workers_of_a_cpu_run_one_thread_and_the_environment_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    for event in LocalEngine(2).run(Threads(), [1, 2]):
        assert isinstance(event, Finished)
        assert event.result == ("1", 1)
        assert os.environ["OMP_NUM_THREADS"] == "7"
    monkeypatch.delenv("OMP_NUM_THREADS")
    list(LocalEngine(2).run(Tens(tmp_path), [1, 2]))
    assert "OMP_NUM_THREADS" not in os.environ


def test_a_number_of_workers_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="found 0, expected 1 or more"):
        engine_for("cpu", 0)
    assert engine_for("cuda") == LocalEngine(1)
    assert engine_for("cuda", 3) == LocalEngine(3)


def test_the_table_of_engines_holds_engines() -> None:
    for name in ENGINES:
        engine: Engine = engine_for("cpu", 1, name)
        assert type(engine) is ENGINES[name]
