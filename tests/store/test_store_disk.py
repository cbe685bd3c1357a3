"""Disks that fail: full, limited, forbidden. The message is for people and nothing half-written
stays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_cases import build, candidates_of, opened, plan_of

from counterfoil.errors import RunFailure
from counterfoil.store import atomic
from counterfoil.store.atomic import (
    atomic_file,
    remove_half_written,
    replace_files,
    try_folder,
    write_atomically,
)
from counterfoil.store.layout import TEMPORARY_SUFFIX, WRITTEN
from support.files import published
from support.refusals import refuses

BIG_IMAGE = os.urandom(20_000)


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let every write past `size` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder to try in as a user whom permissions bind: root becomes an ordinary user for a
    while."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    user = os.geteuid()
    (folder / "forbidden").mkdir(mode=0o555)
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    shutil.rmtree(folder)


def test_a_limit_reached_in_a_shard_leaves_no_trace_of_it(tmp_path: Path, format: str) -> None:
    out = tmp_path / "limited"
    plan = plan_of(f"output.format={format}")
    with opened(out, plan) as store:
        shard = store.pending()[0]
        candidates = candidates_of(plan, shard, BIG_IMAGE)
        before = published(out)
        with (
            refuses("cannot-write", None, "File too large", kind=RunFailure) as caught,
            file_size_limit(15_000),
        ):
            store.writer.write(shard, candidates)
        assert "run the same command again" in str(caught.value)
        assert published(out) == before
        store.writer.write(shard, candidates)
    build(out, plan, BIG_IMAGE)
    assert published(out) == published(build(tmp_path / "never limited", plan, BIG_IMAGE))


def test_a_full_disk_ends_the_run_and_more_room_ends_it_well(
    small_disk: Path, tmp_path: Path, format: str
) -> None:
    plan = plan_of(f"output.format={format}")
    with refuses("cannot-write", None, "No space left on device", kind=RunFailure):
        build(small_disk / "out", plan, BIG_IMAGE)
    assert list((small_disk / "out").rglob("*.tmp")) == []
    assert not (small_disk / "out/manifest.json").exists()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    build(small_disk / "out", plan, BIG_IMAGE)
    assert published(small_disk / "out") == published(
        build(tmp_path / "never full", plan, BIG_IMAGE)
    )


def test_a_read_only_disk_is_the_users_to_change(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with (
        refuses("cannot-write", None, "Read-only file system"),
        opened(small_disk / "out", plan_of()),
    ):
        pass


def test_a_forbidden_folder_is_the_users_to_change(unprivileged: Path) -> None:
    forbidden = unprivileged / "forbidden"
    with (
        refuses("cannot-write", None, "Permission denied") as caught,
        opened(forbidden / "deeper" / "out", plan_of()),
    ):
        pass
    assert "may write to" in str(caught.value)
    for folder in (forbidden, forbidden / "new"):
        with refuses("cannot-write", None, "Permission denied"):
            try_folder(folder)
    assert list(forbidden.iterdir()) == []


def test_any_other_failure_of_the_disk_is_reported_too(tmp_path: Path) -> None:
    with refuses("cannot-write", None, "File name too long", kind=RunFailure):
        write_atomically(tmp_path / ("n" * 300), b"")


def test_a_failing_writer_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"new, but")
        raise KeyboardInterrupt
    assert published(tmp_path) == {"a.json": b"old"}


def test_size_and_hash_are_those_of_the_file(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "deep/er/file") as file:
        for part in (b"a" * 10, bytearray(b"b"), memoryview(b"cc")):
            file.write(part)
    content = (tmp_path / "deep/er/file").read_bytes()
    assert (file.size, file.sha256) == (13, hashlib.sha256(content).hexdigest())


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    for folder in (tmp_path, tmp_path / "new", tmp_path / "new" / "below"):
        try_folder(folder)
    with refuses("unusable-output", None, "is a file"):
        try_folder(tmp_path / "file")
    for folder in (tmp_path / "file" / "below", Path("/proc/dataset"), tmp_path / ("x" * 300)):
        with refuses("cannot-write"):
            try_folder(folder)
    assert sorted(tmp_path.rglob("*")) == before
    with file_size_limit(0):
        try_folder(tmp_path / "new")  # it writes nothing, so that no limit applies


def test_a_shard_is_not_written_into_what_was_removed(tmp_path: Path) -> None:
    plan = plan_of()
    with opened(tmp_path / "d", plan) as store:
        shard = store.pending()[0]
        shutil.move(tmp_path / "d", tmp_path / "away")
        with refuses("changed-meanwhile", kind=RunFailure):
            store.writer.write(shard, candidates_of(plan, shard))
    assert not (tmp_path / "d" / "receipts").exists()


def test_a_file_takes_its_name_when_its_bytes_are_on_disk_and_a_second_writing_takes_the_receipt_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the order of these calls, which alone decides what a power cut leaves at any
    instant."""
    done: list[tuple[str, str]] = []
    fsync = os.fsync
    replace = Path.replace
    unlink = Path.unlink

    def flushed(number: int) -> None:
        done.append(("flush", Path(f"/proc/self/fd/{number}").readlink().name))
        fsync(number)

    def named(self: Path, target: Path) -> Path:
        done.append(("name", self.name))
        return replace(self, target)

    def removed(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok=missing_ok)
        done.append(("remove", self.name))

    plan = plan_of()
    shard = plan.shards[0]
    with opened(tmp_path, plan) as store:
        monkeypatch.setattr(os, "fsync", flushed)
        monkeypatch.setattr(Path, "replace", named)
        monkeypatch.setattr(Path, "unlink", removed)
        store.writer.write(shard, candidates_of(plan, shard))
        first, done[:] = list(done), []
        store.writer.write(shard, candidates_of(plan, shard))
    for order in (first, done):
        names = [name for what, name in order if what == "name"]
        assert len(names) >= 3, "data, candidates, receipt"
        assert all(order.index(("flush", name)) < order.index(("name", name)) for name in names)
        assert names[-1].endswith(f".json.{os.getpid()}{TEMPORARY_SUFFIX}"), "the receipt last"
    gone = next(
        index
        for index, (what, name) in enumerate(done)
        if what == "remove" and name.endswith(".json")
    )
    renamed = done.index(next(step for step in done if step[0] == "name"))
    assert ("flush", "receipts") in done[gone:renamed], (
        "the old receipt is gone for good before anything is in place"
    )


_WRITING = """
import sys
from pathlib import Path
from counterfoil.store.atomic import temporary_file, temporary_folder
out = Path(sys.argv[1])
with temporary_file(out / "a.csv") as (name, file), temporary_folder(out / "images") as folder:
    file.write(b"half")
    (folder / "1.png").touch()
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX locks")
def test_what_a_killed_process_leaves_goes_and_what_a_running_one_writes_stays(
    tmp_path: Path,
) -> None:
    line = [sys.executable, "-c", _WRITING, str(tmp_path)]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writing:
        assert writing.stdout is not None and writing.stdout.readline() == "open\n"
        held = sorted(tmp_path.iterdir())
        assert len(held) == 2 and all(
            path.name.endswith(f".{writing.pid}{TEMPORARY_SUFFIX}") for path in held
        )
        remove_half_written(tmp_path)
        assert sorted(tmp_path.iterdir()) == held
        writing.kill()
    (tmp_path / f"link.1{TEMPORARY_SUFFIX}").symlink_to(tmp_path.parent)
    write_atomically(tmp_path / "another", b"")
    assert {path.name for path in tmp_path.iterdir()} == {"another", f"link.1{TEMPORARY_SUFFIX}"}


def test_only_recorded_files_that_nobody_changed_are_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path / "outside", b"1")
    out = tmp_path / "out"
    replace_files(out, {"a": b"1", "b": b"2", "c": b"3", "below/d": b"4"})
    (out / "b").write_bytes(b"a person's")
    digest = hashlib.sha256(b"1").hexdigest()
    with (out / WRITTEN).open("a") as record:
        record.write(f"\n{digest} ../outside\nno digest\n")
    replace_files(out, {"c": b"5"})
    assert published(out) == {"b": b"a person's", "c": b"5"}
    assert not (out / "below").exists() and (tmp_path / "outside").exists()


def test_a_run_killed_amid_its_files_leaves_none_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_files(tmp_path, {"a": b"1"})
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        write = atomic.write_atomically

        def killed(path: Path, content: bytes) -> Any:
            if path.name == "c":
                raise KeyboardInterrupt
            return write(path, content)

        patched.setattr(atomic, "write_atomically", killed)
        replace_files(tmp_path, {"b": b"2", "c": b"3"})
    replace_files(tmp_path, {"d": b"4"})
    assert published(tmp_path) == {"d": b"4"}


# Builds killed by SIGKILL, many times, end with the bytes of an undisturbed build.


@pytest.mark.parametrize(
    ("format", "every"),
    [
        ("parquet", 6),
        pytest.param("parquet", 1, marks=pytest.mark.release(of="store")),
        pytest.param("webdataset", 1, marks=pytest.mark.whole),
    ],
)
def test_killed_builds_resume_to_the_same_bytes(
    memory_folder: Path, format: str, every: int
) -> None:
    driver = Path(__file__).with_name("crash_driver.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(driver.parent), *sys.path])}
    arguments = [sys.executable, str(driver), str(memory_folder), format, str(every)]
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    left = json.loads(run.stdout)
    # The kills must have met builds at work, or the test would prove nothing.
    assert left["amid a file"] > 10 // every and left["between files"] > 10 // every
