"""One process at a time builds into a directory: a lock that the system releases however the holder ends.

The lock is the operating system's (flock), so a holder killed by SIGKILL or a power cut blocks nobody. The
holder's process id lies beside it only to be shown to whom the lock refuses.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from counterfoil.errors import UserError
from counterfoil.store.atomic import told_to_people
from counterfoil.store.layout import DIRECTORY_LOCK, DIRECTORY_LOCK_HOLDER


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a dataset directory. UserError when another process holds it."""
    path, holder = directory / DIRECTORY_LOCK, directory / DIRECTORY_LOCK_HOLDER
    with told_to_people(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not per thread: a run may open the store in one thread and close it in another.
        lock = FileLock(path, thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(
                f"{directory} is in use by another process{_shown(holder)}",
                hint="Wait until it ends, or build into another folder.",
            ) from None
    try:
        with told_to_people(holder):
            holder.unlink(missing_ok=True)  # never through a link that somebody left there
            holder.write_text(f"{os.getpid()}\n")
        yield
    finally:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()


def _shown(holder: Path) -> str:
    try:
        return f" (process id {int(holder.read_text())})"
    except (OSError, ValueError):
        return ""
