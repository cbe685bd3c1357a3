"""Work of an instant, to see what an engine does with it: in a module, since worker processes
import it by name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil.engines import Delivered, Doing
from counterfoil.errors import UserError

PATIENCE = 600.0  # seconds; generous, since the machines that run these are busy ones


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.002)


@dataclass(frozen=True)
class Tens:
    """An item `n` counts to n by ones, delivers -n, leaves a file of its name in `folder`, and
    gives (10 · n, process).

    Those of `bad` are refused; those of `deadly` kill their process, those of `mortal` after half
    of it, the first time; for those of `struck` CUDA fails, likewise; those of `vast` find no
    memory; those of `late` wait for the file `go`. A worker of a device of `gone` cannot get ready.
    It never touches a device: `cuda:0` is a word to it.
    """

    folder: Path
    device: str = "none"
    bad: tuple[int, ...] = ()
    deadly: tuple[int, ...] = ()
    mortal: tuple[int, ...] = ()
    struck: tuple[int, ...] = ()
    vast: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    gone: tuple[str, ...] = ()
    unfit: bool = False
    strange: bool = False

    @property
    def less_memory(self) -> str:
        return "Count to less."

    @property
    def imports(self) -> tuple[str, ...]:
        return ("fractions",)  # nothing heavy, but so its workers are forked

    def on(self, device: str) -> Tens:
        # without torch, whose import takes seconds
        return replace(self, device="none" if device == "cpu" else device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[int], Doing[Any, tuple[int, int]]]]:
        if self.unfit:
            raise UserError("this worker cannot do it", "Take another.")
        if self.strange:
            raise Strange(1, 2)
        if self.device in self.gone:
            raise RuntimeError(
                "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors"
                " might"
            )
        with (self.folder / f"ready-{os.getpid()}").open("x") as file:  # once a worker
            file.write(self.device)
        try:
            yield self._one
        finally:
            (self.folder / f"closed-{os.getpid()}").touch()

    def _one(self, item: int) -> Doing[int | Delivered, tuple[int, int]]:
        with (self.folder / f"begun-{item}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        if item in self.late:
            wait_for((self.folder / "go").exists)
        if item in self.bad:
            raise UserError([f"item {item} is bad", "and so on"], "Leave it out.")
        if item in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if item in self.vast:
            raise MemoryError
        first = len((self.folder / f"begun-{item}").read_text().split()) == 1
        for step in range(item):
            if first and step == item // 2 and item in self.mortal:
                os.kill(os.getpid(), signal.SIGKILL)
            if first and step == item // 2 and item in self.struck:
                raise RuntimeError("CUDA error: device-side assert triggered")
            yield 1
        yield Delivered(-item)
        (self.folder / f"done-{item}").touch()
        return 10 * item, os.getpid()


class Strange(Exception):
    """An error that cannot be unpickled, like many of libraries."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} is not {second}")


@dataclass(frozen=True)
class Threads:
    """Each item gives what its worker says of threads: OMP_NUM_THREADS, and those of torch."""

    device: str = "cpu"

    def on(self, device: str) -> Threads:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[int], Doing[int, tuple[str | None, int]]]]:
        yield self._one

    def _one(self, item: int) -> Doing[int, tuple[str | None, int]]:
        import torch

        yield from ()
        return os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()


@dataclass(frozen=True)
class Together:
    """Each worker gets ready when `workers` of them do at once; an item gives its length."""

    folder: Path
    workers: int
    device: str = "none"

    def on(self, device: str) -> Together:
        return self

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[bytes], Doing[int, int]]]:
        (self.folder / f"getting-{os.getpid()}").touch()
        wait_for(lambda: len(list(self.folder.glob("getting-*"))) == self.workers)
        yield self._one

    def _one(self, item: bytes) -> Doing[int, int]:
        yield from ()
        return len(item)
