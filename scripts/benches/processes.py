"""Measurements in processes of their own, whose memory and settings nobody else has, and what
processes hold."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1]


def json_of(module: str, *words: object, given: str | None = None, **environment: str) -> Any:
    """Return the JSON of the last line that `python -m MODULE WORDS` prints. CalledProcessError
    where it fails."""
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(SCRIPTS), *(path for path in sys.path if path)]
    )
    line = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(
        line,
        input=given,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return json.loads(done.stdout.splitlines()[-1])


def processor_seconds() -> float:
    """Return the processor's seconds of this process and of its processes that have ended."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


@contextlib.contextmanager
def watched_memory(process: int) -> Iterator[list[int]]:
    """Watch how many bytes a process and its children hold, shared pages counted in each; yield the
    most so far."""
    import psutil

    most = [0]
    over = threading.Event()

    def watch() -> None:
        root = psutil.Process(process)
        while not over.wait(0.1):
            held = 0
            with contextlib.suppress(psutil.Error):  # it ended just now
                for member in (root, *root.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        held += member.memory_info().rss
            most[0] = max(most[0], held)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        over.set()
        watching.join()
