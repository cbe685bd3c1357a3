"""Limits of one case, and what it used: memory, time, files; and that it dies with who started it.

Memory is limited by RLIMIT_DATA, which counts what a process may write to (heaps, stacks, private
maps). RLIMIT_AS would also count the address space of libraries: 5 GB with torch, of which nearly
nothing is memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_STATUS = Path("/proc/self/status")
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Seconds until a step is a hang, seconds until it is killed, and MiB beyond what a case begins
    with.

    Time in which the machine gave the process no processor does not count.
    """

    seconds: float = 5.0
    killed_after: float = 15.0
    mebibytes: int = 1024
    prepared_within: float = 60.0
    written_mebibytes: int = 512


def status() -> dict[str, int]:
    """Return VmRSS, VmHWM and VmData of this process, in bytes."""
    lines = (line.split() for line in _STATUS.read_text().splitlines() if line.startswith("Vm"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def begin(limits: Limits) -> int:
    """Limit this process, and measure its greatest memory from now on; return its bytes now."""
    allowed = status()["VmData"] + limits.mebibytes * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    written = limits.written_mebibytes * MEBIBYTE
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, written))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # then the greatest is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")
    return status()["VmRSS"]


def end() -> None:
    """Let go of the limit of memory, which the judging of a case that reached it needs too."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def kept_waiting(process: int | str = "self") -> float:
    """Return the seconds that a process could have run and got no processor: how busy the machine
    is."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def grown(before: int) -> int:
    """Return the MiB that this process had at most beyond what it began with."""
    return max(0, status()["VmHWM"] - before) // MEBIBYTE
