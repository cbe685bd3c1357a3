"""What a process opens, lists, writes, runs and asks, seen by Python's audit hook, and which of
that is outside.

Reading outside is told and let be, so that what follows from it shows. Writing, running and asking
are stopped: what a case could do to the machine it does not do.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Single files that Python or a library reads on its own account; each was seen with undamaged
# datasets.
READ_BY_LIBRARIES = frozenset(
    {
        "/dev/null",
        "/dev/urandom",
        "/proc/meminfo",  # psutil: free memory
        "/proc/sys/kernel/random/boot_id",  # filelock, imported by the client of the Hub
        "/sys/fs/cgroup/memory.max",  # and what a container leaves of it
        "/sys/fs/cgroup/memory.current",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/cpu.max",  # Arrow: how many threads it may start
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
        "/proc/mounts",  # loading a pipeline
        "/proc/self/mounts",
        "/proc/stat",
        "/proc/cpuinfo",  # numpy, torch: what the processor can do
        "/sys/devices/system/cpu/possible",
        "/etc/mime.types",  # mimetypes
        "/etc/os-release",
        "/etc/localtime",
    }
)
_FOLDERS_OF_LIBRARIES = ("/usr/share/zoneinfo", "/usr/share/fonts", "/usr/local/share/fonts")
_MOST_KEPT = 20

# Event → how many of its arguments are paths; and the events about a name itself and not about what
# it links to.
_READING = {"os.listdir": 1, "os.scandir": 1, "os.chdir": 1, "os.getxattr": 1, "ctypes.dlopen": 1}
_CHANGING = {
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.utime": 1,
    "os.setxattr": 1,
    "os.symlink": 2,
    "shutil.rmtree": 1,
    "shutil.move": 2,
    "sqlite3.connect": 1,
}
_OF_THE_NAME = {
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.rename",
    "os.symlink",
    "shutil.rmtree",
    "shutil.move",
}
_PATHS = {**_READING, **_CHANGING}
_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
_FAREST = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
_WATCHED = {"open", *_PATHS, *_PROGRAMS, *_FAREST}
# The place of a directory's descriptor among an event's arguments: what it names is relative to
# that.
_DESCRIPTORS = {
    "os.mkdir": 2,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.chmod": 2,
    "os.chown": 3,
    "os.utime": 3,
}


def roots_of_the_program() -> tuple[str, ...]:
    """Return the folders of Python, its packages and this checkout's own files."""
    import counterfoil

    checkout = Path(counterfoil.__file__).resolve().parents[2]
    of_checkout = [checkout / name for name in ("builders", "recipes", "cards", "scripts", "tests")]
    paths = sysconfig.get_paths()
    python = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = [*of_checkout, *python, *filter(None, sys.path), *_FOLDERS_OF_LIBRARIES]
    return tuple(dict.fromkeys(os.path.realpath(path) for path in folders))


class Stopped(BaseException):
    """A case was about to change, run or ask something outside. No handler of the package's may
    catch it."""


@dataclass
class Watch:
    """Collects what is outside of `roots`, a line each; `named` paths are those that a person asked
    for.

    `package` is the folder whose functions a line names, as the place that something outside was
    done at.
    """

    roots: Sequence[str]
    package: str
    named: frozenset[str] = frozenset()
    outside: list[str] = field(default_factory=list)
    paused: bool = False

    def begin(self) -> None:
        """Watch from now on until the process ends: an audit hook cannot be taken away."""
        seen: set[Any] = set()

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if not self.paused and event in _WATCHED:
                self._look(event, arguments, seen)

        sys.addaudithook(hook)

    def _look(self, event: str, arguments: tuple[Any, ...], seen: set[Any]) -> None:
        if event in _PROGRAMS:
            self._tell(f"ran {arguments[0]!r}", stop=True)
        elif event in _FAREST:
            self._ask(event, arguments)
        elif not self._relative(event, arguments):
            changes = event in _CHANGING or (event == "open" and _writes(arguments))
            # Opened so, a link is an error.
            itself = event in _OF_THE_NAME
            if event == "open":
                itself = _flags(arguments) & os.O_NOFOLLOW != 0
            paths = arguments[: _PATHS.get(event, 1)]
            # The target of a new link is only text; an access through the link is seen.
            for path in paths[1:] if event == "os.symlink" else paths:
                if not isinstance(path, str | bytes | os.PathLike):
                    continue
                access = (changes, event, os.fspath(path))
                if access not in seen:
                    self._judge(event, path, changes, itself)
                    seen.add(access)  # what was stopped is stopped again

    def _relative(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Return whether a path is relative to an open folder, which was judged when it was
        opened."""
        index = _DESCRIPTORS.get(event)
        given = arguments[index] if index is not None and len(arguments) > index else None
        return isinstance(given, int) and given >= 0

    def _judge(self, event: str, path: Any, changes: bool, itself: bool) -> None:
        """Judge one access; `itself` says that the path names a link and not what it leads to."""
        text = os.fsdecode(path)
        if event == "ctypes.dlopen" and "/" not in text:
            return
        try:
            if itself:
                folder, name = os.path.split(text.rstrip("/"))
                real = f"{os.path.realpath(folder).rstrip('/')}/{name}"
            else:
                real = os.path.realpath(text)
        except (OSError, ValueError):
            return  # no file can have this name
        real = real.replace(f"/proc/{os.getpid()}/", "/proc/self/")
        if self.is_inside(real) or (not changes and self._is_named(text, real)):
            return
        # Naming a folder permits listing its files, but not following links in it.
        below = any(real.startswith(f"{name}/") for name in self.named)
        if event in ("os.scandir", "os.listdir") and below:
            return
        what = "opened" if event == "open" else event
        self._tell(f"{'wrote' if event == 'open' and changes else what} {text[:150]}", stop=changes)

    def is_inside(self, real: str) -> bool:
        return real in READ_BY_LIBRARIES or any(
            real == root or real.startswith(f"{root}/") for root in self.roots
        )

    def _is_named(self, text: str, real: str) -> bool:
        return os.path.normpath(Path.cwd() / text) in self.named or real in self.named

    def _ask(self, event: str, arguments: tuple[Any, ...]) -> None:
        address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        host = address[0] if isinstance(address, tuple) and address else address
        if host not in ("127.0.0.1", "::1", "localhost", None):
            self._tell(f"{event} {host!r}", stop=True)

    def _tell(self, what: str, stop: bool) -> None:
        line = f"{what} (in {self._place()})"
        if len(self.outside) < _MOST_KEPT:
            self.outside.append(line)
        if stop:
            raise Stopped(line)

    def _place(self) -> str:
        """Return the innermost function of the package."""
        frame = sys._getframe()
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(self.package):
                return f"{code.co_filename.removeprefix(self.package)} {code.co_name}"
            frame = frame.f_back
        return "a library"


def _flags(arguments: tuple[Any, ...]) -> int:
    """Return the flags of `open`, whose arguments are path, mode and flags."""
    flags = arguments[2] if len(arguments) > 2 else 0
    return flags if isinstance(flags, int) else 0


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode = arguments[1] if len(arguments) > 1 else None
    written = isinstance(mode, str) and mode[:1] in ("w", "a", "x")
    return written or _flags(arguments) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) != 0
