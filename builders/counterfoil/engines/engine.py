"""The interface of engines: the work that they are given, as data that pickles, and the events that they report."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Part = TypeVar("Part")
Yielded = TypeVar("Yielded")

# A running item, in any process: it yields its events and returns its result.
Doing: TypeAlias = Generator[Yielded, None, Result]


class Work(Protocol[Item_contra, Result_co]):
    """The task of a worker: data that pickles, and a method that prepares the worker.

    It may have two more attributes: `less_memory`, a sentence on how to need less memory, and `imports`, the heavy
    modules that a server imports once before it forks workers.
    """

    @property
    def device(self) -> str: ...

    def on(self, device: str) -> Self:
        """Return the same work for a worker on this device, such as `cuda:1`."""
        ...

    def ready(self) -> AbstractContextManager[Callable[[Item_contra], Doing[int, Result_co]]]:
        """Load what is needed, once for each worker, and give the function of one item.

        The function yields a count (of images, of steps) whenever so much more is done, may yield `Delivered`, and
        returns its result. If a worker dies, its item is done again from its beginning; finished parts are counted at
        once. A device error while loading means that the device is gone; one in an item means that the item failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Advanced:
    """So much more of some item is done, in the unit of the work. Repeated work is not counted again."""

    count: int


@dataclass(frozen=True, slots=True)
class Delivered(Generic[Part]):
    """A finished part of an item, for the caller to write or to report; it comes again if its worker was lost."""

    part: Part


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker or its device was lost, or none is available yet, and the run continues; `message` is a sentence."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished(Generic[Item, Result]):
    """An item is done. All its counts and deliveries came before."""

    item: Item
    result: Result


Event: TypeAlias = Advanced | Delivered[Any] | Lost | Finished[Item, Result]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """A person's choice of where work is done.

    name: a key of `ENGINES`. address: of a running cluster; None for a new one on this machine. collect: workers share
    no folder and send their results to this process, which writes them.
    """

    name: str = "local"
    address: str | None = None
    collect: bool = False


class Engine(Protocol):
    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> Engine:
        """Return the engine for work on these devices, `workers` on each. UserError for what it cannot use."""
        ...

    @property
    def at_once(self) -> int:
        """The expected number of items done at the same time; items are cut for it."""
        ...

    @property
    def collects(self) -> bool:
        """Whether workers share no folder with this process, so that work must deliver its results (`Delivered`)."""
        ...

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, whose devices this process does not know."""
        ...

    def expect(self, imports: Sequence[str]) -> None:
        """Announce work that imports these heavy modules, so that imports may begin; return at once."""
        ...

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        """Do every item, in any order, and yield its events.

        A worker that dies is replaced and its item done again, up to a limit. Raise the first failure of an item once
        those in flight are done; RunFailure for an item whose workers die, for too little memory, and if no device is
        left. If closed early, end the workers; finished results stay.
        """
        ...
