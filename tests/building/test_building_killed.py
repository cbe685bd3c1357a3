"""The real command, ended by SIGKILL or Ctrl-C at several moments, goes on to the bytes of an undisturbed run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import warm
from tiny_builds import SHARDS, build_arguments, command, published, tiny

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

PATIENCE = 600.0  # seconds; generous, since the machines that run these are busy ones


@contextmanager
def running_build(out: Path) -> Iterator[warm.Running]:
    """The command with two workers, in a process group of its own."""
    words, environment = command(*build_arguments(out, workers=2))
    with warm.start(words, environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


class DoneBefore(Exception):
    """The build was done before what was waited for."""


def wait_for(condition: Callable[[], bool], process: warm.Running | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        if process is not None and process.poll() is not None:
            told = f"the build ended by itself with {process.returncode}: {process.communicate()[1]}"
            assert process.returncode == 0, told
            raise DoneBefore(told)
        time.sleep(0.02)


def shards_done(out: Path) -> int:
    return len(list((out / "receipts").glob("*.json"))) if (out / "receipts").is_dir() else 0


def workers_of(process: warm.Running) -> list[psutil.Process]:
    """Worker processes, which are forked from a child of the build."""
    try:
        return [worker for child in psutil.Process(process.pid).children() for worker in child.children()]
    except psutil.Error:
        return []


def ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_killed_builds_go_on_to_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    done_at_kills = []
    # While workers load; amid the first shards; and amid the later ones.
    for least in (0, 2, 4):
        shards_at_start = shards_done(out)
        with running_build(out) as process:
            try:
                wait_for(lambda: len(workers_of(process)) == 2 and (out / "lock.json").exists(), process)
                wait_for(lambda at=least: shards_done(out) >= at, process)
            except DoneBefore:  # of so few shards one worker may make all, and then none is started
                assert SHARDS - shards_at_start < 4
                break
            workers = workers_of(process)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda ws=workers: all(ended(worker) for worker in ws))
            assert "Traceback" not in process.communicate()[1]
        done_at_kills.append(shards_done(out))
        assert not (out / "README.md").exists()
        assert not (out / "manifest.json").exists()
    assert len(done_at_kills) >= 2 and done_at_kills[1] >= 2
    assert done_at_kills == sorted(done_at_kills), "a finished shard is never lost"
    left = SHARDS - shards_done(out)
    assert tiny(out).shards_made == left
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


def test_ctrl_c_says_so_and_keeps_what_is_done(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    # While workers start, when Python itself would answer with a traceback; and amid the work.
    for least in (0, 3):
        with running_build(out) as process:
            wait_for(lambda: len(workers_of(process)) == 2, process)
            wait_for(lambda at=least: shards_done(out) >= at, process)
            workers = workers_of(process)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
            assert process.returncode == 130, said
            assert "Traceback" not in said
            assert "KeyboardInterrupt" not in said
            assert "run the same command again" in said
            wait_for(lambda ws=workers: all(ended(worker) for worker in ws))
        assert not (out / "README.md").exists()
    assert 3 <= shards_done(out) <= SHARDS
    tiny(out)
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))


def test_a_second_build_is_refused_while_one_runs(tmp_path: Path) -> None:
    from counterfoil.errors import UserError

    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(lambda: (out / ".counterfoil" / "lock.pid").exists() and (out / "lock.json").exists(), process)
        with pytest.raises(UserError, match=f"in use by another process.*{process.pid}"):
            tiny(out)
        os.kill(process.pid, signal.SIGKILL)


def test_a_build_goes_on_without_a_killed_worker_to_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with running_build(out) as process:
        wait_for(lambda: len(workers_of(process)) == 2, process)
        worker = workers_of(process)[0]
        worker.suspend()  # so that it surely has a shard when it dies; one that goes on may just have handed it in
        wait_for(lambda: shards_done(out) >= 1, process)
        worker.kill()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert "was ended by SIGKILL" in said
    assert published(out) == published(undisturbed)
    assert not list(out.rglob("*.tmp"))
