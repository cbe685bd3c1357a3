"""The interface of engines: the work that an engine gets, as data that pickles, and the events that
it reports."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from counterfoil.options import EngineChoice

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Yielded = TypeVar("Yielded")

# A running item, in any process: a generator that yields the item's events and returns the item's
# result.
Doing: TypeAlias = Generator[Yielded, None, Result]


class Work(Protocol[Item_contra, Result_co]):
    """The task of a worker: data that pickles, and a method that prepares the worker.

    A work object may have three more attributes. `less_memory` is a sentence that says how the work
    can use less memory. `imports` lists the heavy modules that a server imports once before it
    forks workers. `models` is False for work that needs no torch, which then is not imported. Work
    holds nothing of the program that runs, `__main__`, since workers do not import it.
    """

    @property
    def device(self) -> str: ...

    def on(self, device: str) -> Self:
        """Return the same work for a worker on another device, such as `cuda:1`."""
        ...

    def ready(self) -> AbstractContextManager[Callable[[Item_contra], Doing[int, Result_co]]]:
        """Load what a worker needs, once for each worker. The block gets the function that does one
        item.

        The function yields a number (of images or steps) whenever it has done that number more. It
        may yield `Delivered`, and returns the result of the item. If a worker dies, its item starts
        again from the beginning, so the function may count parts that are finished already at once.
        A device error while loading means that the device is gone. A device error in an item means
        that the item failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Advanced:
    """A worker has done `count` more of an item, in the unit of the work. Repeated work is not
    counted again."""

    count: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """A finished part of an item, for the caller to write or report.

    The same part is delivered again if its worker is lost and the item restarts.
    """

    part: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker or its device was lost, or no worker is available yet. The run continues. `message`
    is a sentence."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished(Generic[Item, Result]):
    """An item is done. No `Advanced` or `Delivered` event of this item follows."""

    item: Item
    result: Result


Event: TypeAlias = Advanced | Delivered | Lost | Finished[Item, Result]


class Engine(Protocol):
    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> Engine:
        """Return the engine for work on these devices, with `workers` on each. UserError for
        unsupported settings."""
        ...

    @property
    def at_once(self) -> int:
        """The expected number of items done at the same time. The caller divides work into items
        accordingly."""
        ...

    @property
    def collects(self) -> bool:
        """Whether workers share no folder with this process, so that work must deliver its results
        (`Delivered`)."""
        return False

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, whose devices this process does not know."""
        return False

    def expect(self, imports: Sequence[str]) -> None:
        """Announce work that imports these heavy modules, so that imports may begin; return at
        once."""
        return

    def run(
        self,
        work: Work[Item, Result],
        items: Sequence[Item],
    ) -> Generator[Event[Item, Result]]:
        """Do every item, in any order, and yield the events of all items.

        The engine replaces a worker that dies and does its item again, up to a limit. If an item
        fails, the engine waits for the running items and then raises the first failure. RunFailure
        if an item's workers die too often, if memory runs out, or if no device is left. If the
        generator is closed early, the engine ends its workers, and finished results stay.
        """
        ...
