"""Work of an instant, to see what an engine does with it: in a module, since worker processes import it by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.under_way import UnderWay

PATIENCE = 240.0  # seconds; generous, since the machines that run these are busy ones


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.002)


@dataclass(frozen=True)
class Tens:
    """An item `n` counts to n by ones, leaves a file of its name in `folder`, and gives (10 · n, process).

    Those of `bad` are refused; those of `deadly` kill their process; those of `late` wait for the file `go`.
    """

    folder: Path
    device: str = "none"
    bad: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    unfit: bool = False

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[int], UnderWay[int, tuple[int, int]]]]:
        if self.unfit:
            raise UserError("this worker cannot do it", "Take another.")
        (self.folder / f"ready-{os.getpid()}").touch(exist_ok=False)  # once a worker
        try:
            yield self._one
        finally:
            (self.folder / f"closed-{os.getpid()}").touch()

    def _one(self, item: int) -> UnderWay[int, tuple[int, int]]:
        (self.folder / f"begun-{item}").touch()
        if item in self.bad:
            raise UserError([f"item {item} is bad", "and so on"], "Leave it out.")
        if item in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if item in self.late:
            wait_for((self.folder / "go").exists)
        for _ in range(item):
            yield 1
        (self.folder / f"done-{item}").touch()
        return 10 * item, os.getpid()


@dataclass(frozen=True)
class Threads:
    """Each item gives what its worker says of threads: OMP_NUM_THREADS, and those of torch."""

    device: str = "cpu"

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[int], UnderWay[int, tuple[str | None, int]]]]:
        yield self._one

    def _one(self, item: int) -> UnderWay[int, tuple[str | None, int]]:
        import torch

        yield from ()
        return os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()
