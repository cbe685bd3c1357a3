"""Work that tells how far it is: a generator of its progress, whose return value is its result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Told = TypeVar("Told")
Result = TypeVar("Result")
Other = TypeVar("Other")

# Yields how far it is, returns what it made. One step inside another is `result = yield from step(...)`.
UnderWay: TypeAlias = Generator[Told, None, Result]


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a stage of some work is: `done` of `total` images (or files, or shifts) are through.

    lost: a sentence about a worker or a device that was lost just now, while the work goes on.
    """

    name: str
    done: int
    total: int
    lost: str | None = None


def finish(work: UnderWay[Told, Result]) -> Result:
    """Do all of the work and look at none of its progress; the result."""
    return show(work, lambda told: None)


def show(work: UnderWay[Told, Result], draw: Callable[[Told], object]) -> Result:
    """Do all of the work, and give what it tells to `draw` on the way; the result.

    Where `draw` raises, the work ends there too: what it holds (locks, threads, weights) is let go.
    """
    with closing(work):
        while True:
            try:
                told = next(work)
            except StopIteration as end:
                return end.value
            draw(told)


def told_as(work: UnderWay[Told, Result], words: Callable[[Told], Other]) -> UnderWay[Other, Result]:
    """The same work, which tells in other words: `result = yield from told_as(step(...), words)`."""
    with closing(work):
        while True:
            try:
                told = next(work)
            except StopIteration as end:
                return end.value
            yield words(told)
