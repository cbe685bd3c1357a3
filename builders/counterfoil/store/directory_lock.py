"""Lock a directory: one process holds the whole directory, or several processes hold one part of
the plan each.

The locks are the operating system's (flock), so a killed process blocks no one. The process id is
stored only for messages. A process takes a part's lock while it holds the directory's lock. If it
then finds all parts free, it is alone. Locks between machines need a file system that supports
flock (NFS, or Lustre mounted with `flock`). On other file systems two machines may both build one
part, but each file is still written whole.
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

from counterfoil.plan.layout import PlanPart
from counterfoil.progress import report_progress
from counterfoil.store.atomic import disk_errors, make_folder, temporary_file
from counterfoil.store.layout import (
    DIRECTORY_LOCK,
    DIRECTORY_LOCK_HOLDER,
    OPENING_LOCK,
    PART_LOCKS,
    PRIVATE,
)
from counterfoil.store.messages import failure, refusal

_PART_LOCK = re.compile(r"(\d+)-of-(\d+)\.lock")
# Parts open a directory one after another, and each part lists its receipts. With a thousand parts,
# this takes each part a second.
_OPENING_WAITS = 1800.0  # seconds
# A process that only checks whether a directory is in use holds the directory's lock for an
# instant.
_LOOKING_WAITS = 3.0  # seconds


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold a dataset directory alone. Raise UserError if another process holds the directory or a
    part of it."""
    with _whole(directory, 0.0):
        if held := _held_parts(directory):
            shown = [f"{part}{_shown(_holder(directory, part))}" for part in held]
            raise refusal("in-use.parts", directory, shown)
        yield


@contextlib.contextmanager
def writing_lock(folder: Path) -> Iterator[None]:
    """Hold a report's folder while its files are written. Raise RunFailure if another process
    writes there for half an hour.
    """
    path = folder / DIRECTORY_LOCK
    holder = folder / DIRECTORY_LOCK_HOLDER
    for seconds in (0.0, _OPENING_WAITS):
        with _system_lock(path, seconds) as held:
            if held:
                with _named(holder, f"{os.getpid()}\n"):
                    yield
                return
        if not seconds:
            message = f"Waiting for another process{_shown(holder)}, which is writing to {folder}."
            report_progress("writing the report", 0, 1, message)
    minutes = _OPENING_WAITS / 60
    owner = _shown(holder)
    raise failure("in-use.report", folder, holder=owner, minutes=minutes)


@contextlib.contextmanager
def opening_lock(directory: Path) -> Iterator[None]:
    """Hold a directory while a part begins. Other parts wait. Raise UserError if a process holds
    the directory alone.
    """
    path = directory / OPENING_LOCK
    with _system_lock(path, _OPENING_WAITS) as held:
        if not held:
            minutes = _OPENING_WAITS / 60
            raise failure("in-use.opening", directory, minutes=minutes)
        with _whole(directory, _LOOKING_WAITS):
            # A network file system may remember that a file does not exist. Listing the file's
            # folder makes it look again.
            list(directory.iterdir())
            yield


@contextlib.contextmanager
def part_lock(directory: Path, part: PlanPart) -> Iterator[bool]:
    """Hold a part, while `opening_lock` is held. Yield whether it is the only held part.

    Raise UserError if the part is held already, or if a part of a plan with another number of parts
    is held.
    """
    others = _held_parts(directory, but=part)
    if other := next((held for held in others if held.of != part.of), None):
        file = _holder(directory, other)
        holder = _shown(file)
        raise refusal("in-use.other-parts", directory, part, other.of, holder=holder)
    holder = _holder(directory, part)
    with _system_lock(_lock_of(directory, part), 0.0) as held:
        if not held:
            owner = _shown(holder)
            raise refusal("in-use.part", directory, part, holder=owner)
        with _named(holder, f"{os.getpid()} {socket.gethostname()}\n"):
            yield not others


def refuse_held_part(directory: Path, part: PlanPart) -> None:
    """Raise the same errors as `opening_lock` and `part_lock`, before a part's long work begins."""
    with opening_lock(directory), part_lock(directory, part):
        pass


@contextlib.contextmanager
def _whole(directory: Path, seconds: float) -> Iterator[None]:
    path = directory / DIRECTORY_LOCK
    holder = directory / DIRECTORY_LOCK_HOLDER
    with _system_lock(path, seconds) as held:
        if not held:
            owner = _shown(holder)
            raise refusal("in-use.process", directory, holder=owner)
        with _named(holder, f"{os.getpid()}\n"):
            yield


@contextlib.contextmanager
def _system_lock(path: Path, seconds: float) -> Iterator[bool]:
    """Wait at most `seconds` for a lock and hold it. Yield False if another process still holds
    it."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Threads share the lock, because a run may open the store in one thread and close it in
        # another.
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
    """Write this process's name beside the lock while the lock is held."""
    try:
        with disk_errors(holder):
            holder.unlink(missing_ok=True)  # never write through a link
            holder.write_text(text)
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()


def _held_parts(directory: Path, but: PlanPart | None = None) -> list[PlanPart]:
    """List the held parts, while the directory's lock is held. `but` is the caller's own part,
    which is not tried, because a try could release it.
    """
    folder = directory / PART_LOCKS
    if not folder.is_dir():
        return []
    matches = [_PART_LOCK.fullmatch(entry.name) for entry in folder.iterdir()]
    held = []
    for of, number in sorted((int(match[2]), int(match[1])) for match in matches if match):
        part = PlanPart(number, of)
        if part != but:
            with _system_lock(_lock_of(directory, part), 0.0) as free:
                if not free:
                    held.append(part)
    return held


def _lock_of(directory: Path, part: PlanPart) -> Path:
    name = f"{part.number}-of-{part.of}.lock"
    return directory / PART_LOCKS / name


def _holder(directory: Path, part: PlanPart) -> Path:
    name = f"{part.number}-of-{part.of}.pid"
    return directory / PART_LOCKS / name


def _shown(holder: Path) -> str:
    """Return the process id of a lock's holder for a message, and the holder's machine if it is
    another one."""
    try:
        process, _, machine = holder.read_text().strip().partition(" ")
        where = f" on {machine}" if machine and machine != socket.gethostname() else ""
        return f" (process id {int(process)}{where})"
    except (OSError, ValueError):
        return ""


_PATIENCE = 5.0  # in seconds; changes may appear late on a network file system


@dataclass(frozen=True, slots=True)
class FolderMark:
    folder: Path
    name: str
    word: str

    def refuse_unseen(self) -> None:
        """Raise UserError if this process cannot see the mark. The process's folder is then a
        different one."""
        end = time.monotonic() + _PATIENCE
        while True:
            with contextlib.suppress(OSError, ValueError):
                if (self.folder / self.name).read_text(encoding="ascii") == self.word:
                    return
            if time.monotonic() > end:
                machine = socket.gethostname()
                raise refusal("unusable-output.elsewhere", self.folder, machine=machine)
            time.sleep(0.2)


@contextlib.contextmanager
def marked_folder(folder: Path) -> Iterator[FolderMark]:
    """Put a mark in a folder during the block, as a temporary file."""
    word = secrets.token_hex(16)
    path = folder / PRIVATE / f"mark-{word[:8]}"
    make_folder(path.parent)
    with temporary_file(path) as (temporary, file):
        with disk_errors(path):
            file.write(word.encode())
            file.flush()
            os.fsync(file.fileno())
        yield FolderMark(folder, f"{PRIVATE}/{temporary.name}", word)
