"""Who may be at work in a directory: one process alone, or one for each part of a plan. The system keeps the locks.

They are the operating system's (flock), so a holder killed by SIGKILL or a power cut blocks nobody. A holder's process
id lies beside its lock only to be shown to whom the lock refuses.

A process that makes a part holds the lock of its part to its end, and takes it under the lock that is everybody's, of
which it lets go at once: so whoever holds that one, and finds all parts free, is alone. Between machines this holds as
far as the file system carries flock from one to another: NFS does (Linux makes it a lock of the server), Lustre where
it is mounted with `flock`. Where locks are local, two machines may make one part twice, each file of it whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from counterfoil.errors import RunFailure, UserError
from counterfoil.plan.layout import PlanPart
from counterfoil.progress import report
from counterfoil.store.atomic import disk_errors, write_atomically
from counterfoil.store.layout import (
    DIRECTORY_LOCK,
    DIRECTORY_LOCK_HOLDER,
    OPENING_LOCK,
    PART_LOCKS,
    PRIVATE,
    TEMPORARY_SUFFIX,
)

_PART_LOCK = re.compile(r"(\d+)-of-(\d+)\.lock")
_MOST_SHOWN = 5
# Parts open a directory one after another, a listing of its receipts each: a thousand of them, a second each.
_OPENING_WAITS = 1800.0  # seconds
# Whoever only looks whether a directory is in use holds its lock for an instant.
_LOOKING_WAITS = 3.0  # seconds


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold a dataset directory alone. UserError when another process holds it, or any part of it."""
    with _whole(directory, 0.0):
        if held := _held_parts(directory):
            shown = ", ".join(f"{part}{_shown(_holder(directory, part))}" for part in held[:_MOST_SHOWN])
            more = f" and {len(held) - _MOST_SHOWN} more" if len(held) > _MOST_SHOWN else ""
            raise UserError(
                f"{directory} is in use: other processes are building parts of it: {shown}{more}",
                hint="Wait until they end, or build another part with the same N: `counterfoil build … --shards K/N`.",
            )
        yield


@contextlib.contextmanager
def writing_lock(folder: Path) -> Iterator[None]:
    """Hold a folder of a report while its files are written; whoever waits tells for whom.

    RunFailure when another process writes for half an hour.
    """
    path, holder = folder / DIRECTORY_LOCK, folder / DIRECTORY_LOCK_HOLDER
    for seconds in (0.0, _OPENING_WAITS):
        with _system_lock(path, seconds) as held:
            if held:
                with _named(holder, f"{os.getpid()}\n"):
                    yield
                return
        if not seconds:
            said = f"Waiting for another process{_shown(holder)}, which is writing to {folder}."
            report("writing the report", 0, 1, said)
    raise RunFailure(
        f"{folder}: another process{_shown(holder)} has been writing to it for {_OPENING_WAITS / 60:.0f} minutes",
        "If a process hangs, end it. Then run the same command again.",
    )


@contextlib.contextmanager
def opening_lock(directory: Path) -> Iterator[None]:
    """Hold a directory for the moment in which a part of it is begun; others that begin one wait.

    UserError when a process holds the directory alone.
    """
    path = directory / OPENING_LOCK
    with _system_lock(path, _OPENING_WAITS) as held:
        if not held:
            raise RunFailure(
                f"{directory}: another process has been opening it for {_OPENING_WAITS / 60:.0f} minutes",
                "If a process hangs, end it. Then run the same command again.",
            )
        with _whole(directory, _LOOKING_WAITS):
            # A network file system may remember for a while that a file is not there; opening its folder ends that.
            list(directory.iterdir())
            yield


@contextlib.contextmanager
def part_lock(directory: Path, part: PlanPart) -> Iterator[bool]:
    """Hold one part of a directory; taken under its `opening_lock`. Gives whether no other part is held then.

    UserError when another process holds this part, or parts of another number.
    """
    others = _held_parts(directory, but=part)
    if other := next((held for held in others if held.of != part.of), None):
        raise UserError(
            f"{directory} is being made in {other.of} parts{_shown(_holder(directory, other))}, found --shards {part}",
            hint="Use the same N in every process, or wait until the others end: parts with another N share"
            " their shards.",
        )
    holder = _holder(directory, part)
    with _system_lock(_lock_of(directory, part), 0.0) as held:
        if not held:
            raise UserError(
                f"part {part} of {directory} is being made by another process{_shown(holder)}",
                hint="Give each process a part of its own, or wait until that one ends.",
            )
        with _named(holder, f"{os.getpid()} {socket.gethostname()}\n"):
            yield not others


def refuse_held_part(directory: Path, part: PlanPart) -> None:
    """The refusals of `part_lock` and of `opening_lock`, for whoever would do long work before the part is begun."""
    with opening_lock(directory), part_lock(directory, part):
        pass


@contextlib.contextmanager
def _whole(directory: Path, seconds: float) -> Iterator[None]:
    """Hold the lock that is everybody's, whoever makes parts."""
    path, holder = directory / DIRECTORY_LOCK, directory / DIRECTORY_LOCK_HOLDER
    with _system_lock(path, seconds) as held:
        if not held:
            raise UserError(
                f"{directory} is in use by another process{_shown(holder)}",
                hint="Wait until it ends, or build into another folder.",
            )
        with _named(holder, f"{os.getpid()}\n"):
            yield


@contextlib.contextmanager
def _system_lock(path: Path, seconds: float) -> Iterator[bool]:
    """Hold a lock of the system, waited for so long; False where another process has it still."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not per thread: a run may open the store in one thread and close it in another.
        lock = FileLock(path, thread_local=False)
        try:
            lock.acquire(timeout=seconds, poll_interval=0.05)
        except Timeout:
            lock = None
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@contextlib.contextmanager
def _named(holder: Path, text: str) -> Iterator[None]:
    """Whoever holds a lock, beside it while it is held."""
    try:
        with disk_errors(holder):
            holder.unlink(missing_ok=True)  # never through a link that somebody left there
            holder.write_text(text)
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()


def _held_parts(directory: Path, but: PlanPart | None = None) -> list[PlanPart]:
    """The parts that a process makes; for the holder of the lock that is everybody's: nobody begins one meanwhile.

    `but` is not asked about: whoever holds it would let go of it by asking, where locks are those of a server.
    """
    folder = directory / PART_LOCKS
    if not folder.is_dir():
        return []
    found = (_PART_LOCK.fullmatch(entry.name) for entry in folder.iterdir())
    held = []
    for of, number in sorted((int(match[2]), int(match[1])) for match in found if match):
        part = PlanPart(number, of)
        if part != but:
            with _system_lock(_lock_of(directory, part), 0.0) as free:
                if not free:
                    held.append(part)
    return held


def _lock_of(directory: Path, part: PlanPart) -> Path:
    return directory / PART_LOCKS / f"{part.number}-of-{part.of}.lock"


def _holder(directory: Path, part: PlanPart) -> Path:
    return directory / PART_LOCKS / f"{part.number}-of-{part.of}.pid"


def _shown(holder: Path) -> str:
    """The process of a holder, and its machine where it is another one."""
    try:
        process, _, machine = holder.read_text().strip().partition(" ")
        where = f" on {machine}" if machine and machine != socket.gethostname() else ""
        return f" (process id {int(process)}{where})"
    except (OSError, ValueError):
        return ""


MARKS = f"{PRIVATE}/mark-*"  # their names, as a pattern, before what every temporary file ends with
_PATIENCE = 5.0  # seconds; a network file system may be a moment behind


@dataclass(frozen=True, slots=True)
class FolderMark:
    """A mark in `folder`: the file `name` there holds `word`, which nobody else has."""

    folder: Path
    name: str
    word: str

    def refuse_unseen(self) -> None:
        """UserError where the mark is not to be seen from this process: its folder is another one."""
        end = time.monotonic() + _PATIENCE
        while not self._seen():
            if time.monotonic() > end:
                raise UserError(
                    f"{self.folder} is a different folder on {socket.gethostname()}, where a worker must write to it",
                    "Name a folder that all machines share under one path, or add --collect: workers then send"
                    " their files here.",
                )
            time.sleep(0.2)

    def _seen(self) -> bool:
        try:
            return (self.folder / self.name).read_text(encoding="ascii") == self.word
        except (OSError, ValueError):
            return False


@contextlib.contextmanager
def marked(folder: Path) -> Iterator[FolderMark]:
    """A mark in a folder for the block; what a killed run leaves of it is removed like its other temporary files."""
    word = secrets.token_hex(16)
    mark = FolderMark(folder, f"{PRIVATE}/mark-{word[:8]}.{os.getpid()}{TEMPORARY_SUFFIX}", word)
    write_atomically(folder / mark.name, word.encode())
    try:
        yield mark
    finally:
        with contextlib.suppress(OSError):
            (folder / mark.name).unlink()
