"""The process around a case: it starts it, waits so long and no longer, and judges what came of
it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzzing.canaries import Canaries, Sentry
from fuzzing.cases import Bench, Case, Prepared, plain
from fuzzing.inside import PACKAGE, live
from fuzzing.limits import Limits, kept_waiting

GOOD = ("ok", "refused")
BAD = ("crash", "hang", "memory", "read outside", "raw exception")
# The harness's own fault: the case could not be prepared.
BROKEN = "broken case"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a case. `cause` is equal for equal causes; `grown` are MiB; `step` says which
    step it was."""

    case: Case
    outcome: str
    line: str = ""
    cause: str = ""
    step: str = ""
    told: Sequence[str] = ()
    seconds: float = 0.0
    processor: float = 0.0
    grown: int = 0

    @property
    def bad(self) -> bool:
        return self.outcome not in GOOD


@dataclass
class Court:
    """Judges cases one after another in a folder of its own."""

    folder: Path
    kinds: Mapping[str, Callable[[Bench], Prepared]]
    templates: Mapping[str, Path]
    shared: Path
    roots: Sequence[str]
    limits: Limits = field(default_factory=Limits)
    keep: bool = False

    def __post_init__(self) -> None:
        self.folder = Path(os.path.realpath(self.folder))
        self.canaries = Canaries(self.folder / "secret")
        self._plant()

    def judge(self, case: Case) -> Verdict:
        """Return one verdict. Judge again what took long and did little: a busy machine makes cases
        wait."""
        verdict = self._judge(case)
        slow = verdict.outcome == "hang" and verdict.seconds < self.limits.killed_after
        if slow and verdict.processor < self.limits.seconds:
            verdict = self._judge(case)
        return verdict

    def _judge(self, case: Case) -> Verdict:
        folder_of_case = self.folder / "case"
        output = self.folder / "output"
        for folder in (folder_of_case, output):
            clear(folder)
            folder.mkdir(parents=True)
        bench = Bench(case.chance(), folder_of_case, self.canaries, self.templates, self.shared)
        heard = _Heard()
        tell, telling = os.pipe()
        waiting, go = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(tell)
            os.close(go)
            live(bench, self.kinds[case.kind], self.limits, self.roots, output, telling, waiting)
        os.close(telling)
        os.close(waiting)
        try:
            killed = self._listen(heard, tell, go, process)
        finally:
            os.close(tell)
            os.close(go)
            with contextlib.suppress(OSError):
                os.killpg(process, signal.SIGKILL)
            _, ended, used = os.wait4(process, 0)
        seen = self.sentry.seen() if heard.begun else []
        verdict = _verdict(case, heard, killed, ended, seen, output, self.limits)
        verdict = replace(verdict, processor=used.ru_utime + used.ru_stime)
        if verdict.outcome == "read outside":
            self._plant()  # another reader may have moved them
        if not self.keep:
            clear(folder_of_case)
        return verdict

    def _listen(self, heard: _Heard, tell: int, go: int, process: int) -> bool:
        """Hear the case out; return True if it had to be killed."""
        began = self._now(process)
        shown = False
        rest = b""
        while True:
            most = self.limits.killed_after if heard.begun else self.limits.prepared_within
            soon = self.limits.seconds if heard.begun and not shown else most
            ready, _, _ = select.select(
                [tell], [], [], max(0.01, began + soon - self._now(process))
            )
            if ready:
                content = os.read(tell, 1 << 16)
                if not content:
                    return False
                *lines, rest = (rest + content).split(b"\n")
                for line in lines:
                    heard.take(json.loads(line))
                    began = self._now(process)
                    shown = False
                    if "prepared" in heard.latest and not heard.begun:
                        heard.begun = True
                        self.sentry.seen()  # what the preparation opened
                        os.write(go, b"!")
            elif (waited := self._now(process) - began) >= most:
                heard.waited = waited
                return True
            elif not shown and waited >= soon:
                shown = True
                os.kill(process, signal.SIGUSR1)  # it writes where it is, and goes on

    @staticmethod
    def _now(process: int) -> float:
        """Return a clock that stops while the process could run and the machine does something
        else."""
        return time.monotonic() - kept_waiting(process)

    def _plant(self) -> None:
        clear(self.canaries.folder)
        self.canaries.folder.mkdir(parents=True)
        self.canaries.plant()
        self.sentry = Sentry(self.canaries)


@dataclass
class _Heard:
    """What a case told so far."""

    begun: bool = False
    ended: list[Mapping[str, Any]] = field(default_factory=list)
    grown: int = 0
    waited: float = 0.0
    latest: dict[str, Any] = field(default_factory=dict)
    """The latest of each kind: what was prepared, what is outside, whether it is done or broken."""

    def take(self, message: Mapping[str, Any]) -> None:
        if "ended" in message:
            self.ended.append(message["ended"])
        self.grown = max(self.grown, message.get("grown", 0))
        self.latest |= message


def _verdict(
    case: Case,
    heard: _Heard,
    killed: bool,
    ended: int,
    seen: Sequence[str],
    output: Path,
    limits: Limits,
) -> Verdict:
    """Return the worst of what happened, with a line about it."""
    prepared = heard.latest.get("prepared", {"told": [], "steps": []})
    steps = prepared["steps"]
    now = steps[min(len(heard.ended), len(steps) - 1)] if steps else ""
    slowest = max((step["seconds"] for step in heard.ended), default=0.0)

    def verdict(outcome: str, line: str = "", cause: str = "", step: str = now) -> Verdict:
        seconds = max(slowest, heard.waited)
        return Verdict(
            case, outcome, line, cause, step, prepared["told"], seconds, grown=heard.grown
        )

    broken = heard.latest.get("broken")
    if broken is not None or not heard.begun:
        line = broken or ("it took too long" if killed else f"its process ended ({ended})")
        return verdict(BROKEN, plain(line)[-300:], plain(line)[-100:])
    if killed:
        return verdict("hang", f"killed after {heard.waited:.0f} s", _stack(output))
    if "done" not in heard.latest:
        if os.WIFSIGNALED(ended):
            name = signal.Signals(os.WTERMSIG(ended)).name
        else:
            name = f"exit {os.waitstatus_to_exitcode(ended)}"
        outcome = "memory" if _NO_MEMORY.search(_read(output / "stderr")[-5_000:]) else "crash"
        return verdict(outcome, name, f"{name} {_stack(output)}")
    for end, name in zip(heard.ended, steps, strict=False):
        if end["seconds"] > limits.seconds:
            return verdict("hang", f"took {end['seconds']:.1f} s", _stack(output), name)
    errors = [end for end in heard.ended if end.get("memory")]
    if heard.grown > limits.mebibytes or errors:
        error = errors[0] if errors else {}
        line = f"{heard.grown} MiB" + (f", {error['error']}" if error else "")
        return verdict("memory", line, error.get("cause", "more than the limit"))
    opened = [f"canary {path}" for path in seen if path not in prepared.get("named", ())]
    if outside := [*heard.latest.get("outside", ()), *opened]:
        return verdict("read outside", plain("; ".join(outside[:3])), _kind_of(outside[0]))
    for end, name in zip(heard.ended, steps, strict=True):
        if "error" in end:
            return verdict("raw exception", end["error"], end["cause"], name)
    return verdict("refused" if any(end["code"] for end in heard.ended) else "ok")


_NO_MEMORY = re.compile(r"bad_alloc|memory allocation|out of memory|cannot allocate", re.IGNORECASE)


def _kind_of(line: str) -> str:
    """Return what was done and where in the package, without the path, which differs from case to
    case."""
    what, _, rest = line.partition(" ")
    match = re.search(r"\(in .*\)$", rest)
    return f"{what} {match[0]}" if match else f"{what} below Python"


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')


def _stack(output: Path) -> str:
    """Return the innermost file of the package in the first stack that was written; its line is
    chance."""
    for match in _FRAME.finditer(_read(output / "stacks")):
        if match["file"].startswith(PACKAGE):
            return f"in {match['file'].removeprefix(PACKAGE)}"
    return "outside of the package"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:100_000]
    except OSError:
        return ""


def clear(folder: Path) -> None:
    """Remove a folder that may hold anything."""

    def again(function: Callable[..., Any], path: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(stat.S_IRWXU)
            function(path)

    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.is_dir():
        shutil.rmtree(folder, onerror=again)
