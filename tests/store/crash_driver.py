"""Kills builds of the store with SIGKILL, again and again, and checks what each leaves behind.

A process of its own (`python crash_driver.py FOLDER FORMAT EVERY`): each build is a fork, which is
safe only while no thread has been started. Prints how many kills left what; exits with a message
at the first thing that is not as it must be.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import itertools
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

# Loaded here once, and not in every fork.
import pyarrow
from store_cases import build, hashes_of, plan_of, yaml_of

from counterfoil.plan.layout import Plan
from support.files import published

pyarrow.array([1])  # loads what pyarrow loads when it is first used

IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(300)


def build_in_fork(out: Path, plan: Plan, before: Callable[[], None]) -> int:
    """Return the process id of a fork that runs `before`, builds and exits with 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before()
            build(out, plan, IMAGE)
            code = 0
        finally:
            os._exit(code)
    return child


def ended_well(child: int) -> bool:
    """Return whether the fork finished its build, false if it was killed; raise if it failed by
    itself."""
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "a resumed build failed"
    return True


def check_what_is_left(out: Path) -> str:
    """Check that every receipt is true and every document whole; return a word for the state."""
    receipts = sorted((out / "receipts").glob("*.json"))
    for path in receipts:
        for file in json.loads(path.read_bytes())["files"]:
            content = (out / file["path"]).read_bytes()
            assert len(content) == file["size"], file["path"]
            assert hashlib.sha256(content).hexdigest() == file["sha256"], file["path"]
    for name in ("lock.json", "manifest.json", "_info.json"):
        if (out / name).exists():
            json.loads((out / name).read_bytes())
    if (out / "manifest.json").exists():
        return "finished"
    if any(out.rglob("*.tmp")):
        return "amid a file"
    return "between files" if receipts else "before the first receipt"


def kill_at_every_step(folder: Path, plan: Plan, expected: dict[str, bytes], every: int) -> Counter:
    """Kill one build before its first touch of the disk, one before its second, and so on to the
    last.

    Only before each so many is one killed where `every` is more than 1.
    """
    left: Counter = Counter()
    for step in itertools.count(1, every):
        out = folder / f"step-{step}"
        if ended_well(build_in_fork(out, plan, lambda step=step: die_before(step))):
            shutil.rmtree(out)
            break
        left[check_what_is_left(out) if out.exists() else "nothing"] += 1
        assert ended_well(build_in_fork(out, plan, lambda: None))
        assert published(out) == expected, f"another tree after a kill before step {step}"
        shutil.rmtree(out)
    return left


def die_before(step: int) -> None:
    """Let this process kill itself before its `step`-th opening, renaming, removing or creating of
    a path."""
    seen = 0

    def count(event: str, _: tuple) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.mkdir"):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main(folder: Path, format: str, every: int) -> None:
    if format == "webdataset":
        importlib.import_module("webdataset.writer")
    gc.freeze()  # collecting garbage in a fork would copy the memory of all modules
    plan = plan_of(
        f"output.format={format}",
        "output.rows_per_shard=100",
        "prompts.shifts.rain=null",
        "prompts.shifts.nowhere=null",
    )
    hashes_of(plan)  # worked out once, not in every fork
    yaml_of(plan)
    assert ended_well(build_in_fork(folder / "whole", plan, lambda: None))
    print(json.dumps(kill_at_every_step(folder, plan, published(folder / "whole"), every)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
